"""Reads the opaque parameters of a claim of CPUs: JSON that its DeviceClass or its request has for our driver.

They count for the whole claim. What is not understood refuses it: a newer release may have meant a promise.
"""

import json
from collections.abc import Iterable

VERSION, KIND = "cpus.nodeward.io/v1", "ClaimParameters"
WHOLE_CORES = "fullPCPUsOnly"
"""As kubelet's option `full-pcpus-only`: whole cores, or the claim is refused."""
ALSO_SHARED = "shared"
"""The claim's containers may run on the shared CPUs as well."""
KNOWN = (WHOLE_CORES, ALSO_SHARED)
_REMEDY = f"this release reads {KIND} of {VERSION}, with true or false for {' and '.join(KNOWN)}"


def options(texts: Iterable[str]) -> tuple[tuple[str, ...], str]:
    """Which of these it has, by its parameters in the order in which they count; or what is wrong with them."""
    found = dict[str, bool]()
    for text in texts:
        try:
            read = json.loads(text)
        except (ValueError, RecursionError):
            return (), f"its opaque parameters are no JSON; {_REMEDY}"
        if not isinstance(read, dict) or (read.pop("apiVersion", None), read.pop("kind", None)) != (VERSION, KIND):
            return (), f"its opaque parameters are of another kind or version; {_REMEDY}"
        for name, value in read.items():
            if name not in KNOWN:
                return (), f"its opaque parameters have {name[:64]!r}; {_REMEDY}"
            if not isinstance(value, bool):
                return (), f"its opaque parameter {name} is neither true nor false; {_REMEDY}"
            found[name] = value
    return tuple(name for name in KNOWN if found.get(name)), ""
