"""What happens to the ids that kubelet is offered: published, granted, started, released. Pure, and of one kind of key.

An id is a token without hardware behind it: the kernel takes whichever key it likes. What counts is how many of them
are out. Kubelet asks twice before a VM can take a key: `Allocate` when it admits a pod (a refusal fails the pod), and
`PreStartContainer` before each start (a refusal is tried again). Between the two anything may happen, so both look at
the kernel anew. Rules: features/keys; every history of a small node is played against them in
tests/unit/features/keys/histories.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain

from nodeward.core.tables import as_before, beside, kept, put, without
from nodeward.core.workload import PodUid
from nodeward.features.keys.rule import PodKeys
from nodeward.features.keys.state import Grant, Offer

GROW_NS = 2_000_000_000
"""More is published only once it was free in every sample for so long."""
SETTLE_NS = 6_000_000_000
"""A view of kubelet's that began so long after a grant says for certain whom the id belongs to."""
PULSE_NS = 2_000_000_000
"""Views and samples come so often. A longer silence counts as no more: the clock goes on while the machine sleeps, and
kubelet does not."""
MADE_NS = 150_000_000_000
"""A start that was let through has its container by then: kubelet waits two minutes for it (runtimeRequestTimeout), and
asks anew for the next."""
MOST_IDS = 4096
"""Ids of one kind that are listed. A machine has some hundred keys; what counts bytes would fill all memory."""
ABSENT_VIEWS = 2
"""In so many views in a row nobody must have an id before it is free again."""

Held = Mapping[PodUid, tuple[str, ...]]
"""The ids of each pod in kubelet's own view."""

Devices = tuple[tuple[str, bool], ...]
"""Ids, each with whether it is healthy."""


def id_name(key: str, number: int) -> str:
    """An id's name, unlike that of every other resource: kubelet looks some things up by the bare name."""
    return f"{key.replace('_', '-')}-key-{number:04d}"


@lru_cache(maxsize=16)
def _known(key: str, size: int) -> Mapping[str, int]:
    """The number of each of so many ids, the lowest first."""
    return {id_name(key, number): number for number in range(size)}


@lru_cache(maxsize=64)
def _lowest(key: str, size: int, healthy: int) -> Devices:
    """So many ids, of which the lowest are healthy."""
    return tuple((name, number < healthy) for name, number in _known(key, size).items())


def is_listed(offer: Offer, key: str, name: str) -> bool:
    """Whether kubelet's list has this id, or had it."""
    return name in _known(key, offer.size) or name in offer.grants


@kept
def devices(offer: Offer, key: str) -> Devices:
    """The device list for kubelet: each id, and whether it is healthy.

    An id that is promised to a pod is always healthy, and listed though it is none of so many (a rival's, or of a node
    that had more keys): kubelet would not admit that pod again without it. Of the others as many as are published are
    healthy, the lowest first, so that this and GetPreferredAllocation agree."""
    known, grants = _known(key, offer.size), offer.grants
    promised = {name: None for name, grant in grants.items() if grant.times > 0}
    healthy = offer.published + len(promised)
    beyond = [name for name in promised if name not in known]
    if not beyond and max(map(known.__getitem__, promised), default=-1) < healthy:
        return _lowest(key, offer.size, healthy)  # so it is while kubelet takes what GetPreferredAllocation names
    left = offer.published
    told = []
    for name in (*beyond, *known):
        if name in promised:
            told.append((name, True))
        else:
            told.append((name, left > 0))
            left -= 1
    return tuple(told)


def claims(
    grants: Mapping[str, Grant],
    held: Held,
    by_spec: Mapping[PodUid, int],
    started: Mapping[PodUid, int],
    charged: Mapping[PodUid, tuple[int, ...]],
    seen: Mapping[PodUid, object],
    *,
    sure: bool,
) -> tuple[Mapping[PodUid, PodKeys], int]:
    """Each pod's claim, and how many ids are promised that no pod has yet. `by_spec` are promises beside the ids;
    `started` what pods with a sandbox ask of the ids; of `charged` those are left out that hold none, though they were
    `seen`.

    A pod's ids count by pod, not by id: kubelet can give one id to two pods. A granted id that no pod has in kubelet's
    view counts too. A pod that has started and has fewer ids in that view than it asks for must have some of those;
    where there has been no view yet (`sure` is false), it may as well have others."""
    found, lacking = _of_pods(held, by_spec, started, charged, seen)
    unowned = _nobodys(grants, held)
    return found, max(0, unowned - lacking if sure else unowned)


