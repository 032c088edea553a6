"""The node as a table for a terminal; used by `status` and the live view of `sim`.

One line a pod. In the wide form a pod's name has a line of its own and its cgroups stand below it, so that the columns
fit in 80. Bytes are in binary units: a whole number of them (`4Mi`) is exact, one with a point (`3.62Mi`) is cut; JSON
has every byte.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from rich.console import Console, ConsoleOptions, Group
from rich.text import Text

from nodeward.core.conditions import Condition, Level, Severity
from nodeward.core.text import printable
from nodeward.core.workload import SHORT_ID
from nodeward.features.cpus import words as cpu_words
from nodeward.features.limits.rows import CgroupRow, ResourceRow, pod_name
from nodeward.features.limits.words import amount, enclave_sentences
from nodeward.features.sandboxes import words as sandbox_words
from nodeward.features.sandboxes.values import Fit
from nodeward.people.pods import ATTENTION, BAD, PodRow, columns, cpu_word, is_at_work, ordered, pod_rows
from nodeward.people.rows import ComponentRow, NodeView
from nodeward.people.verdict import verdict

MOST_TROUBLES = 5
"""Sentences of one feature; its own command has all."""


def _first(head: str, wrong: Iterable[str], command: str, style: str) -> list[Text]:
    """The head, and the first of the lines on what is wrong; the command has all."""
    lines = list(wrong)
    more = [f"... and {len(lines) - MOST_TROUBLES} more, see {command}"] if len(lines) > MOST_TROUBLES else []
    return [Text(head), *(Text(line, style=style) for line in (*lines[:MOST_TROUBLES], *more))]


def sandbox_lines(view: NodeView) -> list[Text]:
    """Lines above the table of pods; none where there is no VM sandbox."""
    found = view.sandboxes
    if found is None or not (found.rows or found.misses):
        return []
    is_bad = any(row.fit.fit in (Fit.KILLED.value, Fit.WAS_KILLED.value) for row in found.rows)
    style = "red" if is_bad else "yellow"
    return _first(sandbox_words.head(found), sandbox_words.troubles(found), "nodeward vms", style)


COLOURS = {
    "enforced": "green",
    "drift": "red",
    "stale": "yellow",
    "unsupported": "yellow",
    "controller-off": "yellow",
    "outside": "red",
}
URGENT = {Level.GOOD: "bold green", Level.ATTENTION: "bold yellow", Level.BAD: "bold red"}
_STYLES = {Severity.CRITICAL: "red", Severity.WARNING: "yellow"}
_NUMBERS = ("WANTED", "LIMIT", "USAGE", "PEAK", "REFUSED", "HERE")
_PIPE_WIDTH = 1000
"""Wider than any line: what reads a pipe may cut it."""
LEGEND = (
    "WANTED promised  LIMIT in the kernel  USAGE now  PEAK most so far",
    "REFUSED charges refused here or below  HERE by this limit itself  - not known",
)
LEGEND_OF_PODS = ("EPC used / limit, in brackets one that is not enforced; VM whether it fits its pod's limit",)
TONES = {BAD: "red", ATTENTION: "yellow"}
_GAP = 2
_LEAST_NAME = 9
_LEAST_CELL, _LEAST_POD = 11, 16
MOST_SHUT = 8
"""Pods whose gate is shut, with a line each; `-o json` has all."""


class _Output(Console):
    def on_broken_pipe(self) -> None:
        raise  # rich would end with 1; how a closed pipe ends a command, main says


def console() -> Console:
    """Standard output; wide enough for every name where it is no terminal and nobody says how wide."""
    return _Output(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH)


def judged(
    view: NodeView, whole: NodeView, height: int | None = None, *, pods: Sequence[PodRow] = (), is_wide: bool = False
) -> Group:
    """The verdict on the whole node in one sentence, and what `render` draws of the view, which may be a part of it."""
    said = whole.verdict or verdict(whole)
    sentence = Text(said.sentence, style=URGENT[said.level], no_wrap=height is not None, overflow="ellipsis")
    left = None if height is None else height - 1
    return Group(sentence, render(replace(view, verdict=said), left, pods=pods, is_wide=is_wide))


def live(
    view: NodeView,
    whole: NodeView,
    height: int,
    happened: Sequence[str] = (),
    *,
    pods: Sequence[PodRow] = (),
    is_wide: bool = False,
    keys: str = "",
) -> Group:
    """The picture of `judged` in `height` lines, with recent happenings, the legend and the line of `keys` at its
    end."""
    below = [Text(line, "yellow", no_wrap=True, overflow="ellipsis") for line in happened]
    legend = LEGEND if is_wide else LEGEND_OF_PODS
    below += [Text(line, "dim", no_wrap=True, overflow="ellipsis") for line in (*legend, *([keys] if keys else []))]
    return Group(judged(view, whole, max(height - len(below), 1), pods=pods, is_wide=is_wide), *below)


def render(
    view: NodeView, height: int | None = None, *, pods: Sequence[PodRow] | None = None, is_wide: bool = False
) -> Group:
    """The head line, the capacity, what is wrong, and the table of `pods` (without them: of all), or in the wide form
    of the view's cgroups; with `height`, in at most so many lines."""
    parts = [Text(_head(view))]
    if not view.alone:
        parts.append(Text(_capacity(view)))
    parts += [Text(f"keys {row.key}: {row.sentence}") for row in view.keys]
    parts += [Text(line) for line in enclave_sentences(view.enclaves)] if view.enclaves is not None else []
    parts += cpu_lines(view)
    parts += sandbox_lines(view)
    parts += _gates(view)
    if view.relay is not None or view.relay_fault or view.alone:
        from nodeward.people.relay_table import relay_lines  # most nodes have none

        parts += relay_lines(view)
    if view.tree.version == 1:
        parts.append(Text(f"cgroup v1 at {view.tree.root}: limits are written at the start", style="yellow"))
    if view.lines.state in ("held", "unverified"):
        parts.append(Text(f"nri.multi_line {view.lines.state}: {view.lines.why}", style="yellow"))
    parts += [Text(f"not ready: {component_line(row)}", style="yellow") for row in view.components if not row.ready]
    parts += [Text(line, style="red") for line in _troubles(view)]
    wrong, above = (view.verdict or verdict(view)).pods, tuple(parts)
    if is_wide:
        return Group(*parts, _Rows(ordered(view.rows, wrong), cpus_by_container(view), height, above, wrong))
    return Group(*parts, PodTable([("", row) for row in (pod_rows(view) if pods is None else pods)], height, above))


