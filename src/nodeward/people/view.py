"""Makes the picture of a node from the state, with each feature's rows."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from nodeward.core.ports import Pace, at_once
from nodeward.features.all import FEATURES
from nodeward.features.keys.rows import KeyRow
from nodeward.features.lately.view import lately_rows
from nodeward.features.limits.rows import CgroupRow
from nodeward.features.limits.view import ROWS_AT_ONCE, _elsewhere, _row, _stale_since, without_cgroup
from nodeward.features.root import State
from nodeward.people.pods import taken_by_pods
from nodeward.people.rows import NodeView


def node_view(state: State, now_ns: int, health: Mapping[str, int], pace: Pace = at_once) -> NodeView:
    """The node now; rows by namespace, pod, pod before its containers."""
    every = state.limits.wanted
    annotated = dict.fromkeys(one.pod_uid for one in every.values() if one.container_id is not None and one.known)
    shown: dict[str, Any] = {one.shown: one.view(state, now_ns, pace) for one in FEATURES if one.view is not None}
    counted = dict.fromkeys(one.uid for row in shown["keys"] for one in row.holders)
    items = [*every.items(), *without_cgroup(state)]
    rows = [_row(state, path, wanted, now_ns, annotated, counted) for path, wanted in pace(items, ROWS_AT_ONCE)]
    elsewhere = _elsewhere(state, now_ns)
    promised, free = shares(state.limits.capacity, elsewhere, rows, shown["keys"])
    return NodeView(
        mode=state.settings.limits.mode.value,
        runtime=state.pods.runtime,
        api=_api(state),
        controller=state.limits.controller,
        capacity=state.limits.capacity,
        usage=state.limits.usage,
        rows=tuple(sorted(rows, key=lambda row: (row.namespace, row.pod, row.level != "pod", row.container, row.id))),
        seq=state.seq,
        api_stale_since=_stale_since(state),
        health=health,
        elsewhere=elsewhere,
        promised=promised,
        free=free,
        tree=state.limits.tree,
        lately=lately_rows(state, now_ns),
        **shown,
    )


def shares(
    capacity: Mapping[str, int], elsewhere: Mapping[str, int], rows: Collection[CgroupRow], keys: Iterable[KeyRow]
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Of each resource what pods were promised, and what is left. Of a pod what it was promised or what it uses is not
    left, whichever is more."""
    promised, taken = dict.fromkeys(capacity, 0), taken_by_pods(rows, capacity)
    for part in (part for row in rows if row.level == "pod" for part in row.resources if part.resource in capacity):
        promised[part.resource] += part.wanted or 0
    free = {name: max(0, most - taken[name] - elsewhere[name]) for name, most in capacity.items() if name in elsewhere}
    for kind in (kind for kind in keys if kind.key in capacity):
        promised[kind.key] = kind.entitled or 0
        free.pop(kind.key, None)
        if kind.free is not None:
            free[kind.key] = kind.free
    return promised, free


def _api(state: State) -> str:
    if state.pods.api_up:
        return "answers"
    return "stale" if state.pods.stale_since_wall_ns else "not reached yet"
