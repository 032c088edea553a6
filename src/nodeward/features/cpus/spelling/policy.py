"""Reads the settings section `policy` in CRI Resource Manager's, nri-plugins' and Nodeward's spelling.

Promises: one canonical section whatever the spelling, so that the environment and flags overrule a file of another
spelling; every fault has the path as it was written. Must not judge what only the machine can tell: whether CPUs exist.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import fields

from nodeward.core import cpuset
from nodeward.core.modes import NO_POLICY
from nodeward.features.cpus.pool_settings import (
    RESERVED,
    BalloonsSettings,
    ClaimsSettings,
    DynamicPoolsSettings,
    PodpoolsSettings,
    StaticPoolsSettings,
    TopologyAwareSettings,
)
from nodeward.features.cpus.settings import STATIC_OPTIONS, Amount, AmountKind, PolicySettings, StaticSettings
from nodeward.features.cpus.spelling import pools
from nodeward.features.cpus.spelling.words import near, shown, switch

log = logging.getLogger(__name__)
SECTION = "policy"
MOST_FAULTS = 100
"""That are told at once."""
MAX_MILLI = 1000 * (cpuset.MAX_CPU + 1)
LATER = ("memtier", "eda")
"""Policies of CRI Resource Manager and nri-plugins that a later version of Nodeward brings."""
_NAMES: Mapping[str, Mapping[str, str]] = {
    "": {
        "Active": "active",
        "AvailableResources": "available",
        "availableResources": "available",
        "available_resources": "available",
        "ReservedResources": "reserved",
        "reservedResources": "reserved",
        "reserved_resources": "reserved",
        "static-pools": "static_pools",
        "dynamic-pools": "dynamic_pools",
        "topology-aware": "topology_aware",
        "podResources": "pod_resources",
    },
    "static": {"RelaxedIsolation": "relaxed_isolation", "relaxedIsolation": "relaxed_isolation", "Options": "options"},
    **{name: pools.spellings(kind) for name, kind in pools.SECTIONS.items()},
}
"""By section, the other spellings of each key."""
_KEYS: Mapping[str, tuple[str, ...]] = {
    section: tuple(one.name for one in fields(kind))
    for section, kind in (("", PolicySettings), ("static", StaticSettings))
}
OF_LISTS = tuple(pools.SECTIONS)
"""Sections with lists in them: where the environment or a flag gives one, it is YAML."""
_CPU = ("cpu", "CPU")
NOT_DIVIDED: Mapping[str, str] = {
    "memory": "a policy divides CPUs only and keeps no memory for the system; kubelet's system-reserved does"
}
"""Resources beside CPU of availableResources and reservedResources, which have no effect, and why."""
_UNUSED = {"static": ("Rdt",)}
"""Keys that CRI Resource Manager takes and does not use either."""
_GRAMMAR = 'write "cpuset:0-3", "750m", or a number of CPUs such as 2'

Tree = dict[str, object]
Spelled = Mapping[str, str]
"""Canonical paths, and how each was written."""


# ---- spelling --------------------------------------------------------------------------------------------------------


def key_of(name: str, section: str = "") -> str:
    """The key of the section `policy`, or of its section `static`, in Nodeward's spelling. Case counts nothing, as in
    Go's JSON, by which CRI Resource Manager and nri-plugins read theirs. One that is not known stays as it is."""
    plain = _plain(name)
    known = next((key for key in _KEYS[section] if _plain(key) == plain), None)
    return known or next((key for other, key in _NAMES[section].items() if _plain(other) == plain), name)


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def canonical(parts: list[str]) -> list[str]:
    """The parts of a dotted path in Nodeward's spelling: `policy.ReservedResources.CPU` is `policy.reserved`."""
    if len(parts) < 2 or parts[0] != SECTION:
        return parts
    key, rest = key_of(parts[1]), parts[2:]
    if key in ("available", "reserved") and len(rest) == 1 and rest[0] in _CPU:
        rest = []
    if key in _NAMES and rest:
        rest = [key_of(rest[0], key) if key in _KEYS else _NAMES[key].get(rest[0], rest[0]), *rest[1:]]
        if rest[0] == "options":
            rest[1:] = [one.replace("_", "-") for one in rest[1:]]  # a variable's name has no dash
    return [SECTION, key, *rest]


