"""`nodeward status`: shows the node as a table, once or again and again."""

import itertools
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

import click

from nodeward.cli import exits
from nodeward.cli.flags import namespaces, output_option, own_name, pods, print_data
from nodeward.core.conditions import CODES
from nodeward.people import client

if TYPE_CHECKING:
    from rich.console import Group

    from nodeward.people.pods import PodRow
    from nodeward.people.rows import NodeView

STATES = (
    *("drift", "outside", "stale", "controller-off", "unsupported", "pending", "unknown"),
    *("enforced", "relayed", "counted", "unmanaged", "no limit", "observed", "pinned"),
    *CODES,
)
"""What the column STATE can have, but a VM's verdict."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """Which rows."""

    namespace: str | None = None
    states: tuple[str, ...] = ()
    pod: str | None = None

    def of(self, view: "NodeView") -> "NodeView":
        """The picture with these rows, in the order for people. All else is the whole node's."""
        from nodeward.people.pods import chosen
        from nodeward.people.verdict import verdict

        first = (view.verdict or verdict(view)).pods
        rows = chosen(view.rows, self.namespace, self.states, self.pod, first, self.pods(view))
        return replace(view, rows=rows)

    def pods(self, view: "NodeView") -> "tuple[PodRow, ...]":
        """The pods of the whole picture that are asked for."""
        from nodeward.people.pods import chosen_pods

        return chosen_pods(view, self.namespace, self.states, self.pod)

    def nothing(self, pods: "Sequence[PodRow]") -> str:
        """Why no pod is left; empty where some are, or all were asked for."""
        if pods or self == _Asked():
            return ""
        words = [f"pod {self.pod}"] if self.pod else []
        words += [f"namespace {self.namespace}"] if self.namespace else []
        words += [f"state {' or '.join(self.states)}"] if self.states else []
        return f"no pod has {', '.join(words)}; `nodeward status` shows all"


@click.command("status")
@click.argument("pod", required=False, metavar="[POD]", shell_complete=pods)
@click.option("-n", "--namespace", help="Only pods of this namespace.", shell_complete=namespaces)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES),
    metavar="STATE",
    help="Only pods with this in the column STATE; repeatable.",
)
@click.option("--socket", help="The daemon's socket.  [default: /run/nodeward/nodeward.sock]")
@output_option("wide")
@click.option("--ready", "only_ready", is_flag=True, help="Only say whether the daemon is ready; exit with 1 if not.")
@click.option("-w", "--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option("--every", "every_s", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True,
              help="With --watch: seconds from one view to the next.")  # fmt: skip
@click.option("--times", type=click.IntRange(1), help="With --watch: stop after so many views.")
def command(
    pod: str | None, namespace: str | None, states: tuple[str, ...], socket: str | None, output: str,
    only_ready: bool, watch: bool, every_s: float, times: int | None,
) -> None:  # fmt: skip
    """Show what each pod was promised, holds and was refused, and how the relay does where there is one.

    POD is a pod's name, or NAMESPACE/POD. Pods that need somebody come first. The verdict is on the whole node. `-o
    wide` has a line for each container with its limit, usage, peak and refusals.

    With --watch on a terminal the last lines say what changed lately; arrows scroll, / filters and q ends. A daemon
    that ends meanwhile is reported, and shown again once it is back. As JSON each view is one document on a line of its
    own.

    Exit code: 0 good, 1 no answer, no such pod, or with --ready not ready.

    \b
    Examples:
      nodeward status
      nodeward status web-0 -o wide
      nodeward status -n shop --state drift --state outside
      nodeward status --watch --every 2
      nodeward status --ready && echo "synchronised with runtime, API server and kernel"
      nodeward status -o json | jq '.verdict.sentence, (.rows[] | select(.state == "drift"))'
    """
    asked = _Asked(namespace, states, pod)
    if only_ready:
        if watch:
            raise click.UsageError("--ready asks once: leave --watch out")
        sys.exit(_ready(socket, output))
    if watch:
        with suppress(KeyboardInterrupt):
            _watch(socket, asked, output, every_s, times)
        return
    whole = client.node(socket)
    node = asked.of(whole)
    pods = asked.pods(whole)
    if not print_data(node, output):
        from nodeward.people.table import console

        console().print(_of(whole, asked, output == "wide"))
    if why := asked.nothing(pods):
        print(f"nodeward: {why}", file=sys.stderr)
        sys.exit(exits.FAILED if pod else exits.GOOD)