@kept
def _nobodys(grants: Mapping[str, Grant], held: Held) -> int:
    """How many ids are promised that no pod has in kubelet's view."""
    owned = _owned(held)
    return sum([left for name, grant in grants.items() if (left := grant.times - owned.get(name, 0)) > 0])


@kept
def _of_pods(
    held: Held,
    by_spec: Mapping[PodUid, int],
    started: Mapping[PodUid, int],
    charged: Mapping[PodUid, tuple[int, ...]],
    seen: Mapping[PodUid, object],
) -> tuple[Mapping[PodUid, PodKeys], int]:
    """The pods' claims, and how many ids those that have started must have beyond the view. No grant changes them."""
    found, lacking = {}, 0
    for uid in dict.fromkeys((*by_spec, *started, *held, *charged)):
        has, asked = len(held.get(uid, ())), started.get(uid, 0)
        lacking += max(0, asked - has)
        found[uid] = PodKeys(by_spec.get(uid, 0) + max(asked, has), charged.get(uid) or ((0, 0) if uid in seen else ()))
    return found, lacking


def owners(held: Held, name: str) -> list[PodUid]:
    """The pods that have an id in kubelet's view."""
    return [uid for uid, names in held.items() if name in names]


@kept
def _owned(held: Held) -> Mapping[str, int]:
    """How many pods have each id."""
    found: dict[str, int] = {}
    for name in chain.from_iterable(dict.fromkeys(names) for names in held.values()):
        found[name] = found.get(name, 0) + 1
    return found


def living(offer: Offer, ended: Iterable[PodUid]) -> Offer:
    """The offer after these pods have ended for good. What was theirs for certain is promised to nobody, and as healthy
    as it was."""
    gone = [uid for uid in ended if uid in offer.held]
    if not gone:
        return offer
    held = without(offer.held, gone)
    owned = _owned(held)
    grants, published = dict(offer.grants), offer.published
    for name in chain.from_iterable(offer.held[uid] for uid in gone):
        grant = grants.get(name)
        if grant is not None and _is_late(grant, offer.viewed_as_of):
            times = owned.get(name, 0)
            published += 1 if grant.times and not times else 0
            grants[name] = replace(grant, times=times)
    over = {**offer.over, **{uid: offer.held[uid] for uid in gone}}
    passed = without(offer.passed, gone)
    return replace(offer, grants=grants, published=published, held=held, over=over, passed=passed)


def _is_late(grant: Grant, as_of: int) -> bool:
    """Whether a view of this time says for certain whose the id is."""
    return as_of >= grant.seq and grant.awake_ns >= SETTLE_NS


def awake(since_ns: int, at_ns: int) -> int:
    """How much of this time between two signs of life the machine was awake, as far as is certain."""
    return min(max(0, at_ns - since_ns), PULSE_NS)


def _older(grant: Grant, viewed_ns: int, at_ns: int, as_of: int) -> Grant:
    """The grant after a view that came `at_ns`, the one before it at `viewed_ns`. One from before it says nothing."""
    if as_of < grant.seq or grant.awake_ns == SETTLE_NS:
        return grant
    spent = awake(max(grant.at_ns, viewed_ns), at_ns)
    return replace(grant, awake_ns=min(grant.awake_ns + spent, SETTLE_NS))


def publish(offer: Offer, size: int, free: int, at_ns: int) -> Offer:
    """The offer after a sample: it shrinks at once, and grows after agreeing samples."""
    if free <= offer.published:
        if (offer.size, offer.published, offer.grow_to, offer.grow_since_ns) == (size, free, 0, 0):
            return offer  # the same object, so that what was found by it is known to hold
        return replace(offer, size=size, published=free, grow_to=0, grow_since_ns=0)
    if not offer.grow_since_ns:
        return replace(offer, size=size, grow_to=free, grow_since_ns=at_ns)
    sure = min(offer.grow_to, free)
    if at_ns - offer.grow_since_ns >= GROW_NS:
        return replace(offer, size=size, published=sure, grow_to=0, grow_since_ns=0)
    return replace(offer, size=size, grow_to=sure)


def allocate(
    offer: Offer, names: Sequence[str], reused: Sequence[str], free: int, at_ns: int, seq: int
) -> Offer | None:
    """The offer with these ids granted to one pod more; None where there are too few keys.

    `reused` are those that belong to that very pod already (kubelet gives a container its init container's ids). `free`
    is what is free by a sample taken for this question; no more is granted than was published either."""
    fresh = [name for name in names if name not in reused]
    if len(fresh) > min(free, offer.published):
        return None
    grants = dict(offer.grants)
    for name in fresh:
        old = grants.get(name)
        times, recorded = (0, 0) if old is None else (old.times, old.recorded)
        grants[name] = Grant(at_ns, seq, times + 1, recorded=recorded + 1)
    for name in reused:
        grants[name] = replace(grants[name], at_ns=at_ns, seq=seq, awake_ns=0)
    return replace(offer, grants=grants, published=offer.published - len(fresh), grow_to=0, grow_since_ns=0)


