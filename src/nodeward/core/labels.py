"""The labels that the settings name: the only ones an edge copies out of a pod or a container.

A key is written as an expression has it: `pod/labels/KEY` for the pod's label, `labels/KEY` for the container's own.
"""

from collections.abc import Collection, Mapping

POD, OWN = "pod/labels/", "labels/"
PREFIXES = (POD, OWN)
MOST = 64
"""Keys that settings may name."""
MAX_VALUE = 63
"""Characters. Kubernetes has no longer value of a label; a runtime that tells one tells of none."""

Labels = Mapping[str, str | None]
"""By key as above; None where there is no such label. A key that is not there was not read."""
Keys = Collection[str]


def read_labels(found: Mapping[str, str], keys: Keys, prefix: str) -> dict[str, str | None]:
    """Of these labels of a pod (POD) or a container (OWN) the ones that `keys` name."""
    values = {key: found.get(key.removeprefix(prefix)) for key in keys if key.startswith(prefix)}
    return {key: text if text is not None and len(text) <= MAX_VALUE else None for key, text in values.items()}
