"""The annotations that admission owns: computes what they must be from the spec alone.

`nodeward.io/limits` carries every container exactly; `epc-limit.nri.io/container.<name>` is for upstream's plugin,
where the key fits and the amount is more than 0, which that plugin reads as no limit; `sgx.intel.com/epc` is for Kata.
What somebody else has written there is replaced, and every other `epc-limit.nri.io` key goes: that plugin would obey
it. Only Kata's annotation stays where no EPC is declared, as Intel's webhook leaves it, with a warning.
"""

import json
from collections.abc import Collection, Container, Mapping
from json.encoder import encode_basestring_ascii as _quoted

from nodeward.core import annotations as keys
from nodeward.core.quantity import binary_text
from nodeward.core.text import printable
from nodeward.core.workload import Amounts, Role
from nodeward.features.admission.devices import EPC
from nodeward.features.admission.values import AdmissionRule, ContainerAsked

_MAX_REQUIRED = 4096
_COMPACT = json.JSONEncoder(separators=(",", ":"))

Table = tuple[tuple[ContainerAsked, Amounts], ...]
"""Each container with its amounts by the API's names."""


def wanted(
    table: Table, named: Container[str], overhead: Amounts, epc_sum: int | None, rule: AdmissionRule
) -> Mapping[str, str]:
    """The annotations by key, as the pod must have them. `named` is what any container declares; `epc_sum` is None if
    none declares EPC."""
    found: dict[str, str] = {}
    members = {api: f"{_quoted(rule.resources[api])}:" for api in rule.resources if api in overhead or api in named}
    if members and (rows := _rows(table, members)):
        found[keys.OWN_LIMITS] = f"{{{','.join(rows)}}}"
    for container, amounts in table:
        if amounts.get(EPC) and len(name := f"container.{container.name}") <= keys.MAX_NAME:
            found[f"{keys.UPSTREAM_EPC}/{name}"] = str(amounts[EPC])
    if epc_sum is not None:
        found[keys.EPC_SUM] = binary_text(epc_sum)
    return found


def differences(present: Mapping[str, str], must: Mapping[str, str]) -> Mapping[str, str | None]:
    """What has to change: values to set, None for keys to take away."""
    changed: dict[str, str | None] = {
        key: None for key in present if (key == keys.OWN_LIMITS or keys.is_upstream_epc(key)) and key not in must
    }
    changed.update({key: value for key, value in must.items() if present.get(key) != value})
    return changed


def required(present: Mapping[str, str], plugin: str, unread: list[str]) -> Mapping[str, str]:
    """NRI's required-plugins annotations with `plugin` added to each of them; `unread` gets what is wrong with a
    list that cannot be read.

    NRI's validator takes the first it finds of `/container.<name>`, `/pod` and the bare key.
    """
    changed: dict[str, str] = {}
    for key, text in present.items():
        if key == keys.REQUIRED_PLUGINS or key.startswith(keys.REQUIRED_PLUGINS + "/"):
            names = _names(text)
            if names is None:
                unread.append(
                    f"metadata.annotations[{printable(key)}] is {text[:64]!r}: it must be a list of NRI plugins, since "
                    f'{plugin!r} is added to it; write for example ["{plugin}"]'
                )
            elif plugin not in names:
                changed[key] = _COMPACT.encode([*names, plugin])
    if keys.REQUIRED_PLUGINS not in present and f"{keys.REQUIRED_PLUGINS}/pod" not in present:
        changed[keys.REQUIRED_PLUGINS] = _COMPACT.encode([plugin])
    return changed


def _rows(table: Table, members: Mapping[str, str]) -> Collection[str]:
    """Every container but ephemeral ones, with every resource that the pod declares; 0 where it does not itself. As
    `_COMPACT` would write it, in a third of the time; every pod with EPC has one."""
    none = ",".join([f'{member}"0"' for member in members.values()])
    return {
        container.name: f"{_quoted(container.name)}:{{{_amounts(amounts, members) if amounts else none}}}"
        for container, amounts in table
        if container.role is not Role.EPHEMERAL
    }.values()


def _amounts(amounts: Amounts, members: Mapping[str, str]) -> str:
    return ",".join([f'{member}"{amounts.get(api, 0)}"' for api, member in members.items()])


def _names(text: str) -> list[str] | None:
    """The names in a YAML list as people write it: `[a, "b"]` or lines `- a`. None if it is anything else."""
    text = text.strip()
    if len(text) > _MAX_REQUIRED:
        return None
    if text in ("", "[]", "null", "~"):
        return []
    if text.startswith("[") and text.endswith("]"):
        items = text[1:-1].split(",")
    else:
        lines = text.splitlines()
        if not all(line.startswith("- ") for line in lines):
            return None
        items = [line[2:] for line in lines]
    names = [item.strip().strip("\"'") for item in items]
    plain = all(name and name.replace("-", "").replace("_", "").replace(".", "").isalnum() for name in names)
    return names if plain else None
