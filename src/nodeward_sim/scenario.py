"""Scenarios: small readable files that say what happens on the simulated node."""

from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import get_type_hints

import msgspec

from nodeward.core.setting import Meaning, meanings, setting, table
from nodeward.settings.load import SettingsError, read_yaml
from nodeward_sim.doubles.kernel import RESOURCES

SHIPPED = Path(__file__).parent / "scenarios"
OF_OFFERED = ("lose-quotes", "restore-quotes")
"""What only happens where keys are offered."""
OF_CLAIMS = ("delete-slice", "force-delete")
OF_MOVE = ("move-to-dra", "move-to-plugin")
OF_RELAY = ("kill-relay",)
OF_NFD = ("install-nfd", "remove-nfd")
OF_PINNED = ("resize", "change-policy", "kill-between")
OF_KATAS = ("move-vmm", "return-vmm")
ACTIONS = (
    *("kill-daemon", "restart-runtime", "drift", "lose-api", "restore-api"),
    *("start-vm", "end-vm", "leave-orphan", "restart-kubelet", *OF_OFFERED, *OF_CLAIMS, *OF_MOVE),
    *(*OF_RELAY, *OF_NFD, *OF_PINNED, *OF_KATAS),
)
YEAR_S = 365 * 86400


@dataclass(frozen=True, slots=True)
class Happening:
    """At `at_s` seconds, `do` this (one of ACTIONS); repeated every `every_s` seconds where that is not 0."""

    at_s: float = setting(MISSING, "When, counted from the daemon's readiness.", 0, YEAR_S, "seconds")
    do: str = setting(MISSING, "One of ACTIONS.")
    every_s: float = setting(0.0, "How often it happens again; 0 for once.", 0.1, YEAR_S, "seconds")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario. Amounts in bytes, times in seconds."""

    title: str = setting(MISSING, "Its name in the live view and the summary.", 1, 60)
    about: str = setting("", "What it shows; `--list` prints it.", 0, 200)
    capacity: dict[str, int] = table(
        lambda: {"sgx_epc": 512 * 1024 * 1024}, "What the misc controller has; nothing: a kernel without it."
    )
    pods: int = setting(6, "How many pods are kept running.", 1, 200)
    vms: int = setting(0, "Also pods with a confidential VM; with any, the daemon counts TEE keys.", 0, 200)
    offer: bool = setting(False, "The daemon offers TDX keys to a kubelet double, for pods with a VM of KubeVirt's.")
    claims: int = setting(
        0, "Also pods with a VM whose TDX key is a claim's, which kubelet's double has prepared.", 0, 200
    )
    claim_share: str = setting("all", "How many keys go by claim: `all`, `none` or a number.", 1, 10)
    nfd: bool = setting(False, "Node Feature Discovery is there at first; keys are shared by `share: auto`.")
    relay: bool = setting(False, "Containers are made through the relay, by a runtime without NRI.")
    sandboxes: int = setting(0, "Also pods whose sandbox takes enclave memory beside the containers.", 0, 200)
    pinned: int = setting(0, "Also pods that ask for CPUs; with any, the policy `static` is in force.", 0, 200)
    katas: int = setting(0, "Also pods in a VM of Kata; with any, the daemon observes VM sandboxes.", 0, 200)
    gate: bool = setting(False, "These wait at a gate for a verdict.")
    guests: int = setting(0, "Also pods whose runtime asks the Pod API and pulls in the guest.", 0, 200)
    oversized: float = setting(0.0, "The share of `katas` whose VM is larger than their pod's limit.", 0, 1)
    life_s: tuple[float, float] = setting((4.0, 12.0), "How long a pod lives.")
    charge_every_s: float = setting(0.05, "How often a process charges or gives back.", 0.001, 3600, "seconds")
    greedy: float = setting(0.1, "The share of charges that ask for more than the container may have.", 0, 1)
    late_spec_s: float = setting(
        0.0, "How long after its containers a pod appears in the API server; 0 for before them.", 0, 3600, "seconds"
    )
    grace_s: float = setting(
        6.0, "So long after a pod's start or a disturbance its limits must be in the kernel.", 0.1, 3600, "seconds"
    )
    events: tuple[Happening, ...] = setting((), "What happens, and when.")


_OTHER = {
    "capacity": f"amounts from 0 to 2^63-1 by misc resource ({', '.join(RESOURCES)}), such as {{sgx_epc: 536870912}}",
    "life_s": "two numbers of seconds from 0.1 to 86400, the smaller first, such as [4, 12]",
    "events": f"a list such as [{{at_s: 5, do: {ACTIONS[0]}}}]",
    "claim_share": "all, none or a whole number",
    "do": f"one of {', '.join(ACTIONS)}",
    "every_s": f"0 for once, or a number of seconds from 0.1 to {YEAR_S}",
}
"""What is not said by a type and bounds."""


def _allowed(name: str, kind: object, of: Meaning) -> str:
    bounds = f"from {of.least} to {of.most}"
    if kind is str:
        return f"text of {f'{of.least} to' if of.least else 'at most'} {of.most} characters"
    if kind is bool:
        return "true or false"
    return (
        f"a whole number {bounds}" if kind is int else f"{f'a number of {of.unit}' if of.unit else 'a share'} {bounds}"
    )


_MEANINGS = {name: of for kind in (Scenario, Happening) for name, of in meanings(kind)}
ALLOWED = {
    name: _OTHER.get(name) or _allowed(name, hint, _MEANINGS[name])
    for kind in (Scenario, Happening)
    for name, hint in get_type_hints(kind).items()
}
"""What each key may hold; docs/scenarios.md has these words too."""


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
    flags = (
        (OF_RELAY, found.relay, "`relay: true`"),
        (OF_NFD, found.nfd, "`nfd: true`"),
        (("restart-kubelet",), found.offer or bool(found.claims), "`offer: true` or some `claims`"),
        (OF_MOVE, found.offer and bool(found.claims), "`offer: true` and some `claims`"),
    )
    numbers = (
        (OF_PINNED, found.pinned, "some `pinned`"),
        (OF_KATAS, found.katas, "some `katas`"),
        (OF_CLAIMS, found.claims, "some `claims`"),
    )
    for actions, there, with_ in (*flags, *numbers):
        doing = dict.fromkeys(event.do for event in found.events if event.do in actions and not there)
        faults += [f"events: {do} happens only with {with_}" for do in doing]
    if found.claims and not found.capacity.get("tdx"):
        faults.append("capacity: with some `claims` it must have some tdx")
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
    required = [one.name for one in fields(kind) if MISSING is one.default is one.default_factory]
    faults += [f"{above}{key}: is missing; it must be {ALLOWED[key]}" for key in required if key not in tree]
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
    least, most = _MEANINGS[key].least, _MEANINGS[key].most
    match key, value:
        case "title", str(text) if not text.strip():
            return False
        case "claim_share", str(share):
            return share in ("all", "none") or (share.isascii() and share.isdigit())
        case "do", str(action):
            return action in ACTIONS
        case "capacity", dict(amounts):
            return all(name in RESOURCES and 0 <= amount < 2**63 for name, amount in amounts.items())
        case "life_s", (float(shortest), float(longest)):
            return 0.1 <= shortest <= longest <= 86400
        case "every_s", 0:
            return True
        case _, bool():
            return True
        case _, str() | int() | float() if least is not None and most is not None:
            return least <= (len(value) if isinstance(value, str) else value) <= most
    return False
