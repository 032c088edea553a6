"""The metrics of TEE keys, of the kinds that the node has, or offers since it had them."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from nodeward.core.events import PluginStanding
from nodeward.core.ports import Pace
from nodeward.core.shown import Clean, Family, Labels, Series, counter, gauge
from nodeward.features.keys.rows import KeyOffer, KeyRow
from nodeward.features.keys.terms import REFUSALS, KeyState

CAPACITY = gauge("nodeward_keys_capacity", ("key",), "Keys that the node has. Absent for none.")
RESERVE = gauge("nodeward_keys_reserve", ("key",), "Keys that the settings keep back.")
USED = gauge("nodeward_keys_used", ("key",), "Keys in use on the node.")
ENTITLED = gauge("nodeward_keys_entitled", ("key",), "Keys promised to pods, taken or not.")
CHARGED = gauge("nodeward_keys_charged", ("key",), "Keys that known pods hold.")
FOREIGN = gauge("nodeward_keys_foreign", ("key",), "Keys in use that no known pod holds.")
ELSEWHERE = gauge(
    "nodeward_keys_elsewhere", ("key", "class"), "Foreign keys whose cgroup was found, by the kind of holder."
)
FREE = gauge("nodeward_keys_free", ("key",), "Keys neither held, promised, foreign nor kept back.")
BLIND = gauge("nodeward_keys_blind", ("key",), "1 while a counter below zero hides which pod holds keys, else 0.")
WRAPPED = gauge("nodeward_keys_wrapped", ("key",), "1 while the node's counter is below zero, else 0.")
AGE = gauge("nodeward_keys_sample_age_seconds", ("key",), "Time since the counters were last read.")
ORPHAN_AGE = gauge(
    "nodeward_keys_orphan_age_seconds", ("key",), "How long a removed cgroup has held a key. Absent for none."
)
LEAKED = gauge("nodeward_keys_leaked", ("key",), "Keys held by removed cgroups for at least 15 minutes.")
IDS = gauge("nodeward_keys_ids", ("key", "state"), "Ids offered to kubelet, by state.")
REFUSED = counter(
    "nodeward_keys_refusals_total", ("key", "reason"), "Requests of kubelet that were refused, by reason."
)
WITHHELD = gauge("nodeward_keys_withheld", ("key", "reason"), "1 while no id is offered, for this reason.")
DELAYS = Family(
    "nodeward_keys_withholding_duration_seconds",
    "histogram",
    ("key",),
    "From the last sample without new foreign use until kubelet was told of fewer healthy ids.",
)
PLUGIN = gauge(
    "nodeward_keys_plugin_state", ("key", "state"), "1 for the state of the device plugin, 0 for the others."
)
KUBELET_RESTARTS = counter("nodeward_keys_kubelet_restarts_total", ("key",), "How often kubelet's socket was replaced.")
JOURNAL_FAULT = gauge(
    "nodeward_keys_journal_fault", ("key",), "1 while grants cannot be recorded, so none is given, else 0."
)
JOURNAL_LOST = gauge("nodeward_keys_journal_lost", ("key",), "1 while ids are out whose journal was removed, else 0.")
QUOTES = gauge(
    "nodeward_keys_quotes_answer", ("key",), "1 while the quote service answers, else 0. Absent if not asked."
)
SHARE = gauge("nodeward_keys_share_info", ("key", "mode", "nfd"), "1, with how NFD's number is shared.")
SHARED = gauge("nodeward_keys_nfd", ("key", "kind"), "NFD's number: as wanted, and as in Nodeward's object (ours).")
FAMILIES = tuple(value for value in list(globals().values()) if isinstance(value, Family))

OF_KIND: dict[Family, Callable[[KeyRow], float | None]] = {
    USED: lambda row: row.used,
    ENTITLED: lambda row: row.entitled,
    CHARGED: lambda row: row.charged,
    FOREIGN: lambda row: row.foreign,
    FREE: lambda row: row.free,
    BLIND: lambda row: None if row.used is None else row.blind,
    WRAPPED: lambda row: None if row.used is None else row.wrapped,
    AGE: lambda row: None if row.age_ms is None else row.age_ms / 1e3,
    LEAKED: lambda row: None if row.used is None else row.leaked,
    ORPHAN_AGE: lambda row: None if row.orphan_ms is None else row.orphan_ms / 1e3,
}
"""What is known of a kind of key once the kernel was read, by its family."""


def series(kinds: Sequence[KeyRow], clean: Clean, _: Pace) -> Iterator[Series]:
    """Each family with its series."""
    rows = [({"key": clean(row.key)}, row) for row in kinds if row.capacity or row.ids]
    yield CAPACITY, [(labels, row.capacity) for labels, row in rows if row.capacity]
    yield RESERVE, [(labels, row.reserve) for labels, row in rows]
    for family, value in OF_KIND.items():
        known = [(labels, value(row)) for labels, row in rows]
        yield family, [(labels, number) for labels, number in known if number is not None]
    held: dict[tuple[str, str], int] = {}
    for labels, row in rows:
        for other in row.elsewhere:
            place = (labels["key"], other.holder)
            held[place] = held.get(place, 0) + other.amount
    yield ELSEWHERE, [({"key": key, "class": whose}, amount) for (key, whose), amount in held.items()]
    yield from _offers(rows)


def _offers(rows: list[tuple[Labels, KeyRow]]) -> Iterator[Series]:
    """What kubelet is offered, and NFD told."""
    ids: dict[tuple[str, str], int] = {}
    for labels, row in rows:
        for state in KeyState if row.ids else ():
            ids[labels["key"], state.value] = sum(one.state == state.value for one in row.ids)
    yield IDS, [({"key": key, "state": state}, count) for (key, state), count in ids.items()]
    offers = [(labels, row.offer) for labels, row in rows if row.offer is not None]
    can_be = dict.fromkeys(REFUSALS, 0)  # a counter that begins at its first refusal would hide that one
    refused = [(labels, can_be | dict(row.refusals)) for labels, row in rows if row.offer is not None or row.refusals]
    yield REFUSED, [({**labels, "reason": code}, n) for labels, of in refused for code, n in of.items()]
    parts: tuple[tuple[Family, str, Callable[[KeyOffer], Mapping[str, float]]], ...] = (
        (WITHHELD, "reason", lambda one: {one.withheld: 1} if one.withheld else {}),
        (PLUGIN, "state", lambda one: {state.value: state.value == one.standing for state in PluginStanding}),
    )
    for family, name, numbers in parts:
        yield (
            family,
            [({**labels, name: part}, count) for labels, one in offers for part, count in numbers(one).items()],
        )
    yield DELAYS, [(labels, one.delays) for labels, one in offers]
    yield KUBELET_RESTARTS, [(labels, one.kubelet_restarts) for labels, one in offers]
    yield JOURNAL_FAULT, [(labels, bool(one.journal_fault)) for labels, one in offers]
    yield JOURNAL_LOST, [(labels, bool(one.journal_lost)) for labels, one in offers]
    quotes = [(labels, one.quotes) for labels, one in offers]
    yield QUOTES, [(labels, answers) for labels, answers in quotes if answers is not None]
    shares = [(labels, row.sharing) for labels, row in rows if row.sharing is not None]
    yield SHARE, [({**labels, "mode": one.mode, "nfd": one.nfd}, 1) for labels, one in shares]
    told = [(labels, kind, n) for labels, one in shares for kind, n in (("wanted", one.total), ("ours", one.written))]
    yield SHARED, [({**labels, "kind": kind}, n) for labels, kind, n in told if n is not None]
