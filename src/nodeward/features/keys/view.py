"""Makes the rows of TEE keys: pods with what they hold and were promised."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from nodeward.core.claims import Claim, Promised
from nodeward.core.events import HeldElsewhere, KeysRead
from nodeward.core.modes import Mode
from nodeward.core.ports import Pace, at_once
from nodeward.core.workload import PodUid
from nodeward.features.keys import claims as key_claims
from nodeward.features.keys import loss, move, orphans
from nodeward.features.keys import sums as key_sums
from nodeward.features.keys.delays import row
from nodeward.features.keys.device_ids import MOST_IDS
from nodeward.features.keys.id_states import ids
from nodeward.features.keys.kubelet_view import all_ids, ended, findings, home, registered
from nodeward.features.keys.rows import KeyClaim, KeyClaims, KeyElsewhere, KeyHolder, KeyOffer, KeyRow
from nodeward.features.keys.rule import Count, PodKeys
from nodeward.features.keys.settings import Attestation, CapacitySource, KeyKind
from nodeward.features.keys.share import said_of
from nodeward.features.keys.sharing_view import fences, offering, sharing
from nodeward.features.keys.sums import (
    GONE,
    capacity,
    claims,
    counted,
    is_gone,
    is_listed,
    is_tracked,
    oversold_now,
    unsold,
)
from nodeward.features.keys.terms import ClaimState
from nodeward.features.root import State


def offer_row(state: State, key: str) -> KeyOffer | None:
    """The numbers; None where the settings do not want the kind to be offered by us, or only observe."""
    kind = state.settings.keys.kinds[key]
    if state.settings.keys.mode is not Mode.ENFORCE or not key_sums.is_tracked(kind):
        return None
    told, quotes = state.keys.plugins.get(kind.publish), state.keys.quotes.get(key)
    return KeyOffer(
        withheld=key_sums.withheld(state, key)[0] or key_sums.unknown(state, key),
        standing="" if told is None else told.standing.value,
        kubelet_restarts=0 if told is None else told.restarts,
        quotes=None if kind.attestation is Attestation.OFF else quotes is not None and quotes.answers,
        journal_fault=state.keys.journal_fault,
        journal_lost=loss.finding(state.keys, key),
        delays=row(state, key),
    )


def by_claim(state: State, key: str) -> KeyClaims | None:
    """What of a kind goes by claim; None where the settings do not want that."""
    dra, keys = state.settings.keys.dra, state.keys
    if dra.mode is Mode.OFF:
        return None
    told = keys.driver
    room = keys.rooms.get(key)
    return KeyClaims(
        room=room.published if room is not None else 0,
        published=key_claims.value(state, key),
        driver="" if told is None else told.why,
        registered=(told is not None and told.registered) if key_claims.are_sold(state) else None,
        fault=keys.misses.get("keys-slice", {}).get(dra.driver, ""),
        withheld=key_claims.withheld(state, key)[1],
        rows=tuple(_claims(state, key)),
        front=keys.front.value,
        waits=move.waits(state, key),
    )


def _claims(state: State, key: str) -> Iterator[KeyClaim]:
    keys = state.keys
    for state_of, table in ((ClaimState.PREPARED, keys.claims), (ClaimState.DRAINING, keys.draining)):
        for one in table.values():
            if key in one.amounts:
                yield _claim(one, state_of, one.amounts[key], one.since_wall_ns)
    device = key_claims.device_of(key)
    for waits in keys.waiting.values():
        if any(one.device == device for one in waits.claim.allocated):
            amount = sum(one.device == device for one in waits.claim.allocated)
            yield _claim(waits.claim, ClaimState.WAITING, amount, waits.since_wall_ns, waits.why)


def _claim(one: Claim | Promised, state: ClaimState, amount: int, since_wall_ns: int, why: str = "") -> KeyClaim:
    pods = tuple(f"{one.namespace}/{name}" for name in one.pods.values())
    front = "extended-resource" if one.extended else "claim"
    return KeyClaim(one.title, str(one.uid), state.value, amount, pods, front, since_wall_ns, why)


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


def key_rows(state: State, now_ns: int, _: Pace = at_once) -> tuple[KeyRow, ...]:
    """A row for each kind in the settings; none while `keys.mode` is off."""
    keys = state.settings.keys
    if keys.mode is Mode.OFF:
        return ()
    return tuple(_row(state, key, kind, now_ns) for key, kind in keys.kinds.items())


def arithmetic(one: Count) -> str:
    """How the free keys come about, in a sentence."""
    if one.wrapped:
        return f"0 of {one.capacity} free: the kernel's counter of the whole node went below zero; its use is unknown."
    if one.blind:
        return (
            f"{one.free} of {one.capacity} free (in use {one.used}, promised to pods {one.entitled}, reserve "
            f"{one.reserve}); a pod's counter went below zero, so all use counts as outside of pods."
        )
    return f"{one.free} of {one.capacity} free (pods {one.claimed}, outside {one.foreign}, reserve {one.reserve})."


def _amiss(state: State, key: str, kind: KeyKind) -> Iterator[str]:
    """What is left of a loss of the journal (while it is being made good `findings` says that), and what is amiss with
    how many keys there are said to be, beside the kernel's own number."""
    lost, size = loss.finding(state.keys, key), capacity(state, key) or 0
    if lost and not loss.is_frozen(state.keys):
        yield lost
    if is_tracked(kind) and size > MOST_IDS:
        yield f"{size} are more than the {MOST_IDS} ids of one kind that are offered at most; the others are not."
    sample, said = state.keys.sample, said_of(state, key)
    if sample is None or not said:
        return
    whose = "Node Feature Discovery's" if kind.capacity_from is CapacitySource.NFD else "the settings'"
    shown = sample.capacity.get(key)
    if not shown:
        yield (
            f"misc.capacity does not show how many keys there are, so {whose} {said} is taken for true; "
            "what is used outside of the cgroups that are seen here is not counted."
        )
    elif said > shown:
        yield f"{whose} {said} keys are more than there are: the kernel has {shown} (misc.capacity), which counts."