def _ready(socket: str | None, output: str) -> int:
    """Says which source is ready, and returns the exit code."""
    from nodeward.people.rows import NodeView

    view = client.decoded(client.get("/v1/status", socket), NodeView)
    waits = view.waiting == own_name()  # the daemon of this pod waits, and another one answers
    ready = view.ready and not waits
    if not print_data({"ready": ready, "components": view.components}, output):
        for row in view.components:
            print(f"{'ready    ' if row.ready else 'not ready'} {row.name}: {row.detail}")
        if waits:
            print("not ready daemon: another one runs on this node, and the one of this pod waits for its end")
    return exits.GOOD if ready else exits.FAILED


def _watch(socket: str | None, asked: _Asked, output: str, every_s: float, times: int | None) -> None:
    """One view in the place of the one before; where standard output is no terminal, one below the other."""
    from nodeward.people.table import console

    out, is_text = console(), output not in ("json", "yaml")
    if is_text and out.is_terminal:
        _draw(socket, asked, output == "wide", every_s, times)
        return
    for view, why in _pictures(socket, every_s, times):
        if view is not None and print_data(asked.of(view), output, is_one_of_many=True):
            continue
        if is_text:
            out.print(f"no answer: {why}" if view is None else _of(view, asked, output == "wide"), "")
            sys.stdout.flush()
        else:
            print(f"nodeward: {why}", file=sys.stderr)


def _pictures(socket: str | None, every_s: float, times: int | None) -> Iterator[tuple["NodeView | None", str]]:
    """A picture now and again after each `every_s`, `times` in all; None, and why, where the daemon is away. Raises
    DaemonError where the first one fails."""
    for number in itertools.count() if times is None else range(times):
        if number:
            time.sleep(every_s)
        try:
            yield client.node(socket), ""
        except client.DaemonError as error:
            if not number:
                raise
            yield None, str(error)


def _of(view: "NodeView", asked: _Asked, is_wide: bool) -> "Group":
    from nodeward.people.table import judged

    return judged(asked.of(view), view, pods=asked.pods(view), is_wide=is_wide)


def _draw(socket: str | None, asked: _Asked, is_wide: bool, every_s: float, times: int | None) -> None:
    """On a terminal: one view in the place of the one before, at each key and as often as it is asked for."""
    from rich.live import Live

    from nodeward.people.screen import Screen, typed, wait
    from nodeward.people.table import console, live
    from nodeward.people.verdict import MOST, happened

    out, screen, shown = console(), Screen(), None
    lately = deque[str](maxlen=MOST)
    with typed() as keys, Live(console=out, auto_refresh=False) as drawing:
        for number, (view, why) in enumerate(_pictures(socket, 0, times), 1):
            said = [why] if view is None else happened(shown and asked.of(shown), asked.of(view))
            lately.extend(f"{datetime.now():%H:%M:%S} {line}" for line in said)
            shown, due_s = view or shown, time.monotonic() + every_s
            while not screen.is_over:
                if shown is not None:
                    part = asked.of(shown)
                    pods = screen.shows(asked.pods(shown))
                    drawn = live(part, shown, out.height - 1, lately, pods=pods, is_wide=is_wide, keys=screen.line)
                    drawing.update(drawn, refresh=True)
                if number == times or not wait(keys, screen, max(due_s - time.monotonic(), 0)):
                    break
            if screen.is_over:
                return
