"""Reads the answers of a cluster's nodes and draws them as one table.

An answer comes from another version of Nodeward, or from whatever runs in that pod: what cannot be read is that node's
fault, and what is printed has no control characters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec
from rich.console import Group
from rich.text import Text

from nodeward.cli.kubectl.nodes import MAX_SAID, Answer
from nodeward.core.conditions import Level, Verdict
from nodeward.core.finding import Finding
from nodeward.core.text import printable
from nodeward.people.pods import ATTENTION, BAD, PodRow, chosen, chosen_pods, natural
from nodeward.people.rows import NodeView
from nodeward.people.table import URGENT, PodTable
from nodeward.people.verdict import away, verdict

T = TypeVar("T")


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


@dataclass(frozen=True, slots=True)
class Passed:
    """What a command printed on one node, as lines or as data, or why that is missing."""

    node: str
    pod: str
    fault: str = ""
    code: int = 0
    answer: object = None
    lines: tuple[str, ...] = ()


class _Diagnosed(msgspec.Struct):
    worst: str
    findings: tuple[Finding, ...]


def status_of(answer: Answer, namespace: str | None, states: Sequence[str]) -> tuple[Status, tuple[PodRow, ...]]:
    """The node's status with the rows that were asked for, and its pods that were."""
    view, fault = _read(answer, NodeView)
    if view is None:
        return Status(answer.place.node, answer.place.pod, fault, away(fault)), ()
    said = view.verdict or verdict(view)  # an older Nodeward sends none
    pods = chosen_pods(replace(view, verdict=said), namespace, states)
    part = replace(view, verdict=said, rows=chosen(view.rows, namespace, states, first=said.pods, pods=pods))
    return Status(answer.place.node, answer.place.pod, fault, said, part), pods


def diagnosed(answer: Answer) -> Diagnosis:
    """The node's findings. doctor's exit code is one more word on them, not a fault."""
    found, fault = _read(answer, _Diagnosed)
    if found is None:
        return Diagnosis(answer.place.node, answer.place.pod, fault)
    return Diagnosis(answer.place.node, answer.place.pod, "", found.worst, found.findings)


def passed(answer: Answer, is_text: bool) -> Passed:
    """What a command printed: its lines, or its JSON. A command that failed says why in its last line."""
    place = answer.place
    if answer.fault or (answer.code and not answer.said.strip()):
        return Passed(place.node, place.pod, answer.fault or answer.complaint or f"nodeward ended with {answer.code}")
    if is_text:
        text = answer.said.decode(errors="replace")
        return Passed(
            place.node, place.pod, "", answer.code, lines=tuple(printable(line) for line in text.splitlines())
        )
    data, fault = _read(answer, object)
    return Passed(place.node, place.pod, fault, answer.code, data)


def draw(found: Sequence[tuple[Status, tuple[PodRow, ...]]]) -> Group:
    """The report: how many nodes answered, what is wrong on which node, and the table of pods."""
    told = [one for one, _ in found]
    answered = [(one.node, one.verdict) for one in told if one.status is not None]
    judged = [(node, said) for node, said in answered if said is not None and said.level is not Level.GOOD]
    level = (
        Level.BAD
        if len(answered) < len(told)
        else max((said.level for _, said in judged), key=_LEVELS.index, default=Level.GOOD)
    )
    need = f", {len(judged)} of them need attention" if judged else ""
    lines = [Text(f"{len(answered)} of {len(told)} nodes answer{need}.", URGENT[level])]
    lines += [Text(f"{one.node or one.pod}: no answer: {one.fault}", "red") for one in told if one.fault]
    lines += [Text(f"{node}: {printable(said.sentence)}", URGENT[said.level]) for node, said in judged]
    return Group(*lines, PodTable(_in_order(found)))


_LEVELS = (Level.GOOD, Level.ATTENTION, Level.BAD)


def _in_order(found: Sequence[tuple[Status, tuple[PodRow, ...]]]) -> list[tuple[str, PodRow]]:
    """The pods of all nodes, those with the most urgent conditions first; each node's in the order for people."""
    every = [(one.node, row) for one, pods in found for row in pods]
    return sorted(every, key=lambda one: (_TONES.index(one[1].tone), natural(one[0])))


_TONES = (BAD, ATTENTION, "")


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