def _row(state: State, key: str, kind: KeyKind, now_ns: int) -> KeyRow:
    sample, size = state.keys.sample, capacity(state, key) or 0
    shown = KeyRow(
        key=key,
        resources=kind.resources,
        capacity=size,
        reserve=kind.reserve,
        registered=registered(state, kind.resources),
        findings=(*offering(state, key), *_amiss(state, key, kind), *findings(state, kind.resources)),
        ids=ids(state, key, now_ns),
        published=state.keys.offers[key].published if key in state.keys.offers and is_listed(state, key) else None,
        plugin=_plugin(state, kind),
        claims=by_claim(state, key),
        refusals=_refusals(state, key),
        offer=offer_row(state, key),
    )
    held = claims(state, key, sample) if sample is not None and size else {}
    sums = counted(state, key)
    if sample is None or sums is None:
        uncounted = KeysRead(0, unread=tuple(state.pods.sandbox_of))
        return replace(
            shown,
            sentence=_why_uncounted(state, key, kind),
            holders=_holders(state, claims(state, key, uncounted), kind),
            sharing=sharing(state, key, None),
        )
    orphan_ns = state.keys.orphans.get(key)
    elsewhere = tuple(_elsewhere(state, one, now_ns) for one in sample.elsewhere if one.key == key)
    return replace(
        shown,
        used=sums.used,
        entitled=sums.entitled,
        charged=sums.charged,
        foreign=sums.foreign,
        free=sums.free,
        blind=sums.blind,
        wrapped=sums.wrapped,
        age_ms=(now_ns - sample.at_ns) // 1_000_000,
        sentence=" ".join((arithmetic(sums), *_unsold(state, key))),
        holders=_holders(state, held, kind),
        elsewhere=elsewhere,
        leaked=sum(one.leaked for one in elsewhere),
        findings=(
            *shown.findings,
            *_unread(state, sample, held),
            *_oversold(state, key, sums),
            *orphans.finding(elsewhere),
        ),
        orphan_ms=(now_ns - orphan_ns) // 1_000_000 if orphan_ns is not None else None,
        sharing=sharing(state, key, sums),
        fences=fences(state, key, held, sums, sample.elsewhere),
    )


def _unsold(state: State, key: str) -> Iterator[str]:
    if why := unsold(state, key):
        yield f"We sell none now: {why}."


def _unread(state: State, sample: KeysRead, held: Mapping[PodUid, PodKeys]) -> Iterator[str]:
    """Pods whose keys cannot be told from foreign use."""
    pods = sorted("/".join(home(state, uid)) for uid in sample.unread if uid in held and held[uid].entitled)
    if pods:
        yield (
            f"misc.current of {len(pods)} pod(s) that were promised keys cannot be read ({', '.join(pods[:4])}): what "
            "they hold counts as foreign use beside that promise, so fewer keys are free; enable misc in "
            "cgroup.subtree_control of the cgroups above them."
        )


def _oversold(state: State, key: str, sums: Count) -> Iterator[str]:
    what, remedy = oversold_now(state, key, sums)
    if what:
        yield f"{what}; {remedy}."


def _plugin(state: State, kind: KeyKind) -> str:
    told = state.keys.plugins.get(kind.publish)
    if told is None:
        return ""
    return f"{told.standing.value}: {told.why}" if told.why else told.standing.value


def _refusals(state: State, key: str) -> dict[str, int]:
    kinds = ((name.split("/", 1), count) for name, count in state.keys.refused.items())
    return {code: count for (of, code), count in kinds if of == key}


def _why_uncounted(state: State, key: str, kind: KeyKind) -> str:
    if state.keys.sample is None:
        return "the kernel has not been read yet."
    size = capacity(state, key)
    if size is None and kind.capacity_from is CapacitySource.NFD:
        return "Node Feature Discovery does not tell how many there are: use is unknown."
    if size is None:
        return "there is no misc controller, or misc.capacity cannot be read: how many there are and use are unknown."
    if is_gone(state, key):
        return f"{GONE}."
    if not size:
        return "this kernel has no such keys (none in misc.capacity)."
    return "the root's misc.current did not show them at both reads (Linux 6.6 or newer does): use is unknown."


def _holders(state: State, held: Mapping[PodUid, PodKeys], kind: KeyKind) -> tuple[KeyHolder, ...]:
    ids = all_ids(state, kind.resources)
    over = dict.fromkeys(ended(state, ids))
    rows = []
    for uid in dict.fromkeys((*held, *ids)):
        claim = held.get(uid, PodKeys())
        charged = min(claim.charged) if claim.charged else None
        gone = uid in over and not charged
        rows.append(KeyHolder(*home(state, uid), str(uid), claim.entitled, charged, ids.get(uid, ()), gone))
    return tuple(sorted(rows, key=lambda one: (one.namespace, one.pod, one.uid)))


def _elsewhere(state: State, held: HeldElsewhere, now_ns: int) -> KeyElsewhere:
    holder = _holder(held)
    age_ns, leaked = orphans.stands(state, held, now_ns)
    for_ms = None if age_ns is None else age_ns // 1_000_000
    return KeyElsewhere(held.path, _ABOUT[holder], held.amount, holder, for_ms, leaked)


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
