"""Reads the sections of policies with pools in every spelling: `MinCPUs`, `minCPUs`, `min_cpus`.

Promises: every fault is collected with its path; each option of nri-plugins and CRI Resource Manager is read, or
refused by name with the reason, or taken and said in the log not to be enforced. Sizes are bounded, so that no file
costs more than it has bytes. Must not judge what only the machine can tell.
"""

import dataclasses
import logging
import re
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import TypeVar

from nodeward.core.cpuset import MAX_CPU
from nodeward.features.cpus.pool_settings import (
    BalloonsSettings,
    BalloonType,
    ClaimsSettings,
    ClassOf,
    DynamicPoolsSettings,
    DynamicPoolType,
    PodpoolsSettings,
    Priority,
    StaticPool,
    StaticPoolsSettings,
    TopologyAwareSettings,
)
from nodeward.features.cpus.spelling import pool_rules
from nodeward.features.cpus.spelling.words import MAX_ITEMS, MAX_TEXT, camel, near, plain, shown, switch

T = TypeVar("T")
log = logging.getLogger(__name__)
SECTIONS: Mapping[str, type] = {
    "balloons": BalloonsSettings,
    "podpools": PodpoolsSettings,
    "static_pools": StaticPoolsSettings,
    "dynamic_pools": DynamicPoolsSettings,
    "topology_aware": TopologyAwareSettings,
    "claims": ClaimsSettings,
}
_CLASSES = "frequencies and idle states of CPUs are not set by Nodeward yet"
_IRQS = "interrupts are not moved by Nodeward"
_LOADS = "load classes do not keep balloons apart yet"
_ELSEWHERE = "pools are not read from other files; write them here, below pools"
_HINTS = "hints are those of devices, and cannot be made up"
_ZONES = "containers are no zones of the NodeResourceTopology object (topology_objects.enabled)"
NOT_ENFORCED: Mapping[type, Mapping[str, str]] = {
    BalloonsSettings: {
        "idleCPUClass": _CLASSES,
        "cpuClasses": _CLASSES,
        "turboDomain": _CLASSES,
        "loadClasses": _LOADS,
        "controllableInterrupts": _IRQS,
        "showContainersInNrt": _ZONES,
    },
    BalloonType: {
        "cpuClass": _CLASSES,
        "loads": _LOADS,
        "irqClaim": _IRQS,
        "irqMode": _IRQS,
        "showContainersInNrt": _ZONES,
    },
    DynamicPoolType: {"cpuClass": _CLASSES},
    TopologyAwareSettings: {
        "cpuClasses": _CLASSES,
        "turboDomain": _CLASSES,
        "sharedPoolCPUClass": _CLASSES,
        "reservedPoolCPUClass": _CLASSES,
        "defaultExclusiveCPUClass": _CLASSES,
        "controllableInterrupts": _IRQS,
        "fakeHints": _HINTS,
    },
}
"""Keys that are taken and have no effect, and why."""
REFUSED: Mapping[type, Mapping[str, str]] = {
    BalloonsSettings: {
        "availableResources": "stands beside the section, as policy.availableResources",
        "reservedResources": "stands beside the section, as policy.reservedResources",
    },
    TopologyAwareSettings: {
        "availableResources": "stands beside the section, as policy.availableResources",
        "reservedResources": "stands beside the section, as policy.reservedResources",
    },
    StaticPoolsSettings: {"confFilePath": _ELSEWHERE, "confDirPath": _ELSEWHERE, "confFileDir": _ELSEWHERE},
}
"""Keys without which a node would run otherwise than its operator believes, and why they are refused."""
_WRAPPED = {"preserve": "matchExpressions", "components": "balloonType"}
"""Keys whose values stand in a section of one key of their own."""
_LIMITS: Mapping[str, tuple[int, int]] = {
    "priority": (0, 99),
    "nice": (-20, 19),
    "io_priority": (0, 7),
    **dict.fromkeys(("runtime", "deadline", "period"), (0, 2**63 - 1)),
}
"""Of numbers of a scheduling class; all others count CPUs, or what there is one of a CPU."""


