"""Scenarios: small readable files that say what happens on the simulated node."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import get_type_hints

import msgspec

from nodeward.app.settings import SettingsError, read_yaml

SHIPPED = Path(__file__).parent / "scenarios"
ACTIONS = ("kill-daemon", "restart-runtime", "drift", "lose-api", "restore-api")
_ALLOWED = {
    "title": "text",
    "about": "text",
    "capacity": "amounts in bytes by misc resource, such as {sgx_epc: 536870912}",
    "pods": "a whole number",
    "life_s": "two numbers of seconds, such as [4, 12]",
    "greedy": "a share between 0 and 1",
    "do": f"one of {', '.join(ACTIONS)}",
}
_NEVER_ZERO = ("pods", "charge_every_s", "grace_s")


@dataclass(frozen=True, slots=True)
class Happening:
    """At `at_s` seconds, `do` this (one of ACTIONS); repeated every `every_s` seconds where that is not 0."""

    at_s: float
    do: str
    every_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario. Amounts in bytes, times in seconds."""

    title: str
    about: str = ""
    capacity: dict[str, int] = field(default_factory=lambda: {"sgx_epc": 512 * 1024 * 1024})
    pods: int = 6
    """How many pods are kept running."""
    life_s: tuple[float, float] = (4.0, 12.0)
    charge_every_s: float = 0.05
    greedy: float = 0.1
    """The share of charges that ask for more than the container may have."""
    late_spec_s: float = 0.0
    """How long after its containers a pod appears in the API server; 0 for before them."""
    grace_s: float = 6.0
    """Within this time after a pod's start, or after a disturbance, its limits must be in the kernel."""
    events: tuple[Happening, ...] = ()


_REQUIRED: dict[type, tuple[str, ...]] = {Scenario: ("title",), Happening: ("at_s", "do")}


def names() -> list[str]:
    """The scenarios that ship."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def load(name: str) -> Scenario:
    """A shipped scenario by its name, or any by its path. SettingsError says what is wrong."""
    path = SHIPPED / f"{name}.yaml" if name in names() else Path(name)
    if not path.exists():
        raise SettingsError([f"{name}: no such scenario; shipped are {', '.join(names())}, or give a file's path"])
    tree = read_yaml(str(path))
    faults = _faults(tree)
    if faults:
        raise SettingsError([f"{path}: {fault}" for fault in faults])
    return msgspec.convert(tree, type=Scenario, strict=False)


def _faults(tree: dict[str, object]) -> list[str]:
    """Everything that is wrong with a scenario, each with its key, its value and what is allowed."""
    faults = _wrong(Scenario, {key: value for key, value in tree.items() if key != "events"}, "")
    events = tree.get("events", [])
    if not isinstance(events, list):
        return [*faults, f"events: {events!r} must be a list such as [{{at_s: 5, do: {ACTIONS[0]}}}]"]
    for place, event in enumerate(events):
        where = f"events[{place}]"
        if not isinstance(event, dict):
            faults.append(f"{where}: {event!r} must have keys, such as {{at_s: 5, do: {ACTIONS[0]}}}")
            continue
        faults += _wrong(Happening, event, f"{where}.")
        if isinstance(event.get("do"), str) and event["do"] not in ACTIONS:
            faults.append(f"{where}.do: {event['do']!r} is not one of {', '.join(ACTIONS)}")
    return faults


def _wrong(kind: type[Scenario] | type[Happening], tree: dict[str, object], above: str) -> list[str]:
    hints = get_type_hints(kind)
    faults = [f"{above}{key}: unknown key; known are {', '.join(hints)}" for key in tree if key not in hints]
    faults += [f"{above}{key}: is missing" for key in _REQUIRED[kind] if key not in tree]
    for key, value in tree.items():
        if key not in hints:
            continue
        try:
            msgspec.convert(value, type=hints[key], strict=False)
        except msgspec.ValidationError:
            faults.append(f"{above}{key}: {value!r} must be {_ALLOWED.get(key, 'a number of seconds, such as 1.5')}")
            continue
        if isinstance(value, int | float) and (value < 0 or (value == 0 and key in _NEVER_ZERO)):
            faults.append(f"{above}{key}: {value!r} is too small")
    return faults
