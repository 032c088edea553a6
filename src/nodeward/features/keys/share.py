"""How many keys of one kind are left to those who go by Node Feature Discovery's number, such as Kata.

Kata's pods promise themselves a key by their RuntimeClass's overhead, of an extended resource whose number NFD puts on
the node. Neither asks us. So that neither side sells what the other has sold, that number follows `keys`, by the
table of modes in docs/keys.md (rule R8 of features/keys). It is never below what the node's pods ask by it (L7).
Two sides that sell the same free key in one instant are told apart by our gate: the loser is our pod, which kubelet
tries again.
"""

from dataclasses import dataclass

from nodeward.core.modes import NFD_NUMBERS
from nodeward.core.workload import SandboxId
from nodeward.features.keys.kubelet_view import promised, versions
from nodeward.features.keys.rule import Count
from nodeward.features.keys.settings import CapacitySource, KeyKind, Share
from nodeward.features.root import State


@dataclass(frozen=True, slots=True)
class Shares:
    """What each side may have."""

    mode: Share
    """The mode in force: never `auto`."""
    sellable: int | None
    """How many keys more our plugin may sell; None where it publishes nothing."""
    total: int | None
    """What NFD's number is to be; None where it is left alone."""


def may_follow(key: str, row: KeyKind) -> bool:
    """Whether NFD's number of this kind is ours to set while NFD is there. Not by `auto` where the row does not say by
    which resource pods ask by that number: it could fall below what they ask (L7)."""
    if row.share is Share.AUTO and all(name == row.publish for name in row.resources):
        return False
    return row.share is not Share.OWN and key in NFD_NUMBERS


def shares(row: KeyKind, sums: Count, free: int, asked: int, *, nfd: bool, outside: int = 0) -> Shares:
    """The row of the table that is in force.

    `free` is what may be sold (no more than `sums.free`), `asked` what the node's pods ask by NFD's number, `nfd`
    whether NFD is there for this node. `outside`: so much of the foreign use is of pods that are among those; our own
    side takes it for foreign all the same, which sells too few."""
    mode = row.share
    foreign = sums.foreign if sums.blind else max(0, sums.foreign - outside)
    if mode is Share.AUTO:
        mode = Share.OVERRIDE if nfd else Share.OWN
    match mode:
        case Share.OWN:
            return Shares(mode, free, None)
        case Share.SPLIT:
            ours = max(0, sums.claimed - asked)
            theirs = sums.capacity - sums.reserve - max(row.split, ours) - foreign
            total = asked if sums.wrapped else max(asked, theirs)
            return Shares(mode, max(0, min(row.split - ours, free)), total)
        case _:
            more = max(0, sums.capacity - sums.claimed - foreign - sums.reserve) - sums.free
            total = asked + free + (0 if sums.wrapped else more)
            return Shares(mode, None if mode is Share.SHARED else free, total)


def oversold(key: str, promised: int | None, capacity: int, asked: int, *, own: bool) -> tuple[str, str]:
    """What is wrong and its remedy where pods were promised more keys than exist, else two empty texts. `asked` is what
    they ask by NFD's number; `own`: we offer keys beside that number by `share: own`."""
    if not promised or promised <= capacity:
        return "", ""
    what = (
        f"pods were promised {promised} keys of {key}, and there are {capacity}: {asked} by NFD's number and "
        f"{promised - asked} otherwise; so many VMs cannot run at once"
    )
    shares = (
        f"set keys.kinds.{key}.share to auto, so that NFD's number counts what we sold, and " if own and asked else ""
    )
    return what, f"{shares}end {promised - capacity} of these pods"


def asked_by_nfd(state: State, key: str) -> int:
    """What the node's pods that have not ended ask by NFD's number: by another name of the key than what we publish."""
    row = state.settings.keys.kinds[key]
    words = state.settings.words(name for name in row.resources if name != row.publish)
    return sum(promised(told, words) for told in versions(state).values() if not told[0].terminal) if words else 0


def outside_of_pods(state: State, key: str) -> int:
    """The keys that Kata's hypervisors hold outside of their pods, in /kata_overhead/SANDBOX (its
    `sandbox_cgroup_only=false`), as far as these pods were promised them."""
    row, sample = state.settings.keys.kinds[key], state.keys.sample
    words = state.settings.words(name for name in row.resources if name != row.publish)
    known, found = versions(state), 0
    for one in sample.elsewhere if sample is not None else ():
        sandbox = state.pods.sandboxes.get(SandboxId(one.path.rpartition("/")[2]))
        if sandbox is None or one.key != key or one.below or sample is None:
            continue
        uid = sandbox.sandbox.pod_uid
        if uid in known and not known[uid][0].terminal:
            inside = max(sample.pods.get(uid, {}).get(key, ()), default=0)
            found += min(one.amount, max(0, promised(known[uid], words) - inside))
    return found


def nfd_is_here(state: State) -> bool:
    """Whether NFD works for this node, as far as could last be seen: its objects are served, and one is this node's,
    which its worker keeps up. Nobody asks for the master: with it away the node's number stands still whatever we do,
    and without our object it would give all keys away again when it comes back."""
    nfd = state.keys.nfd
    return nfd is not None and nfd.served and nfd.worker


def said_of(state: State, key: str) -> int:
    """How many keys there are by the settings, or by NFD where they say so; 0 where only the kernel is asked."""
    row, nfd = state.settings.keys.kinds[key], state.keys.nfd
    if row.capacity_from is CapacitySource.NFD:
        return nfd.discovered.get(key, 0) if nfd is not None else 0
    return row.capacity


def capacity_of(state: State, key: str) -> int:
    """How many keys there are by the source that the settings name; 0 where it does not say. Never more than the kernel
    has, where it shows that: who says more knows less."""
    row, sample, said = state.settings.keys.kinds[key], state.keys.sample, said_of(state, key)
    shown = sample.capacity.get(key, 0) if sample is not None else 0
    if said:
        return min(said, shown) if shown else said
    return shown if row.capacity_from is CapacitySource.MISC else 0
