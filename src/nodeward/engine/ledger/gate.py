"""What happens to the ids that kubelet is offered: published, granted, started, released. Pure, and of one kind of key.

An id is a token without hardware behind it: the kernel takes whichever key it likes. What counts is how many of them
are out. Kubelet asks twice before a VM can take a key: `Allocate` when it admits a pod (a refusal fails the pod), and
`PreStartContainer` before each start (a refusal is tried again). Between the two anything may happen, so both look at
the kernel anew. Rules: reference on TEE keys, 4.4 and 4.5; every history of a small node is played against them in
tests/unit/engine/ledger/histories.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from nodeward.engine.ledger.rule import Claim
from nodeward.engine.tables import put, without
from nodeward.model.value import value
from nodeward.model.workload import PodUid

GROW_NS = 2_000_000_000
"""More is published only once it was free in every sample for so long."""
SETTLE_NS = 6_000_000_000
"""A view of kubelet's that began so long after a grant says for certain whom the id belongs to."""
ABSENT_VIEWS = 2
"""In so many views in a row nobody must have an id before it is free again."""

Held = Mapping[PodUid, tuple[str, ...]]
"""The ids of each pod in kubelet's own view."""


@value(frozen=True, slots=True)
class Grant:
    """An id that kubelet was given: when last (time, sequence number), and for how many pods as far as is known."""

    at_ns: int
    seq: int
    times: int = 1
    """More than 1 where kubelet has forgotten that it gave the id to a pod, and asked for it again."""
    absent: int = 0
    """In how many views of kubelet's in a row nobody has had it."""
    had: tuple[PodUid, ...] = ()
    """The pods that had it last."""


@value(frozen=True, slots=True)
class Offer:
    """The ids of one kind of key that kubelet is offered."""

    size: int = 0
    """How many ids there are."""
    grants: Mapping[str, Grant] = field(default_factory=dict)
    published: int = 0
    """How many of the ids that are not granted are healthy."""
    grow_to: int = 0
    """The least that was free since `grow_since_ns`, while that is more than published."""
    grow_since_ns: int = 0
    passed: Mapping[PodUid, int] = field(default_factory=dict)
    """Pods whose start was let through and that have not taken all their keys yet, and how many they are to take."""
    held: Mapping[PodUid, tuple[str, ...]] = field(default_factory=dict)
    """The ids of each pod in kubelet's newest view."""


def id_name(key: str, number: int) -> str:
    """An id's name, unlike that of every other resource: kubelet looks some things up by the bare name."""
    return f"{key.replace('_', '-')}-key-{number:04d}"


def devices(offer: Offer, key: str) -> list[tuple[str, bool]]:
    """What kubelet is told: each id, and whether it is healthy.

    A granted id is always healthy, and listed for as long as it is granted. Of the others as many as are published are
    healthy, the lowest first, so that this and GetPreferredAllocation agree."""
    every = [id_name(key, number) for number in range(offer.size)]
    told = [(name, True) for name in offer.grants if name not in dict.fromkeys(every)]
    left = offer.published
    for name in every:
        granted = name in offer.grants
        told.append((name, granted or left > 0))
        left -= 0 if granted else 1
    return told


def claims(
    offer: Offer,
    by_spec: Mapping[PodUid, int],
    started: Mapping[PodUid, int],
    charged: Mapping[PodUid, tuple[int, ...]],
    *,
    sure: bool,
) -> list[Claim]:
    """Everybody's claim. `by_spec` are promises beside the ids; `started` what pods with a sandbox ask of the ids.

    A pod's ids count by pod, not by id: kubelet can give one id to two pods. A granted id that no pod has in kubelet's
    view counts too. A pod that has started and has fewer ids in that view than it asks for must have some of those;
    where there has been no view yet (`sure` is false), it may as well have others."""
    pods = dict.fromkeys((*by_spec, *started, *offer.held, *charged))
    found: list[Claim] = []
    lacking = 0
    for uid in pods:
        held = len(offer.held.get(uid, ()))
        asked = started.get(uid, 0)
        lacking += max(0, asked - held)
        found.append(Claim(by_spec.get(uid, 0) + max(asked, held), charged.get(uid, ())))
    unowned = sum(max(0, grant.times - len(owners(offer.held, name))) for name, grant in offer.grants.items())
    extra = unowned - lacking if sure else unowned
    return [*found, Claim(extra)] if extra > 0 else found


