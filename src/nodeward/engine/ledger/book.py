"""Who holds what: the newest sample beside what pods were promised, for `nodeward keys`, status and explain."""

from collections.abc import Mapping

from nodeward.engine.ledger.rule import Claim, Count, count
from nodeward.engine.limits.budget import pod_budget
from nodeward.engine.state import State
from nodeward.model.events import HeldElsewhere, KeysRead
from nodeward.model.settings import KeySettings, Mode
from nodeward.model.view import KeyElsewhere, KeyHolder, KeyRow
from nodeward.model.workload import PodUid

_ABOUT = {
    "orphan": "orphan: its cgroup was removed",
    "root": "the root cgroup, or one to which the controller is not handed down",
    "kata": "Kata, outside of its pod",
    "unknown-pod": "a pod that is not known",
    "machine": "a machine outside of Kubernetes",
    "service": "a service of the host",
    "other": "another cgroup",
}
"""What each kind of holder that is no known pod is called. The words are labels of metrics too, so they stay."""


def key_rows(state: State, now_ns: int) -> tuple[KeyRow, ...]:
    """A row for each kind in the settings; none while the ledger is off."""
    ledger = state.settings.ledger
    if ledger.mode is Mode.OFF:
        return ()
    return tuple(_row(state, key, kind, now_ns) for key, kind in ledger.keys.items())


def claims(state: State, key: str, sample: KeysRead) -> dict[PodUid, Claim]:
    """What each pod holds or was promised of the key; pods of which neither can be said are left out.

    A pod that has ended was promised nothing any more, and what is still charged to it counts."""
    found: dict[PodUid, Claim] = {}
    unread = dict.fromkeys(sample.unread)
    pods = state.pods
    for uid in dict.fromkeys((*pods.specs, *pods.sandbox_of, *sample.pods, *unread)):
        known = pods.specs.get(uid)
        entitled = 0 if known is None or known.spec.terminal else pod_budget(known.spec, key)
        nothing = (0, 0) if uid in pods.sandbox_of and uid not in unread else ()
        charged = sample.pods.get(uid, {}).get(key, nothing)
        if entitled or any(charged):
            found[uid] = Claim(entitled, charged)
    return found


def arithmetic(one: Count) -> str:
    """How the free keys come about, in a sentence."""
    if one.wrapped:
        return "none is free: the kernel's counter of the whole node went below zero, so nobody can tell what is taken."
    if one.blind:
        return (
            f"{one.free} free: {one.capacity} there are, less {one.used} in use, {one.entitled} promised to pods and "
            f"{one.reserve} in reserve; a pod's counter went below zero, so no use is taken for a pod's."
        )
    return (
        f"{one.free} free: {one.capacity} there are, less {one.claimed} that pods hold or were promised, "
        f"{one.foreign} in foreign use and {one.reserve} in reserve."
    )


def _row(state: State, key: str, kind: KeySettings, now_ns: int) -> KeyRow:
    sample = state.ledger.sample
    capacity = kind.capacity or (sample.capacity.get(key, 0) if sample is not None else 0)
    shown = KeyRow(key=key, resources=kind.resources, capacity=capacity, reserve=kind.reserve)
    if sample is None:
        return _with(shown, sentence="the kernel has not been read yet.")
    roots = sample.roots.get(key, ())
    if not capacity:
        return _with(shown, sentence="this kernel has no such keys (none in misc.capacity).")
    if not roots:
        return _with(
            shown, sentence="the root's misc.current does not show them (Linux 6.6 or newer does): use is unknown."
        )
    held = claims(state, key, sample)
    sums = count(capacity, kind.reserve, roots, held.values())
    return KeyRow(
        key=key,
        resources=kind.resources,
        capacity=capacity,
        reserve=kind.reserve,
        used=sums.used,
        entitled=sums.entitled,
        charged=sums.charged,
        foreign=sums.foreign,
        free=sums.free,
        blind=sums.blind,
        wrapped=sums.wrapped,
        age_ms=(now_ns - sample.at_ns) // 1_000_000,
        sentence=arithmetic(sums),
        holders=tuple(sorted(_holders(state, held), key=lambda one: (one.namespace, one.pod, one.uid))),
        elsewhere=tuple(_elsewhere(one) for one in sample.elsewhere if one.key == key),
    )


def _with(row: KeyRow, sentence: str) -> KeyRow:
    return KeyRow(row.key, row.resources, row.capacity, row.reserve, sentence=sentence)


def _holders(state: State, held: Mapping[PodUid, Claim]) -> list[KeyHolder]:
    rows = []
    for uid, claim in held.items():
        known, sandbox_id = state.pods.specs.get(uid), state.pods.sandbox_of.get(uid)
        sandbox = state.pods.sandboxes[sandbox_id].sandbox if sandbox_id is not None else None
        home = known.spec if known is not None else sandbox
        charged = min(claim.charged) if claim.charged else None
        namespace, name = (home.namespace, home.name) if home is not None else ("", "")
        rows.append(KeyHolder(namespace, name, str(uid), claim.entitled, charged))
    return rows


def _elsewhere(held: HeldElsewhere) -> KeyElsewhere:
    holder = _holder(held)
    return KeyElsewhere(held.path, _ABOUT[holder], held.amount, holder)


def _holder(held: HeldElsewhere) -> str:
    """What kind of holder a cgroup that is no known pod's is, as far as its place tells; a word of `_ABOUT`."""
    names = held.path.strip("/").split("/")
    if held.below:
        return "orphan"
    if not held.path.strip("/"):
        return "root"
    if any("kata" in name for name in names):
        return "kata"
    if any("kubepods" in name for name in names):
        return "unknown-pod"
    if "machine.slice" in names:
        return "machine"
    if names[-1].endswith(".service"):
        return "service"
    return "other"
