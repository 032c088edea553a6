"""Findings of doctor on CPU policies: who else gives containers CPUs, and whether settings fit the machine.

Two owners of one cpuset undo each other's writes, and no promise of exclusive CPUs holds. Without a policy of ours,
another owner is at most a note.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nodeward.core.cpuset import parse
from nodeward.core.finding import Finding, Neighbour, Severity
from nodeward.features.cpus.policies.claims import is_claim, title_of
from nodeward.features.cpus.rows import CpusView


@dataclass(frozen=True, slots=True)
class CpuFacts:
    """Who gives containers CPUs: `policy` is ours, empty for none; `manager` the policy in kubelet's CPU manager state,
    a file at `manager_at`."""

    policy: str = ""
    """Whether the relay carries it."""
    manager: str = ""
    manager_at: str = ""
    view: CpusView | None = None
    """What who carries it shows; None where nobody answers."""


_TWO = "and so does {} (policy.active): each undoes what the other wrote"
_CHOOSE = "or set policy.active to none"
_OWNERS: Mapping[str, tuple[str, str]] = {
    "cri-rm": (
        "CRI Resource Manager gives containers CPUs, {}",
        "Point kubelet at the runtime or at Nodeward's relay and stop cri-resmgr, " + _CHOOSE + ".",
    ),
    "nri-policy": (
        "a resource policy of nri-plugins gives containers CPUs, {}",
        "Remove it (helm uninstall, or its file in /opt/nri/plugins), " + _CHOOSE + ".",
    ),
    "dra-driver-cpu": (
        "dra-driver-cpu gives containers CPUs by claim, {}",
        "Let its pods end and delete its DaemonSet, " + _CHOOSE + ".",
    ),
}
_LEFT: Mapping[str, str] = {"cri-rm-state": "CRI Resource Manager", "nri-policy-state": "nri-plugins' resource policy"}
"""What may have been left of whom."""


def owner(facts: CpuFacts, one: Neighbour) -> Finding | None:
    """What a neighbour who divides CPUs means; None for another, or without a policy of ours."""
    if not facts.policy or one.name not in _OWNERS:
        return None
    what, remedy = _OWNERS[one.name]
    return Finding(one.name, Severity.ERROR, what.format(_TWO.format(facts.policy)), one.seen_at, remedy)


def left(facts: CpuFacts, one: Neighbour) -> Iterator[Finding]:
    """A state that another owner left behind. It divides nothing until that owner is started again."""
    if facts.policy:
        what = f"state of {_LEFT[one.name]} is here: started again it would give containers CPUs by it"
        yield Finding(one.name, Severity.NOTE, what, one.seen_at, "Remove it once that program is gone for good.")


def is_left(one: Neighbour) -> bool:
    """Whether the neighbour is gone and only its state is left."""
    return one.name in _LEFT


def cpus(facts: CpuFacts) -> Iterator[Finding]:
    """Kubelet's CPU manager, and whether the policy fits the machine."""
    manager = facts.manager
    if manager and manager != "none" and facts.policy:
        what = (
            f"kubelet's CPU manager has the policy {manager} and writes cpusets every 10 s, {_TWO.format(facts.policy)}"
        )
        remedy = (
            "Drain the node, stop kubelet, set cpuManagerPolicy: none in its configuration, remove "
            f"{facts.manager_at}, start kubelet; {_CHOOSE}."
        )
        yield Finding("cpu-manager", Severity.ERROR, what, facts.manager_at, remedy)
    elif manager and manager != "none":
        what = f"kubelet's CPU manager has the policy {manager}; it sets cpusets, which Nodeward leaves alone"
        yield Finding("cpu-manager", Severity.NOTE, what, facts.manager_at, "")
    if facts.view is not None:
        yield from _fits(facts.policy, facts.view)


def _fits(policy: str, view: CpusView) -> Iterator[Finding]:
    """Whether the policy's settings are in force on this machine."""
    mend = "Mend what is named and reload the daemon"
    if view.refused and not view.in_force:
        what = f"the CPU policy {policy or view.policy} is not in force, its settings do not fit: {view.refused[0]}"
        remedy = f"{mend}; until then nothing is pinned, and cpus.on_error answers each create."
        yield Finding("cpus-unfit", Severity.ERROR, what, "policy", remedy)
    elif view.refused:
        what = f"newer settings of the CPU policy are not in force: {view.refused[0]}"
        remedy = f"{mend}; until then the policy {view.policy} goes on as before."
        yield Finding("cpus-refused", Severity.WARNING, what, "policy", remedy)
    for note in view.notes:
        remedy = "Bring the CPUs online again, or change policy.reserved or policy.available and reload the daemon."
        yield Finding("cpus-machine", Severity.WARNING, note, "policy", remedy)
    yield from _claims(view)


def _claims(view: CpusView) -> Iterator[Finding]:
    """Claims of CPUs that the scheduler does not count among the node's CPUs: it does by requests (until KEP-5517)."""
    for pool in view.pools:
        asked = sum(row.request_m for row in view.holders if row.pool == pool.name)
        if not is_claim(pool.name) or not pool.members or asked >= 1000 * (has := parse(pool.cpus).bit_count()):
            continue
        title = title_of(pool.name)
        what = (
            f"the containers of the claim {title} request {asked / 1000:g} CPU(s), and it has {has}: the scheduler "
            "counts the others as free, and may place more pods than there is room for"
        )
        remedy = "Let these containers request as many CPUs together as the claim has (docs/claims.md)."
        yield Finding("cpus-claim-requests", Severity.WARNING, what, title, remedy)
