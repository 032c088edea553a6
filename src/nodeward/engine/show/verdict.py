"""The node in one sentence, for people: what is wrong first, else that nothing is.

One sentence for `nodeward status` and `nodeward page`. It reads the picture that both have, and decides nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from nodeward.model.sandbox_rows import SandboxesView
from nodeward.model.view import NodeView, pod_name

MOST_NAMED = 3
_SAID = {
    "drift": "changed by somebody else",
    "outside": "outside of its pod's cgroup",
    "stale": "not read for too long",
    "controller-off": "without the misc controller",
    "unsupported": "not enforceable on this kernel",
}
"""The states of a cgroup that somebody should hear of, the worst first."""
_BAD = ("drift", "outside")


class Level(Enum):
    """How urgent."""

    GOOD = "good"
    ATTENTION = "attention"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The sentence, and how urgent it is."""

    level: Level
    sentence: str


def verdict(view: NodeView) -> Verdict:
    """What a person should know first."""
    found = list(_found(view))
    if not found:
        return Verdict(Level.GOOD, _good(view))
    worst = Level.BAD if any(level is Level.BAD for level, _ in found) else Level.ATTENTION
    found.sort(key=lambda one: one[0] is not worst)
    return Verdict(worst, f"{'; '.join(text for _, text in found)}.")


def _found(view: NodeView) -> Iterator[tuple[Level, str]]:
    if view.alone:
        yield Level.ATTENTION, f"Only the relay answers: {view.alone}"
    for component in view.components:
        if component.needed and not component.ready:
            detail = f": {component.detail}" if component.detail else ""
            yield Level.BAD, f"Nodeward is not synchronised with {component.name}{detail}"
    if view.tree.fault:
        yield Level.BAD, f"Nothing can be counted or limited: {view.tree.fault}"
    for state, words in _SAID.items():
        names = list(dict.fromkeys(pod_name(row) for row in view.rows if row.state == state))
        if names:
            yield Level.BAD if state in _BAD else Level.ATTENTION, f"{_pods(names)} {words}"
    for kind in view.keys:
        if kind.blind or kind.wrapped:
            yield Level.BAD, f"The kernel's counters of {kind.key} cannot be trusted"
        elif kind.capacity and kind.free == 0:
            yield Level.ATTENTION, f"No {kind.key} key is free of {kind.capacity}"
    if view.cpus is not None and view.cpus.refused:
        yield Level.ATTENTION, "Newer settings of the CPU policy were refused"
    if view.settings.faults:
        yield Level.ATTENTION, "Newer settings were refused, older ones hold"
    if view.sandboxes is not None:
        yield from _vms(view.sandboxes)
    shut = [f"{row.namespace}/{row.pod}" for row in view.gates.rows if row.why] if view.gates is not None else []
    if shut:
        yield Level.ATTENTION, f"{_pods(shut)} waiting at a gate"
    if view.relay_missing:
        yield Level.BAD, "No relay answers, though one should"


def _vms(view: SandboxesView) -> Iterator[tuple[Level, str]]:
    killed = [row.name for row in view.rows if row.fit.fit == "will be killed"]
    if killed:
        yield Level.BAD, f"The VM of {_named(killed)} has a larger size than its pod's memory limit allows"
    strayed = [row.name for row in view.rows if any(drift.is_fault for drift in row.drifts)]
    if strayed:
        yield Level.ATTENTION, f"Processes of {_named(strayed)} are in another cgroup than they should be"


def _good(view: NodeView) -> str:
    pods = sum(row.level == "pod" and row.state == "enforced" for row in view.rows)
    if view.mode == "off":
        parts = ["Limits are off"]
    elif view.mode == "observe":
        parts = ["Limits are observed, not enforced"]
    else:
        held = "1 pod is held to its limits" if pods == 1 else f"{pods} pods are held to their limits"
        parts = [f"All is well: {held}"]
    parts += [f"{kind.free} of {kind.capacity} {kind.key} keys are free" for kind in view.keys if kind.free is not None]
    return f"{', '.join(parts)}."


def _pods(names: list[str]) -> str:
    return f"{_named(names)} {'is' if len(names) == 1 else 'are'}"


def _named(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