# ---- spelling --------------------------------------------------------------------------------------------------------


def spellings(kind: type) -> dict[str, str]:
    """Every usual spelling of each field, and the field's name."""
    found = dict[str, str]()
    for one in dataclasses.fields(kind):
        usual = camel(one.name)
        pascal = "CPU" + usual[3:] if usual.startswith("cpu") else usual[0].upper() + usual[1:]
        found |= dict.fromkeys((one.name, usual, pascal), one.name)
    return found


def kinds(kind: type) -> Iterator[type]:
    """The class of a section, and the classes inside it."""
    yield kind
    for hint in typing.get_type_hints(kind).values():
        for part in typing.get_args(hint):
            if dataclasses.is_dataclass(part) and isinstance(part, type):
                yield from kinds(part)


def schema() -> dict[str, object]:
    """The parts of the JSON Schema that the classes cannot express: every spelling of each key."""
    return {one.__name__: _schema_of(one) for section in SECTIONS.values() for one in kinds(section)}


def _schema_of(kind: type) -> dict[str, object]:
    hints = typing.get_type_hints(kind)
    properties: dict[str, object] = {
        spelling: _wrapped_schema(name, hints[name]) for spelling, name in spellings(kind).items()
    }
    for name in NOT_ENFORCED.get(kind, {}):
        properties |= {name: {}, name[0].upper() + name[1:]: {}}
    told = {"title": kind.__name__, "description": kind.__doc__, "type": "object"}
    return {**told, "properties": properties, "additionalProperties": False}


def _wrapped_schema(name: str, hint: object) -> object:
    own = _hint_schema(hint)
    if name not in _WRAPPED:
        return own
    inner = {"type": "object", "properties": {_WRAPPED[name]: {}}}
    if name == "components":
        return {"type": "array", "items": {"anyOf": [{"type": "string"}, inner]}}
    return {"anyOf": [own, inner]}


def _hint_schema(hint: object) -> object:
    if hint is bool or bool in typing.get_args(hint):
        return {"enum": [True, False, "true", "false", None]}
    if hint is int:
        return {"type": ["integer", "string"]}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"type": ["string", "integer"]}
    if typing.get_origin(hint) is tuple:
        (item, _) = typing.get_args(hint)
        if item in (StaticPool, ClassOf):
            return {"type": ["array", "object", "null"]}
        items = {"type": "string"} if item is str or issubclass(item, Enum) else {"$ref": f"#/$defs/{item.__name__}"}
        return {"type": ["array", "null"], "items": items}
    return {"type": ["string", "number"]}


# ---- values ----------------------------------------------------------------------------------------------------------


def read(kind: type[T], section: object, where: str, faults: list[str]) -> T:
    """A policy's section, one of SECTIONS; the default stands in for what has a fault."""
    before = len(faults)
    found = _section(kind, section, where, faults)
    if len(faults) == before:
        faults += pool_rules.wrong(found, section, where)
    return found if len(faults) == before else kind()


def _section(kind: type[T], section: object, where: str, faults: list[str]) -> T:
    if section is None:
        return kind()
    if not isinstance(section, dict):
        faults.append(f"{where}: is {shown(section)}, must be a section of settings")
        return kind()
    if len(section) > MAX_ITEMS:
        faults.append(f"{where}: has {len(section)} keys; a section has at most {MAX_ITEMS}")
        return kind()
    names = [one.name for one in dataclasses.fields(typing.cast(type, kind))]
    fields, hints = {plain(name): name for name in names}, typing.get_type_hints(kind)
    idle = {plain(key): why for key, why in NOT_ENFORCED.get(kind, {}).items()}
    barred = {plain(key): why for key, why in REFUSED.get(kind, {}).items()}
    found, seen = dict[str, object](), dict[str, object]()
    for name, value in section.items():
        here, word = f"{where}.{str(name)[:MAX_TEXT]}", plain(name)
        if word in seen:
            faults.append(f"{here}: is the setting {seen[word]} again; keep one of them")
        elif word in fields:
            found[fields[word]] = _value(fields[word], hints[fields[word]], value, here, faults)
        elif word in barred:
            faults += [f"{here}: {barred[word]}"] if value else []
        elif word in idle:
            log.warning("settings=not-enforced key=%s why=%r", here, idle[word])
        else:
            usual = [one for one in spellings(kind) if "_" in str(name) or "_" not in one]
            meant = near(str(name), usual, NOT_ENFORCED.get(kind, {}))
            every = ", ".join(map(camel, names))
            faults.append(f"{here}: unknown key; {f'did you mean {meant}?' if meant else f'known keys are {every}'}")
        seen[word] = name
    return kind(**found)