class PodTable:
    """One line a pod, laid out for the width it is drawn in: the widest column is cut first, and a pod's name, whose
    end tells it from others, last. With the names of nodes a first column has them; with a height, in as many lines as
    it leaves beneath what is `above`."""

    def __init__(
        self, pods: Sequence[tuple[str, PodRow]], height: int | None = None, above: Sequence[Text] = ()
    ) -> None:
        self._pods, self._height, self._above = pods, height, above

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        names = columns(row for _, row in self._pods)
        nodes = ["NODE"] if any(node for node, _ in self._pods) else []
        head = [*nodes, "POD", *(printable(name).upper() for name in names), "STATE"]
        shown = self._pods
        if self._height is not None:  # a sentence may take several lines
            taken = sum(len(text.wrap(console, options.max_width)) for text in self._above)
            shown = shown[: max(self._height - taken - 2, 1)]
        lines = [
            [
                *([(printable(node), "")] if nodes else []),
                (printable(row.name), ""),
                *_cells(row, names),
                (printable(row.state) or "-", row.tone),
            ]
            for node, row in shown
        ]
        widths = [max(len(name), *(len(line[at][0]) for line in lines), 0) for at, name in enumerate(head)]
        over = sum(widths) + _GAP * (len(widths) - 1) - options.max_width
        name = len(nodes)
        others = [at for at in range(len(head) - 1) if at != name]
        for columns_, least in ((others, _LEAST_CELL), ([name], _LEAST_POD)):
            while over > 0 and (wide := [at for at in columns_ if widths[at] > max(least, len(head[at]))]):
                widths[max(wide, key=lambda at: widths[at])] -= 1
                over -= 1
        yield _laid([(title, "") for title in head], widths)
        for line in lines:
            said, tone = line[name]
            line[name] = (said if len(said) <= widths[name] else f"…{said[1 - widths[name] :]}", tone)
            yield _laid(line, widths)
        if len(shown) < len(self._pods):
            yield Text(f"... and {len(self._pods) - len(shown)} more pods")


