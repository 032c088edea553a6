"""The node as a table for a terminal; used by `status`, `top` and the live view of `sim`."""

from datetime import UTC, datetime

from rich.console import Group
from rich.table import Table
from rich.text import Text

from nodeward.model.view import CgroupRow, ComponentRow, NodeView

_COLOURS = {"enforced": "green", "drift": "red", "stale": "yellow", "unsupported": "yellow", "controller-off": "yellow"}


def render(view: NodeView, most: int | None = None) -> Group:
    """The head line, the capacity and a table of at most `most` rows."""
    table = Table(box=None, pad_edge=False)
    for name, right in (
        ("POD", False), ("CONTAINER", False), ("RESOURCE", False), ("DECLARED", True), ("LIMIT", True), ("USAGE", True),
        ("PEAK", True), ("REFUSED", True), ("STATE", False),
    ):  # fmt: skip
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    rows = view.rows if most is None else view.rows[:most]
    for row in rows:
        _add(table, row)
    parts: list[Text | Table] = [Text(_head(view)), Text(_capacity(view))]
    parts += [Text(f"not ready: {component_line(row)}", style="yellow") for row in view.components if not row.ready]
    parts += [Text(line, style="red") for line in _troubles(view)] + [table]
    if len(rows) < len(view.rows):
        parts.append(Text(f"... and {len(view.rows) - len(rows)} more"))
    return Group(*parts)


def _head(view: NodeView) -> str:
    api = f"{view.api} since {view.api_stale_since}" if view.api_stale_since else view.api
    return f"limits {view.mode} | runtime {view.runtime or 'not connected'} | API server {api} | event {view.seq}"


def component_line(row: ComponentRow) -> str:
    """One source, for people."""
    since = ""
    if row.since_wall_ns:
        since = f", since {datetime.fromtimestamp(row.since_wall_ns / 1e9, UTC).isoformat('T', 'seconds')}"
    return f"{row.name}: {row.detail}{since}"


def _troubles(view: NodeView) -> list[str]:
    lines = [
        f"lane {name.removeprefix('lane_').removesuffix('_hung')}: {count} call(s) hang; see the log for where"
        for name, count in view.health.items()
        if name.startswith("lane_") and name.endswith("_hung") and count
    ]
    if view.settings.faults:
        lines.append(f"newer settings were refused, older ones hold: {'; '.join(view.settings.faults)}")
    if view.settings.need_restart:
        lines.append(f"settings that need a restart: {', '.join(view.settings.need_restart)}")
    broken = dict.fromkeys(f"{row.namespace}/{row.pod}" for row in view.rows if row.faults)
    if broken:
        lines.append(f"declarations with faults, see nodeward explain: {', '.join(broken)}")
    if view.health.get("not_restorable"):
        lines.append(
            f"{view.health['not_restorable']} change(s) could not be written to the undo list (not restorable)"
        )
    return lines


def _capacity(view: NodeView) -> str:
    if not view.controller:
        return "this kernel has no misc controller: nothing can be enforced"
    outside = {name: f" ({amount} outside of the known pods)" for name, amount in view.elsewhere.items()}
    shown = [
        f"{name} {view.usage.get(name, 0)} of {amount}{outside.get(name, '')}" for name, amount in view.capacity.items()
    ]
    return "capacity: " + (", ".join(shown) or "this kernel offers no misc resource")


def _add(table: Table, row: CgroupRow) -> None:
    name = f"{row.namespace}/{row.pod}"
    state = Text(row.state, style=_COLOURS.get(row.state, ""))
    resources = row.resources or ()
    for resource in resources:
        table.add_row(
            name if row.level == "pod" else "",
            row.container or "(pod)",
            resource.resource,
            _shown(resource.wanted),
            _shown(resource.limit),
            _shown(resource.usage),
            _shown(resource.peak),
            _shown(resource.refusals),
            state,
        )


def _shown(value: int | None) -> str:
    return "-" if value is None else str(value)