def respelled(section: object, faults: list[str]) -> tuple[object, Spelled]:
    """The section with Nodeward's keys, and how they were written. What is no mapping stays what it is."""
    if not isinstance(section, dict):
        return section, {}
    spelled: dict[str, str] = {}
    tree = _renamed(section, "", SECTION, SECTION, spelled, faults)
    for key in ("available", "reserved"):
        inside = tree.get(key)
        if isinstance(inside, dict):
            path = f"{SECTION}.{key}"
            _take_cpu(tree, key, inside, path, spelled, faults)
    for key in ("static", *pools.SECTIONS):
        inside, above = tree.get(key), f"{SECTION}.{key}"
        if isinstance(inside, dict):
            tree[key] = _renamed(inside, key, above, spelled.get(above, above), spelled, faults)
    return tree, spelled


def _renamed(
    section: Mapping[object, object], kind: str, path: str, written: str, spelled: dict[str, str], faults: list[str]
) -> Tree:
    tree: Tree = {}
    for name, value in section.items():
        if name in _UNUSED.get(kind, ()):
            continue
        key = key_of(str(name), kind) if kind in _KEYS else _NAMES[kind].get(str(name), str(name))
        here = f"{written}.{name}"
        if key in tree:
            faults.append(f"{here}: is the setting {spelled[f'{path}.{key}']} again; keep one of them")
            continue
        tree[key], spelled[f"{path}.{key}"] = value, here
    return tree


def _take_cpu(
    tree: Tree, key: str, inside: Mapping[object, object], path: str, spelled: dict[str, str], faults: list[str]
) -> None:
    """`{CPU: 1}` as the amount itself."""
    del tree[key]
    names = [name for name in inside if name in _CPU]
    for name in list(inside)[:MOST_FAULTS]:
        if str(name).lower() in NOT_DIVIDED:
            log.warning("settings=not-enforced key=%s.%s why=%r", spelled[path], name, NOT_DIVIDED[str(name).lower()])
        elif name not in names[:1]:
            why = "unknown key; the only resource that a policy divides is CPU, once; leave this one out"
            faults.append(f"{spelled[path]}.{name}: {why}")
    if names:
        tree[key], spelled[path] = inside[names[0]], f"{spelled[path]}.{names[0]}"


def schema() -> Tree:
    """The parts of the JSON Schema that the section's types cannot express: every spelling of each key."""
    cpus = {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}]}
    beside: Tree = {spelling: {} for name in NOT_DIVIDED for spelling in (name, name.capitalize())}
    within = {"type": "object", "properties": {**dict.fromkeys(_CPU, cpus), **beside}, "additionalProperties": False}
    amounts = {"anyOf": [*cpus["anyOf"], within]}
    on_off = {"enum": [True, False, "true", "false"]}
    options = {"type": "object", "properties": dict.fromkeys(STATIC_OPTIONS, on_off), "additionalProperties": False}
    kinds: Mapping[str, object] = {
        "active": {"type": ["string", "null"]},
        "available": amounts,
        "reserved": amounts,
        "static": {"$ref": "#/$defs/StaticSettings"},
        **{name: {"$ref": f"#/$defs/{kind.__name__}"} for name, kind in pools.SECTIONS.items()},
        **dict.fromkeys(("relaxed_isolation", "pod_resources"), on_off),
        "options": options,
        "Rdt": {},
    }
    return {
        "PolicySettings": _section("PolicySettings", PolicySettings, "", kinds),
        "StaticSettings": _section("StaticSettings", StaticSettings, "static", kinds),
        "Amount": amounts,
        **pools.schema(),
    }


def _section(title: str, made: type, kind: str, kinds: Mapping[str, object]) -> Tree:
    names = {key: key for key in (*_KEYS[kind], *_UNUSED.get(kind, ()))} | dict(_NAMES[kind])
    properties = {name: kinds[key] for name, key in names.items()}
    told = {"title": title, "description": made.__doc__, "type": "object"}
    return {**told, "properties": properties, "additionalProperties": False}


# ---- values ----------------------------------------------------------------------------------------------------------


