"""The lines about the relay in the table of `nodeward status`."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from nodeward.neighbours.cri.rows import AddedRow, CallRow, DaemonRow, DoorRow
from nodeward.people.relay_view import RelayView
from nodeward.people.rows import NodeView

MOST_METHODS = 8
"""With a row each, those that were called most; `-o json` has all."""
_PASSED, _OK = "passed", "OK"


def relay_lines(view: NodeView) -> list[Text]:
    """The lines above the table of pods; none where there is no relay."""
    lines = [Text(view.alone, style="yellow")] if view.alone else []
    if view.relay_fault:
        lines.append(Text(view.relay_fault, style="red"))
    if view.relay is not None:
        lines += _lines(view.relay)
    lines += _held(view)
    return lines


def _held(view: NodeView) -> Iterator[Text]:
    """What became of calls that a relay held for this daemon, but for limits and CPUs."""
    for what, row in (("sizes of VMs", view.sizing), ("gates", view.gate_calls)):
        if row.mode != "off":
            counts = ", ".join(f"{count} {how}" for how, count in sorted(row.counts.items()))
            yield Text(f"  {what}: mode {row.mode}, {counts or 'no such pod yet'}")
            if row.last:
                yield Text(f"    last: {row.last}")
    guard = view.vm_guard
    if "refuse" in (guard.checkpoint, guard.resize):
        counts = ", ".join(f"{count} {what}" for what, count in sorted(guard.counts.items()))
        rules = f"vm_checkpoint {guard.checkpoint}, vm_resize {guard.resize}"
        yield Text(f"  VM sandboxes: {rules}; {counts or 'no such call yet'}")
        if guard.last:
            yield Text(f"    last: {guard.last}")


def _lines(relay: RelayView) -> Iterator[Text]:
    for door in relay.doors:
        yield _door(door)
    if relay.daemon.wants:
        yield _daemon(relay.daemon)
    if relay.settings_faults:
        yield Text("  settings: refused, and not in force")
        yield from (Text(f"    {fault}", "red") for fault in relay.settings_faults)
    if relay.dump is not None:
        dump = relay.dump
        style = "red" if dump.lost else ""
        lost = f"{dump.lost} lost, {dump.cut} cut" if dump.cut else f"{dump.lost} lost"
        yield Text(f"  dump {dump.file}: {dump.told} told, {lost}, {dump.waiting_bytes} bytes wait", style)
    if not relay.counted:
        yield Text("  calls are not counted: relay.count_calls is false")
    for row in relay.added:
        if row.count:
            yield Text(f"  added to calls that are {row.how}: {_added(row)}")
    most = sorted(relay.calls, key=lambda row: -sum(row.results.values()))
    yield from _table(most[:MOST_METHODS])
    if len(most) > MOST_METHODS:
        rest = sum(sum(row.results.values()) for row in most[MOST_METHODS:])
        yield Text(f"  ... and {rest} calls of {len(most) - MOST_METHODS} more methods")


def _door(door: DoorRow) -> Text:
    runtime = {True: "answers", False: "is absent", None: "was not asked yet"}[door.present]
    unseen = f", {door.unseen} connections could not be followed" if door.unseen else ""
    undecided = f", {door.undecided} calls could not be decided" if door.undecided else ""
    faults = f", {door.faults} faults of the relay's own" if door.faults else ""
    bad = door.present is False or bool(unseen or undecided or faults)
    text = f"relay {door.listen} -> {door.runtime}, which {runtime}; {door.clients} clients{unseen}{undecided}{faults}"
    return Text(text, "red" if bad else "")


def _daemon(row: DaemonRow) -> Text:
    wants = ", ".join(row.wants)
    if row.process:
        return Text(f"  calls are held for {wants}, and decided by the node daemon (process {row.process})")
    return Text(f"  calls are held for {wants}, and nobody decides them: {row.why}", "red")


def _added(row: AddedRow) -> str:
    return f"{row.sum_ns / row.count / 1e6:.3f} ms in the mean, 99 in 100 {_within(row, 0.99)}; {row.count} calls"


def _within(row: AddedRow, share: float) -> str:
    bound = next((nanoseconds for nanoseconds, count in row.at_most if count >= row.count * share), None)
    return "longer than can be told" if bound is None else f"at most {bound / 1e6:.3g} ms"


def _table(rows: Sequence[CallRow]) -> Iterator[Text]:
    if not rows:
        return
    table: list[tuple[str, ...]] = [("CALL", "CALLS", "FAILED", "HELD", "CHANGED", "REFUSED")]
    for row in rows:
        count, fates = sum(row.results.values()), row.fates
        held = count - fates.get(_PASSED, 0)
        shown = count, count - row.results.get(_OK, 0), held, fates.get("changed", 0), fates.get("refused", 0)
        table.append((row.method, *map(str, shown)))
    widths = [max(len(line[place]) for line in table) for place in range(len(table[0]))]
    for line in table:
        numbers = "".join(f" {cell:>{width}}" for cell, width in zip(line[1:], widths[1:], strict=True))
        yield Text(f"  {line[0]:{widths[0]}}{numbers}")
