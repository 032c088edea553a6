"""Reads the answers of a cluster's nodes and draws them as one table.

An answer comes from another version of Nodeward, or from whatever runs in that pod: what cannot be read is that node's
fault, and what is printed has no control characters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec
from rich.console import Group
from rich.table import Table
from rich.text import Text

from nodeward.cli.kubectl.nodes import MAX_SAID, Answer
from nodeward.core.conditions import Level, Severity, Verdict
from nodeward.core.finding import Finding
from nodeward.core.text import printable
from nodeward.core.workload import SHORT_ID
from nodeward.features.limits.rows import CgroupRow, pod_name
from nodeward.features.limits.words import amount
from nodeward.people.chosen import Natural, chosen, natural
from nodeward.people.rows import NodeView
from nodeward.people.table import COLOURS, URGENT
from nodeward.people.verdict import away, urgency, verdict

T = TypeVar("T")
_COLUMNS = ("NODE", "POD", "CONTAINER", "RESOURCE", "WANTED", "LIMIT", "USAGE", "REFUSED", "STATE")
_NUMBERS = _COLUMNS[4:8]


@dataclass(frozen=True, slots=True)
class Status:
    """The status of one node, or why it is missing."""

    node: str
    pod: str
    fault: str = ""
    verdict: Verdict | None = None
    """On the whole node; `status` has the rows that were asked for."""
    status: NodeView | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings on one node, or why they are missing."""

    node: str
    pod: str
    fault: str = ""
    worst: str = "ok"
    findings: tuple[Finding, ...] = ()


class _Diagnosed(msgspec.Struct):
    worst: str
    findings: tuple[Finding, ...]


def status_of(answer: Answer, namespace: str | None, states: Sequence[str]) -> Status:
    """The node's status with the rows that were asked for."""
    view, fault = _read(answer, NodeView)
    if view is None:
        return Status(answer.place.node, answer.place.pod, fault, away(fault))
    said = view.verdict or verdict(view)  # an older Nodeward sends none
    part = replace(view, verdict=said, rows=chosen(view.rows, namespace, states, first=said.pods))
    return Status(answer.place.node, answer.place.pod, fault, said, part)


def diagnosed(answer: Answer) -> Diagnosis:
    """The node's findings. doctor's exit code is one more word on them, not a fault."""
    found, fault = _read(answer, _Diagnosed)
    if found is None:
        return Diagnosis(answer.place.node, answer.place.pod, fault)
    return Diagnosis(answer.place.node, answer.place.pod, "", found.worst, found.findings)


def sentences(answer: Answer) -> tuple[list[str], str]:
    """The lines of `explain`, or why there are none."""
    lines, fault = _read(answer, list[str])
    return [printable(line) for line in lines or []], fault


def in_json(told: Sequence[Status] | Sequence[Diagnosis]) -> str:
    """All nodes as one document."""
    return msgspec.json.encode({"nodes": told}).decode()


def draw(told: Sequence[Status]) -> Group:
    """The report: how many nodes answered, what is wrong on which node, and the table."""
    views = [(one.node, one.status) for one in told if one.status is not None]
    answered = [(one.node, one.verdict) for one in told if one.status is not None]
    judged = [(node, said) for node, said in answered if said is not None and said.level is not Level.GOOD]
    level = (
        Level.BAD
        if len(views) < len(told)
        else max((said.level for _, said in judged), key=_LEVELS.index, default=Level.GOOD)
    )
    need = f", {len(judged)} of them need attention" if judged else ""
    lines = [Text(f"{len(views)} of {len(told)} nodes answer{need}.", URGENT[level])]
    lines += [Text(f"{one.node or one.pod}: no answer: {one.fault}", "red") for one in told if one.fault]
    lines += [Text(f"{node}: {printable(said.sentence)}", URGENT[said.level]) for node, said in judged]
    return Group(*lines, _table(views))


_LEVELS = (Level.GOOD, Level.ATTENTION, Level.BAD)


def _table(views: Sequence[tuple[str, NodeView]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in _COLUMNS:
        table.add_column(name, justify="right" if name in _NUMBERS else "left", overflow="fold")
    for node, row in _in_order(views):
        own = "(pod)" if row.level == "pod" else row.container or row.id[:SHORT_ID]
        told = [resource for resource in row.resources if not resource.is_idle]
        for resource in told or row.resources[:1]:
            sizes = [amount(resource.resource, value) for value in (resource.wanted, resource.limit, resource.usage)]
            refused = "-" if resource.refusals is None else str(resource.refusals)
            cells = (node, pod_name(row), own, resource.resource, *sizes, refused)
            state = resource.state or row.state
            table.add_row(*(Text(printable(cell)) for cell in cells), Text(printable(state), COLOURS.get(state, "")))
    return table


def _in_order(views: Sequence[tuple[str, NodeView]]) -> list[tuple[str, CgroupRow]]:
    """The rows of all nodes, those of pods with the most urgent conditions first; each node's in the order for
    people."""
    found = list[tuple[tuple[int, int, Natural], str, CgroupRow]]()
    for node, view in views:
        wrong = view.verdict.pods if view.verdict is not None else {}
        for row in view.rows:
            rank = min((one.severity.rank for one in wrong.get(pod_name(row), ())), default=len(Severity))
            found.append(((rank, urgency(row.state), natural(node)), node, row))
    return [(node, row) for _, node, row in sorted(found, key=lambda one: one[0])]


def print_findings(one: Diagnosis) -> None:
    """Prints what is wrong on a node; of one where all is, one line."""
    node = one.node or one.pod
    if one.fault:
        print(f"{node}: no answer: {one.fault}")
        return
    print(f"{node}: {printable(one.worst)}")
    for finding in one.findings:
        if finding.severity.value != "ok":
            print(printable(f"  {finding.severity.value:<8}{finding.code}: {finding.what} [{finding.where}]"))
            if finding.remedy:
                print(printable(f"          {finding.remedy}"))


def _read(answer: Answer, kind: type[T]) -> tuple[T | None, str]:
    if answer.fault:
        return None, answer.fault
    try:
        return msgspec.json.decode(answer.said, type=kind), ""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if answer.code:
            return None, answer.complaint or f"nodeward ended with {answer.code}"
        return None, f"an answer of another version of Nodeward: {printable(str(error), MAX_SAID)}"