def read(section: object, spelled: Spelled, faults: list[str]) -> PolicySettings:
    """The section's settings; the default stands in for what has a fault."""
    if not isinstance(section, dict):
        faults.append(f"{SECTION}: is {section!r}, must be a section of settings")
        return PolicySettings()
    default, found = PolicySettings(), list[str]()
    for name in list(section)[:MOST_FAULTS]:
        if name not in _KEYS[""]:
            found.append(f"{SECTION}.{name}: {_unknown(str(name))}")
    active = _policy(section.get("active", default.active), found)
    available, reserved = (_amount(section.get(key), f"{SECTION}.{key}", found) for key in ("available", "reserved"))
    if available.kind is AmountKind.QUANTITY:
        found.append(
            f"{SECTION}.available: {str(available)!r} is a number of CPUs, and not which ones; write "
            '"cpuset:0-7" or "exclude-cpuset:0"'
        )
    static = _static(section.get("static", {}), found)
    balloons = pools.read(BalloonsSettings, section.get("balloons"), f"{SECTION}.balloons", found)
    podpools = pools.read(PodpoolsSettings, section.get("podpools"), f"{SECTION}.podpools", found)
    lists = pools.read(StaticPoolsSettings, section.get("static_pools"), f"{SECTION}.static_pools", found)
    divided = pools.read(DynamicPoolsSettings, section.get("dynamic_pools"), f"{SECTION}.dynamic_pools", found)
    tree = pools.read(TopologyAwareSettings, section.get("topology_aware"), f"{SECTION}.topology_aware", found)
    by_claim = pools.read(ClaimsSettings, section.get("claims"), f"{SECTION}.claims", found)
    asks_kubelet = switch(section.get("pod_resources", False), f"{SECTION}.pod_resources", found)
    found += _of_reserved(reserved, balloons)
    if reserved.kind is AmountKind.NONE and not found and active != "none":
        found += _lacking(active)
    faults += [_as_written(fault, spelled) for fault in found[:MOST_FAULTS]]
    if len(found) > MOST_FAULTS:
        faults.append(f"{SECTION}: and {len(found) - MOST_FAULTS} faults more")
    return PolicySettings(
        active, available, reserved, static, balloons, podpools, lists, divided, tree, by_claim, asks_kubelet
    )


def _as_written(fault: str, spelled: Spelled) -> str:
    path, _, what = fault.partition(": ")
    known = max((one for one in spelled if path == one or path.startswith((f"{one}.", f"{one}["))), key=len, default="")
    return f"{spelled.get(known, known)}{path[len(known) :]}: {what}"


def _unknown(name: str) -> str:
    from nodeward.features.cpus.policies.table import ALIASES, POLICIES  # only where there is a fault

    if ALIASES.get(name, name) in POLICIES:
        return f"unknown key; the policy {name} has no settings: leave it out"
    if name in LATER:
        return f"the policy {name} comes with a later version of Nodeward, and so do its settings: leave them out"
    meant = near(name, _KEYS[""], _NAMES[""])
    return f"unknown key; {f'did you mean {meant}?' if meant else 'known keys are ' + ', '.join(_KEYS[''])}"


def _policy(value: object, faults: list[str]) -> str:
    """The policy's name, without aliases."""
    if value is None or value in NO_POLICY:  # YAML reads a bare null as None
        return "none"
    from nodeward.features.cpus.policies.table import ALIASES, POLICIES

    name = str(ALIASES.get(value, value)) if isinstance(value, str) else ""  # a flag's text is of a class of its own
    if name in POLICIES:
        return name
    where, told = f"{SECTION}.active", shown(value)
    if name in LATER:
        fault = f"the policy {told} comes with a later version of Nodeward; choose one of {', '.join(POLICIES)}"
    else:
        meant = near(value, tuple(POLICIES), tuple(ALIASES), LATER) if isinstance(value, str) else ""
        hint = f"did you mean {meant}? " if meant else ""
        fault = f"{told} is no policy; {hint}policies are {', '.join(POLICIES)}: see nodeward cpus policies list"
    faults.append(f"{where}: {fault}")
    return "none"


def _lacking(active: str) -> Iterator[str]:
    from nodeward.features.cpus.policies.table import POLICIES

    if f"{SECTION}.reserved" in POLICIES[active].needs:
        yield (
            f"{SECTION}.reserved: is not set, and the policy {active} needs it: keep CPUs for the system, as "
            '"cpuset:0" or a number such as 1'
        )


