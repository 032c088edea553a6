"""Scenarios: small readable files that say what happens on the simulated node."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import get_type_hints

import msgspec

from nodeward.settings.load import SettingsError, read_yaml
from nodeward_sim.doubles.kernel import RESOURCES

SHIPPED = Path(__file__).parent / "scenarios"
OF_OFFERED = ("restart-kubelet", "lose-quotes", "restore-quotes")
"""What only happens where keys are offered."""
OF_RELAY = ("kill-relay",)
OF_NFD = ("install-nfd", "remove-nfd")
OF_PINNED = ("resize", "change-policy", "kill-between")
OF_KATAS = ("move-vmm", "return-vmm")
ACTIONS = (
    *("kill-daemon", "restart-runtime", "drift", "lose-api", "restore-api"),
    *("start-vm", "end-vm", "leave-orphan", *OF_OFFERED, *OF_RELAY, *OF_NFD, *OF_PINNED, *OF_KATAS),
)
YEAR_S = 365 * 86400
ALLOWED = {
    "title": "text of 1 to 60 characters",
    "about": "text of at most 200 characters",
    "capacity": f"amounts from 0 to 2^63-1 by misc resource ({', '.join(RESOURCES)}), such as {{sgx_epc: 536870912}}",
    "pods": "a whole number from 1 to 200",
    "vms": "a whole number from 0 to 200",
    "offer": "true or false",
    "nfd": "true or false",
    "relay": "true or false",
    "sandboxes": "a whole number from 0 to 200",
    "pinned": "a whole number from 0 to 200",
    "katas": "a whole number from 0 to 200",
    "gate": "true or false",
    "guests": "a whole number from 0 to 200",
    "oversized": "a share from 0 to 1",
    "life_s": "two numbers of seconds from 0.1 to 86400, the smaller first, such as [4, 12]",
    "charge_every_s": "a number of seconds from 0.001 to 3600",
    "greedy": "a share from 0 to 1",
    "late_spec_s": "a number of seconds from 0 to 3600",
    "grace_s": "a number of seconds from 0.1 to 3600",
    "events": f"a list such as [{{at_s: 5, do: {ACTIONS[0]}}}]",
    "at_s": f"a number of seconds from 0 to {YEAR_S}",
    "do": f"one of {', '.join(ACTIONS)}",
    "every_s": f"0 for once, or a number of seconds from 0.1 to {YEAR_S}",
}
"""What each key may hold; docs/scenarios.md has these words too."""


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
    vms: int = 0
    """How many pods with a confidential VM are kept running besides; with any, the daemon counts TEE keys."""
    offer: bool = False
    """Whether the daemon offers TDX keys to a kubelet double, which pods with a VM of KubeVirt's kind go through."""
    nfd: bool = False
    """Whether Node Feature Discovery is there at first, and keys are shared with Kata by `share: auto`."""
    relay: bool = False
    """Whether containers are made through the relay, by a runtime without NRI."""
    sandboxes: int = 0
    """How many pods are kept running besides whose sandbox takes enclave memory beside the containers."""
    pinned: int = 0
    """How many pods that ask for CPUs are kept running besides; with any, the policy `static` is in force."""
    katas: int = 0
    """How many pods in a VM of Kata are kept running besides; with any, the daemon observes VM sandboxes."""
    gate: bool = False
    """Whether these wait at a gate for a verdict."""
    guests: int = 0
    """How many pods are kept running besides whose runtime asks the Pod API and pulls in the guest."""
    oversized: float = 0.0
    """The share of these whose VM is larger than their pod's limit."""
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
    if not faults:
        found = msgspec.convert(tree, type=Scenario, strict=False)
        faults = [*_unoffered(found), *_unfit(found)]
    if faults:
        raise SettingsError([f"{path}: {fault}" for fault in faults])
    return found


def _unoffered(found: Scenario) -> list[str]:
    """What does not fit together of offering keys."""
    if not found.offer:
        doing = (event.do for event in found.events if event.do in OF_OFFERED)
        return [f"events: {do} happens only with `offer: true`" for do in dict.fromkeys(doing)]
    lacking = [] if found.vms else ["vms: with `offer: true` there must be some"]
    return lacking if found.capacity.get("tdx") else [*lacking, "capacity: with `offer: true` it must have some tdx"]