def _value(name: str, hint: object, value: object, where: str, faults: list[str]) -> object:
    if hint is bool:
        return switch(value, where, faults)
    if bool in typing.get_args(hint):
        return None if value is None else switch(value, where, faults)
    if hint is int:
        return _number(value, where, faults, *_LIMITS.get(name, (-1, MAX_CPU + 1)))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _word(hint, value, where, faults)
    if typing.get_origin(hint) is tuple:
        return _items(name, typing.get_args(hint)[0], value, where, faults)
    return _text(value, where, faults)


def _number(value: object, where: str, faults: list[str], least: int, most: int) -> int:
    digits = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if re.fullmatch(r"-?[0-9]{1,19}", digits, re.ASCII) and least <= int(digits) <= most:
        return int(digits)
    faults.append(f"{where}: {shown(value)} is no whole number from {least} to {most}")
    return 0


def _text(value: object, where: str, faults: list[str]) -> str:
    if isinstance(value, str | int) and not isinstance(value, bool) and len(str(value)[: MAX_TEXT + 1]) <= MAX_TEXT:
        return str(value)
    faults.append(f"{where}: {shown(value)} is no text of at most {MAX_TEXT} characters")
    return ""


def _word(kind: type[Enum], value: object, where: str, faults: list[str]) -> Enum:
    """One of the words, in any case; CRI Resource Manager has numbers for priorities."""
    words = {str(one.value).lower(): one for one in kind}
    if kind is Priority:
        words |= {str(i): one for i, one in enumerate(Priority)}
    if value is None or value == "":
        return words.get("", next(iter(kind)))
    found = words.get(str(value).lower()) if isinstance(value, str | int) and not isinstance(value, bool) else None
    if found is None:
        every = ", ".join(str(one.value) for one in kind if one.value)
        faults.append(f"{where}: {shown(value)} is not allowed; one of {every}")
    return found or next(iter(kind))


def _items(name: str, item: type, value: object, where: str, faults: list[str]) -> tuple[object, ...]:
    if name == "preserve" and isinstance(value, dict):
        value, where = _unwrapped(value, _WRAPPED[name], where, faults), f"{where}.{_WRAPPED[name]}"
    if value is None:
        return ()
    if item is StaticPool and isinstance(value, dict):
        value = [one | {"name": key} if isinstance(one, dict) else {"name": key} for key, one in value.items()]
    if item is ClassOf and isinstance(value, dict):
        pairs = list(value.items())[:MAX_ITEMS]
        return tuple(ClassOf(_text(key, where, faults), _text(one, f"{where}.{key}", faults)) for key, one in pairs)
    if not isinstance(value, list | tuple) or len(value) > MAX_ITEMS:
        faults.append(f"{where}: is {shown(value)}, must be a list of at most {MAX_ITEMS} items")
        return ()
    found = list[object]()
    for i, one in enumerate(value):
        here = f"{where}[{i}]"
        if name == "components" and isinstance(one, dict):
            one = _unwrapped(one, _WRAPPED[name], here, faults)
        if issubclass(item, Enum):
            found.append(_word(item, one, here, faults))
        else:
            found.append(_text(one, here, faults) if item is str else _section(item, one, here, faults))
    return tuple(found)


def _unwrapped(value: Mapping[object, object], key: str, where: str, faults: list[str]) -> object:
    """What stands under the one key."""
    inside = None
    for name, one in value.items():
        if plain(name) == plain(key):
            inside = one
        else:
            faults.append(f"{where}.{str(name)[:MAX_TEXT]}: unknown key; the only one is {key}")
    return inside