def _of_reserved(reserved: Amount, rules: BalloonsSettings) -> Iterator[str]:
    """Where the balloon of the reserved CPUs has a size of its own, it is that of the number that is reserved."""
    for i, one in enumerate(rules.balloon_types):
        count = -(-reserved.milli // 1000)
        if one.name == RESERVED and one.min_cpus and reserved.kind is AmountKind.QUANTITY and one.min_cpus != count:
            yield (
                f"{SECTION}.balloons.balloon_types[{i}].minCPUs: {one.min_cpus} is not {count}, as many as are "
                f"reserved ({reserved}); leave one of them out"
            )


def _static(section: object, faults: list[str]) -> StaticSettings:
    where = f"{SECTION}.static"
    if section is None:
        return StaticSettings()
    if not isinstance(section, dict):
        faults.append(f"{where}: is {shown(section)}, must be a section of settings")
        return StaticSettings()
    for name in list(section)[:MOST_FAULTS]:
        if name not in _KEYS["static"]:
            meant = near(str(name), _KEYS["static"], _NAMES["static"])
            known = ", ".join(_KEYS["static"])
            faults.append(
                f"{where}.{name}: unknown key; {f'did you mean {meant}?' if meant else 'known keys are ' + known}"
            )
    relaxed = switch(section.get("relaxed_isolation", False), f"{where}.relaxed_isolation", faults)
    return StaticSettings(relaxed, dict(_options(section.get("options"), f"{where}.options", faults)))


def _options(section: object, where: str, faults: list[str]) -> Iterator[tuple[str, bool]]:
    if section is None:
        return
    if not isinstance(section, dict):
        faults.append(f"{where}: is {shown(section)}, must be a section such as {{full-pcpus-only: true}}")
        return
    for name, value in list(section.items())[:MOST_FAULTS]:
        if name in STATIC_OPTIONS:
            yield str(name), switch(value, f"{where}.{name}", faults)
            continue
        meant = near(str(name), tuple(STATIC_OPTIONS))
        hint = f"did you mean {meant}?" if meant else f"options are {', '.join(STATIC_OPTIONS)}"
        faults.append(f"{where}.{name}: is no option of kubelet's CPU manager; {hint}")


# ---- amounts ---------------------------------------------------------------------------------------------------------


def _amount(value: object, where: str, faults: list[str]) -> Amount:
    if value is None or value == "":
        return Amount()
    try:
        return amount(value)
    except ValueError as error:
        faults.append(f"{where}: {shown(value)} is no amount of CPUs: {error}")
        return Amount()


def amount(value: object) -> Amount:
    """An amount as it is written: `cpuset:LIST`, `exclude-cpuset:LIST`, `#LIST`, a list with `-` or `,`, `750m`, or a
    number of CPUs. ValueError says why it is none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _quantity(shown(value))
    if not isinstance(value, str):
        raise ValueError(_GRAMMAR)
    text = value.strip()
    for prefix, kind in (
        ("cpuset:", AmountKind.CPUSET),
        ("exclude-cpuset:", AmountKind.EXCLUDE),
        ("#", AmountKind.CPUSET),
    ):
        if text.startswith(prefix):
            return _cpus(text.removeprefix(prefix), kind)
    if text.startswith(("cgroup:", "/")):
        raise ValueError(
            "CPUs are not taken from a cgroup, whose set anybody may change later; write them out, as "
            '"cpuset:0-3" (its cpuset.cpus.effective has them)'
        )
    if ("-" in text[1:] or "," in text) and text[:1] != "-":
        return _cpus(text, AmountKind.CPUSET)
    return _quantity(text)


def _cpus(text: str, kind: AmountKind) -> Amount:
    cpus = cpuset.parse(text)
    if not cpus:
        raise ValueError("it names no CPU; " + _GRAMMAR)
    return Amount(kind, cpus)


def _quantity(text: str) -> Amount:
    number, milli = text.removesuffix("m"), text.endswith("m")
    whole, dot, part = number.partition(".")
    digits = (whole + part).isascii() and (whole + part).isdigit()
    if not digits or len(number) > 16 or (dot and (milli or not whole or not part)):
        raise ValueError(_GRAMMAR)
    found = int(whole) if milli else int(whole) * 1000 + -(-int(part or "0") * 1000 // 10 ** len(part))
    if not 0 < found <= MAX_MILLI:
        raise ValueError(f"it is not between 1m and {MAX_MILLI // 1000} CPUs")
    return Amount(AmountKind.QUANTITY, milli=found)
