"""What the node is told of its TEE keys by Kubernetes Events.

What is amiss is told once it has been so for HOLDS_NS: a disk that is late once, or a node that wakes up, is nobody's
business. A loss is told at once, since it is over soon.
"""

from collections.abc import Iterator, Mapping

from nodeward.core import events as ev
from nodeward.core.refusal import Reason
from nodeward.features.keys.sums import counted, is_offered, oversold_now, uncounted, unknown
from nodeward.features.root import State

HOLDS_NS = 5_000_000_000
STALE_NS = 30_000_000_000
"""A sample is taken every two seconds; the alert on stale ones waits for as long."""


def amiss(state: State, at_ns: int) -> dict[str, Reason]:
    """What is wrong with keys now, by what it is about: why no key is given out, and where more were promised than
    there are."""
    found = {key: reason for key in state.keys.offers for reason in _uncounted(state, key, at_ns)}
    fault = state.keys.journal_fault
    for key in state.keys.offers:
        count = counted(state, key) if is_offered(state, key) else None
        what, remedy = oversold_now(state, key, count) if count is not None else ("", "")
        if what:
            found[f"oversold:{key}"] = Reason("keys-oversold", (key, what, remedy))
    if fault and _is_granting(state):
        found["journal"] = Reason("journal-refused", ("journal", fault))
    return found


def since(known: Mapping[str, int], found: Mapping[str, Reason], at_ns: int) -> Mapping[str, int]:
    """Since when each of these has been amiss; the same table where nothing has changed."""
    now = {name: known.get(name, at_ns) for name in found}
    return known if now == known else now


def happened(state: State, event: ev.Event, found: Mapping[str, Reason]) -> Iterator[tuple[Reason, int]]:
    """What is worth an Event, and how often it happened: 0 for what goes on."""
    if isinstance(event, ev.GrantsRecalled) and event.lost and _is_granting(state):
        yield Reason("journal-lost", ("journal",)), 1
    for name, reason in found.items():
        if event.at_ns - state.notices.amiss_ns.get(name, event.at_ns) >= HOLDS_NS:
            yield reason, 0


def _is_granting(state: State) -> bool:
    return any(is_offered(state, key) for key in state.settings.keys.kinds)


def _uncounted(state: State, key: str, at_ns: int) -> Iterator[Reason]:
    """Why the kernel's word on a kind is missing, if we offer it."""
    if not is_offered(state, key):
        return
    resource, sample = state.settings.keys.kinds[key].publish, state.keys.sample
    if unknown(state, key):
        yield Reason("keys-uncounted", (key, resource, *uncounted(state, key)))
        return
    since_ns = state.keys.recalled_ns if sample is None else sample.at_ns
    if since_ns and at_ns - since_ns > STALE_NS:
        why = f"the kernel's counters have not been read for {(at_ns - since_ns) // 1_000_000_000} s"
        yield Reason("keys-uncounted", (key, resource, "unread", why))