def _unfit(found: Scenario) -> list[str]:
    """Events that cannot happen on this node, and NFD where no key is shared."""
    faults = [] if found.offer or not found.nfd else ["nfd: it needs `offer: true`"]
    flags = ((OF_RELAY, found.relay, "`relay: true`"), (OF_NFD, found.nfd, "`nfd: true`"))
    numbers = ((OF_PINNED, found.pinned, "some `pinned`"), (OF_KATAS, found.katas, "some `katas`"))
    for actions, there, with_ in (*flags, *numbers):
        doing = dict.fromkeys(event.do for event in found.events if event.do in actions and not there)
        faults += [f"events: {do} happens only with {with_}" for do in doing]
    if found.pinned and found.relay:
        faults.append("pinned: with `relay: true` there can be none, since only NRI carries the policy here")
    if found.gate and not found.katas:
        faults.append("gate: it needs some `katas`")
    if found.katas and found.relay:
        faults.append("katas: with `relay: true` there can be none, since only NRI tells the runtime handler here")
    if found.guests and not found.relay:
        faults.append("guests: they need `relay: true`, since only the relay sees pulls")
    return faults


def _faults(tree: dict[str, object]) -> list[str]:
    """Everything that is wrong with a scenario, each with its path, its value and what is allowed."""
    faults = _wrong(Scenario, {key: value for key, value in tree.items() if key != "events"}, "")
    events = tree.get("events", [])
    if not isinstance(events, list):
        return [*faults, f"events: {events!r} must be {ALLOWED['events']}"]
    for place, event in enumerate(events):
        if isinstance(event, dict):
            faults += _wrong(Happening, event, f"events[{place}].")
        else:
            faults.append(f"events[{place}]: {event!r} must have keys, such as {{at_s: 5, do: {ACTIONS[0]}}}")
    return faults


def _wrong(kind: type[Scenario] | type[Happening], tree: dict[str, object], above: str) -> list[str]:
    hints = get_type_hints(kind)
    faults = [f"{above}{key}: unknown key; known are {', '.join(hints)}" for key in tree if key not in hints]
    faults += [f"{above}{key}: is missing; it must be {ALLOWED[key]}" for key in _REQUIRED[kind] if key not in tree]
    for key, value in tree.items():
        if key not in hints:
            continue
        try:
            right = _is_allowed(key, msgspec.convert(value, type=hints[key], strict=False))
        except msgspec.ValidationError:
            right = False
        if not right:
            faults.append(f"{above}{key}: {value!r} must be {ALLOWED[key]}")
    return faults


def _is_allowed(key: str, value: object) -> bool:
    """Whether a value of the right type is also in its range. Not a number is in none."""
    match key, value:
        case "title" | "about", str(text):
            return (key == "about" or bool(text.strip())) and len(text) <= _MOST_CHARACTERS[key]
        case "do", str(action):
            return action in ACTIONS
        case "offer" | "relay" | "nfd" | "gate", bool():
            return True
        case "capacity", dict(amounts):
            return all(name in RESOURCES and 0 <= amount < 2**63 for name, amount in amounts.items())
        case "life_s", (float(least), float(most)):
            return 0.1 <= least <= most <= 86400
        case "every_s", 0:
            return True
        case _, int(number) | float(number):
            least, most = _RANGES[key]
            return least <= number <= most
    return False


_MOST_CHARACTERS = {"title": 60, "about": 200}
_RANGES: dict[str, tuple[float, float]] = {
    "pods": (1, 200),
    "vms": (0, 200),
    "sandboxes": (0, 200),
    "pinned": (0, 200),
    "katas": (0, 200),
    "guests": (0, 200),
    "oversized": (0, 1),
    "charge_every_s": (0.001, 3600),
    "greedy": (0, 1),
    "late_spec_s": (0, 3600),
    "grace_s": (0.1, 3600),
    "at_s": (0, YEAR_S),
    "every_s": (0.1, YEAR_S),
}