def is_granted(offer: Offer, name: str) -> bool:
    """Whether some pod was given the id."""
    return name in offer.grants and offer.grants[name].times > 0


def taken_back(offer: Offer, fresh: Iterable[str]) -> Offer:
    """The offer without a grant of these ids that could not be answered."""
    grants = dict(offer.grants)
    for name in fresh:
        grant = grants.get(name)
        if grant is not None and grant.recorded <= 1:
            del grants[name]
        elif grant is not None:
            grants[name] = replace(grant, times=max(0, grant.times - 1), recorded=grant.recorded - 1)
    return replace(offer, grants=grants)


def resumed(offer: Offer, known: Held, charged: Mapping[PodUid, int], at_ns: int) -> Offer:
    """The offer after a view in the daemon's life up to the first whole one: whoever has ids there that were not
    `known` by the views before it may be under way."""
    new = {uid: len(names) for uid, names in offer.held.items() if known.get(uid) != names}
    return maybe_let(offer, new, charged, at_ns)


def maybe_let(offer: Offer, needs: Mapping[PodUid, int], charged: Mapping[PodUid, int], at_ns: int) -> Offer:
    """The offer with those of these pods under way that have not all the keys that they need: they may have been let
    start in the daemon's life before, of which nothing is on record. Each counts until it is known to be over, as any
    other start."""
    under_way = {uid: need for uid, need in needs.items() if charged.get(uid, 0) < need}
    until_ns = at_ns + MADE_NS - SETTLE_NS
    return replace(
        offer,
        passed={**under_way, **offer.passed},
        stopped_ns={**{uid: until_ns for uid in under_way if uid not in offer.passed}, **offer.stopped_ns},
    )


def not_begun(offer: Offer, uid: PodUid, names: Sequence[str]) -> Offer:
    """The offer after a start of the pod with these ids that is refused. Where they are all that it has, what was let
    through with them before is over: kubelet starts no container that it is still starting."""
    if uid not in offer.passed or not all(name in names for name in offer.held.get(uid, ())):
        return offer
    return replace(offer, passed=without(offer.passed, (uid,)), stopped_ns=without(offer.stopped_ns, (uid,)))


def start(offer: Offer, uid: PodUid, names: int, charged: int, capacity: int, used: int, others: int) -> Offer | None:
    """The offer with a start of this pod let through; None where the kernel could not serve it now.

    `others` are keys that other starts were let through for and have not taken yet."""
    if charged >= names:
        return offer  # its VM runs: another of its containers starts
    if capacity - used - others < names - charged:
        return None
    return replace(offer, passed=put(offer.passed, uid, names))


def pending(offer: Offer, charged: Mapping[PodUid, int], without_uid: PodUid | None = None) -> int:
    """Keys for which starts were let through and that are not taken yet."""
    return sum(max(0, names - charged.get(uid, 0)) for uid, names in offer.passed.items() if uid != without_uid)


def settled(offer: Offer, charged: Mapping[PodUid, int]) -> Offer:
    """The offer without the starts that have taken their keys."""
    done = [uid for uid, names in offer.passed.items() if charged.get(uid, 0) >= names]
    return replace(offer, passed=without(offer.passed, done)) if done else offer


def still_starting(offer: Offer, over: Iterable[PodUid], unseen: Sequence[PodUid], at_ns: int) -> Offer:
    """The offer without the starts of pods that are `over`, and of those that were `unseen`, shown by no view on pods
    though all of them are fresh, for SETTLE_NS: whoever is about to start is known to kubelet. What such a pod has
    taken all the same the kernel's counters tell."""
    spent = awake(offer.viewed_ns, at_ns)
    unseen_ns = {uid: offer.unseen_ns.get(uid, -spent) + spent for uid in unseen}
    passed = without(offer.passed, (*over, *(uid for uid, ns in unseen_ns.items() if ns >= SETTLE_NS)))
    return replace(
        offer,
        passed=passed,
        unseen_ns={uid: ns for uid, ns in unseen_ns.items() if uid in passed},
        stopped_ns={uid: ns for uid, ns in offer.stopped_ns.items() if uid in passed},
    )