def owners(held: Held, name: str) -> list[PodUid]:
    """The pods that have an id in kubelet's view."""
    return [uid for uid, names in held.items() if name in names]


def publish(offer: Offer, size: int, free: int, at_ns: int) -> Offer:
    """The offer after a sample: it shrinks at once, and grows after agreeing samples."""
    if free <= offer.published:
        return replace(offer, size=size, published=free, grow_to=0, grow_since_ns=0)
    if not offer.grow_since_ns:
        return replace(offer, size=size, grow_to=free, grow_since_ns=at_ns)
    sure = min(offer.grow_to, free)
    if at_ns - offer.grow_since_ns >= GROW_NS:
        return replace(offer, size=size, published=sure, grow_to=0, grow_since_ns=0)
    return replace(offer, size=size, grow_to=sure)


def allocate(offer: Offer, names: Sequence[str], reused: int, free: int, at_ns: int, seq: int) -> Offer | None:
    """The offer with these ids granted to one pod more; None where there are too few keys.

    `reused` of them belong to that very pod already (kubelet gives a container its init container's ids). `free` is
    what is free by a sample taken for this question; no more is granted than was published either."""
    new = len(names) - reused
    if new > min(free, offer.published):
        return None
    grants = dict(offer.grants)
    for name in names:
        times = grants[name].times if name in grants else 0
        grants[name] = Grant(at_ns, seq, times + (1 if new else 0))
    return replace(offer, grants=grants, published=offer.published - new, grow_to=0, grow_since_ns=0)


def taken_back(offer: Offer, before: Offer, names: Iterable[str]) -> Offer:
    """The offer without a grant that could not be answered; `before` is the offer in which it was not there."""
    grants = dict(offer.grants)
    for name in names:
        old, now = before.grants.get(name), grants.get(name)
        if now is None:
            continue
        if old is None and now.times <= 1:
            del grants[name]
        else:
            grants[name] = replace(now, times=max(1, now.times - 1))
    return replace(offer, grants=grants)


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


def viewed(offer: Offer, held: Held, charged: Mapping[PodUid, int], at_ns: int, as_of: int) -> Offer:
    """The offer after kubelet's view, requested at `as_of`; ids that nobody has any more are free again.

    An id is released only after two views that began long enough after its grant, and while none of the pods that had
    it holds a key."""
    grants: dict[str, Grant] = {}
    for name, grant in offer.grants.items():
        having = owners(held, name)
        late = as_of >= grant.seq and at_ns - grant.at_ns >= SETTLE_NS
        had = dict.fromkeys((*owners(offer.held, name), *grant.had))
        if having:
            times = len(having) if late else max(grant.times, len(having))
            grants[name] = replace(grant, times=times, absent=0, had=tuple(having))
            continue
        absent = grant.absent + 1 if late else 0
        if absent < ABSENT_VIEWS or any(charged.get(uid, 0) > 0 for uid in had):
            grants[name] = replace(grant, absent=absent, had=tuple(had))
    found = {name: grants[name] for name in grants}
    for uid, names in held.items():  # after a loss of the journal kubelet still knows
        for name in names:
            if name not in found:
                found[name] = Grant(at_ns, as_of, len(owners(held, name)), had=(uid,))
    passed = {uid: names for uid, names in offer.passed.items() if uid in held}
    return replace(offer, grants=found, held=dict(held), passed=passed)