def _cells(row: PodRow, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        cell = row.cells.get(name)
        yield ("-", "") if cell is None else (printable(cell.text), cell.tone)


def _laid(line: Sequence[tuple[str, str]], widths: Sequence[int]) -> Text:
    text = Text(no_wrap=True, overflow="crop")
    for at, ((said, tone), width) in enumerate(zip(line, widths, strict=True)):
        cut = said if len(said) <= width else f"{said[: width - 1]}…"
        text.append(cut if at == len(line) - 1 else f"{cut:{width + _GAP}}", TONES.get(tone, ""))
    return text


def _gates(view: NodeView) -> list[Text]:
    """How many pods have asked at their gates, and which of them must not start."""
    gates = view.gates
    if gates is None:
        return []
    shut = [row for row in gates.rows if row.why]
    head = f"gates: mode {gates.mode}, {len(gates.rows)} pods, {len(shut)} shut, {gates.refused} containers refused"
    lines = [Text(head)] + [Text(f"verdicts of before are lost: {gates.fault}", "red")] * bool(gates.fault)
    lines += [
        Text(f"  {printable(f'{row.namespace}/{row.pod} {row.verdict}: {row.why}')}", "yellow")
        for row in shut[:MOST_SHUT]
    ]
    return lines + [Text(f"  ... and {len(shut) - MOST_SHUT} more", "yellow")] * (len(shut) > MOST_SHUT)


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of the table: a pod's name with its conditions, or a cgroup's resource."""

    name: str
    resource: str = ""
    numbers: tuple[str, ...] = ()
    state: str = ""
    cpus: str = ""
    style: str = ""


class _Rows:
    """A heading and rows, laid out for the width they are drawn in; as many as `height` leaves beneath what is
    `above`, at least one."""

    def __init__(
        self,
        rows: tuple[CgroupRow, ...],
        cpus: Mapping[str, str],
        height: int | None,
        above: tuple[Text, ...],
        wrong: Mapping[str, tuple[Condition, ...]],
    ) -> None:
        self._lines, self._height, self._above = list(_lines(rows, cpus, wrong)), height, above
        self._many = len(dict.fromkeys(one.resource for row in rows for one in row.resources)) > 1

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        lines = self._lines
        if self._height is not None:  # a sentence may take several lines
            taken = sum(len(text.wrap(console, options.max_width)) for text in self._above)
            lines = lines[: max(self._height - taken - 2, 1)]
        pinned = any(line.cpus for line in lines)
        head = _Line("POD / CONTAINER", "RESOURCE" if self._many else "", _NUMBERS, "STATE", "CPUS" if pinned else "")
        shown = [head, *(line for line in lines if line.numbers)]
        cpus = max(len(line.cpus) for line in shown) + 1 if pinned else 0
        widths = [max(len(line.numbers[place]) for line in shown) for place in range(len(_NUMBERS))]
        resource = max(len(line.resource) for line in shown) + 1 if self._many else 0
        rest = cpus + resource + sum(width + 1 for width in widths) + 1 + max(len(line.state) for line in shown)
        name = max(min(max(len(line.name) for line in shown), options.max_width - rest), _LEAST_NAME)
        for line in [head, *lines]:
            yield self._text(line, name, cpus, resource, widths)
        if len(lines) < len(self._lines):
            yield Text(f"... and {len(self._lines) - len(lines)} more lines")

    def _text(self, line: _Line, name: int, cpus: int, resource: int, widths: list[int]) -> Text:
        if not line.numbers:
            text = Text(printable(line.name), style="bold")
            return text.append(f"  {line.state}", line.style) if line.state else text
        whole = printable(line.name)
        short = whole if len(whole) <= name else whole[: name - 1] + "…"
        numbers = "".join(f" {number:>{width}}" for number, width in zip(line.numbers, widths, strict=True))
        text = Text(f"{short:{name}}", no_wrap=True, overflow="crop")
        if cpus:
            text.append(f" {line.cpus:{cpus - 1}}")
        if self._many:
            text.append(f" {line.resource:{resource - 1}}")
        return text.append(f"{numbers} ").append(line.state, COLOURS.get(line.state, ""))


def _lines(
    rows: tuple[CgroupRow, ...], cpus: Mapping[str, str], wrong: Mapping[str, tuple[Condition, ...]]
) -> Iterator[_Line]:
    pod: tuple[str, str] | None = None
    for row in rows:
        if pod != (row.namespace, row.pod):
            pod = (row.namespace, row.pod)
            found = wrong.get(pod_name(row), ())
            codes = ", ".join(dict.fromkeys(one.code for one in found))
            yield _Line(pod_name(row), state=codes, style=_STYLES[found[0].severity] if found else "")
        name = "  " + ("(pod)" if row.level == "pod" else row.container or row.id[:SHORT_ID])
        told = [resource for resource in row.resources if not resource.is_idle]
        own = cpus.get(f"{pod_name(row)}/{row.container}", "-") if cpus and row.level != "pod" else ""
        for resource in told or row.resources[:1]:
            yield _Line(name, resource.resource, _numbers(resource), resource.state, own)
            own = ""


def _numbers(row: ResourceRow) -> tuple[str, ...]:
    sizes = (amount(row.resource, value) for value in (row.wanted, row.limit, row.usage, row.peak))
    counts = ("-" if value is None else str(value) for value in (row.refusals, row.refusals_here))
    return (*sizes, *counts)


def _head(view: NodeView) -> str:
    if view.alone:
        return f"limits {view.mode} | relay"
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
    if view.settings.policy_object:
        lines.append(f"the policy is by {view.settings.policy_object}")
    if view.settings.policy_object_faults:
        lines.append(f"a policy object was refused: {'; '.join(view.settings.policy_object_faults)}")
    broken = dict.fromkeys(pod_name(row) for row in view.rows if row.faults)
    if broken:
        lines.append(f"declarations with faults, see nodeward explain: {', '.join(broken)}")
    if view.health.get("not_restorable"):
        lines.append(
            f"{view.health['not_restorable']} change(s) could not be written to the undo list (not restorable)"
        )
    if view.health.get("state_unread"):
        lines.append("state_dir could not be read at the start, see the log; earlier changes may be not restorable")
    return lines


def _capacity(view: NodeView) -> str:
    if view.tree.fault:
        return f"nothing can be counted or limited: {view.tree.fault}"
    if not view.controller:
        return "this kernel has no misc controller: nothing can be enforced"
    outside = {
        name: f" ({amount(name, held)} outside of the known pods)" for name, held in view.elsewhere.items() if held
    }
    shown = [
        f"{name} {amount(name, view.usage.get(name, 0))} of {amount(name, most)}{outside.get(name, '')}"
        for name, most in view.capacity.items()
    ]
    return "capacity: " + (", ".join(shown) or "this kernel offers no misc resource")


def cpu_lines(view: NodeView) -> list[Text]:
    """The lines above the table of pods; none where no policy is at work."""
    if view.cpus is None or not is_at_work(view.cpus):
        return []
    return _first(cpu_words.head(view.cpus), cpu_words.troubles(view.cpus), "nodeward cpus", "red")


def cpus_by_container(view: NodeView) -> Mapping[str, str]:
    """A word of each container: its own CPUs, or the pool that it shares; `?` while the kernel does not say so yet."""
    if view.cpus is None or not is_at_work(view.cpus):
        return {}
    return {row.name: cpu_word(row) for row in view.cpus.holders}