def viewed(
    offer: Offer,
    view: Held,
    ended: Sequence[PodUid],
    charged: Mapping[PodUid, int],
    at_ns: int,
    as_of: int,
    *,
    frozen: bool = False,
) -> Offer:
    """The offer after kubelet's view, read at `at_ns` and requested at `as_of`; ids that nobody has any more are free
    again.

    Kubelet goes on naming pods that have ended, so `ended` says which. An id is released only after two views that
    began long enough after its grant and name nobody with it, and while none of the pods that had it holds a key;
    where the views are `frozen` none is, and those two are yet to come."""
    over = {uid: names for uid, names in view.items() if uid in offer.over or uid in ended}
    held = as_before(offer.held, without(view, over))
    left_by, had_by = _by_name(held), _by_name(offer.held)
    shown_by = _by_name(view) if over else left_by
    grants: dict[str, Grant] = {}
    published = offer.published
    for name, grant in offer.grants.items():
        having = left_by.get(name, ())
        grant = _older(grant, offer.viewed_ns, at_ns, as_of)
        late = not frozen and _is_late(grant, as_of)
        shown = shown_by.get(name, ())
        had = tuple(dict.fromkeys((*shown, *had_by.get(name, ()), *grant.had)))
        if having:
            times = len(having) if late else max(grant.times, len(having))
            recorded = len(shown) if late else max(grant.recorded, len(shown))
            grants[name] = _now(grant, times, 0, having, recorded)
            continue
        kept = _unowned(grant, len(shown), had, charged, late=late)
        if kept is not None:
            grants[name] = kept
        published += 1 if grant.times and (kept is None or not kept.times) else 0
    released = tuple(name for name in offer.grants if name not in grants)
    for name, uids in left_by.items():  # after a loss of the journal kubelet still knows
        if name not in grants:
            grants[name] = Grant(at_ns, 0, len(uids), had=uids, recorded=len(uids))
    passed = {uid: names for uid, names in offer.passed.items() if uid in held or uid not in (*offer.held, *over)}
    return replace(
        offer,
        grants=as_before(offer.grants, grants),
        published=published,
        held=held,
        over=as_before(offer.over, over),
        passed=as_before(offer.passed, passed),
        viewed_ns=max(offer.viewed_ns, at_ns),
        viewed_as_of=as_of,
        released=(*offer.released, *released),
    )


def _unowned(
    grant: Grant, shown: int, had: tuple[PodUid, ...], charged: Mapping[PodUid, int], *, late: bool
) -> Grant | None:
    """The grant of an id that no living pod has, and kubelet shows with so many that have ended; None where it is
    free again. While a pod that had it still holds a key, that charge counts and the id is promised to nobody."""
    absent = grant.absent + 1 if late and not shown else 0
    if absent >= ABSENT_VIEWS and not any(charged.get(uid, 0) > 0 for uid in had):
        return None
    is_over = late and (shown or absent >= ABSENT_VIEWS)
    times, recorded = (0, shown) if is_over else (grant.times, grant.recorded)
    return _now(grant, times, absent, had, recorded)


def _now(grant: Grant, times: int, absent: int, had: tuple[PodUid, ...], recorded: int) -> Grant:
    """The grant as it stands; the same object where it stood so before, as nearly all do in a view."""
    if (grant.times, grant.absent, grant.recorded) == (times, absent, recorded) and grant.had == had:
        return grant
    return replace(grant, times=times, absent=absent, had=had, recorded=recorded)


@kept
def _by_name(held: Held) -> Mapping[str, tuple[PodUid, ...]]:
    """The pods that have each id."""
    found: dict[str, list[PodUid]] = {}
    for uid, names in held.items():
        for name in dict.fromkeys(names):
            found.setdefault(name, []).append(uid)
    return {name: tuple(uids) for name, uids in found.items()}


def recalled(offer: Offer, grants: Mapping[str, int], at_ns: int, seq: int) -> Offer:
    """The offer with what an earlier life of the daemon granted."""
    known = dict(offer.grants)
    for name, times in grants.items():
        old = known.get(name)
        count = max(times, 1, old.recorded if old is not None else 0)
        known[name] = Grant(at_ns, seq, count, recorded=count)
    return replace(offer, grants=known)


def adopted(offer: Offer, seq: int) -> Offer:
    """The offer in which ids that only kubelet reports count as granted since the boot."""
    new = {name: replace(grant, seq=seq) for name, grant in offer.grants.items() if not grant.seq}
    return replace(offer, grants=beside(offer.grants, new)) if new else offer
