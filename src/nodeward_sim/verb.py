"""`nodeward sim`: the daemon against a simulated node."""

import asyncio
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from nodeward.cli import exits
from nodeward.core.errors import NodewardError

if TYPE_CHECKING:
    from rich.console import Group

    from nodeward.people.screen import Screen
    from nodeward_sim.claimed import Claimed
    from nodeward_sim.decided import LatestDecisions
    from nodeward_sim.gated import Gated
    from nodeward_sim.guests import Guests
    from nodeward_sim.katas import Katas
    from nodeward_sim.offered import Offered
    from nodeward_sim.pinned import Pinned
    from nodeward_sim.relayed import Relayed
    from nodeward_sim.scenario import Scenario
    from nodeward_sim.world import World

USUAL = "one-node"
"""The scenario that is played where none is named."""
RECORD = "/var/lib/nodeward/node.record"
"""Where the daemon records, on the simulated node."""
MAX_RECORD = 1 << 30
LOG_LINES = 20
PAGE_ENDS_S = 5.0
PICTURE_COLUMNS, PICTURE_LINES = 112, 32
TALL = 30
"""Lines of a terminal that has room for every decision that is kept; a lower one gets two."""


def _scenarios(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """For a shell that completes."""
    from nodeward_sim import scenario

    return [name for name in scenario.names() if name.startswith(incomplete)]


@click.command("sim")
@click.argument("scenario", required=False, shell_complete=_scenarios)
@click.option("--scenario", "named", help="SCENARIO, as an option.")
@click.option("--for", "duration", default="", help="Run so long, e.g. 20s or 2m.  [default: until Ctrl-C]")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Copy the daemon's record to this new file at the end.",
)
@click.option("--metrics", default="", metavar="HOST:PORT", help="Serve the daemon's metrics there.")
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the last live view to this new file, as SVG.",
)
@click.option(
    "--page/--no-page", default=None, help="Serve the node as a web page beside it.  [default: on a terminal]"
)
@click.option("--list", "listed", is_flag=True, help="List the scenarios that ship.")
@click.option("--mutant", default="", hidden=True, help="Break the node on purpose; an invariant must notice.")
def command(
    scenario: str | None,
    named: str | None,
    duration: str,
    seed: int,
    record: Path | None,
    metrics: str,
    picture: Path | None,
    page: bool | None,
    listed: bool,
    mutant: str,
) -> None:
    """Run the daemon against a simulated node: no hardware, no cluster, no root.

    SCENARIO is a shipped name or a file; without it one-node is played. On a terminal a live view is drawn.
    Ctrl-C or SIGTERM ends it. At the end a summary is printed. The first line prints the command to inspect the same
    daemon from another terminal.

    Exit code: 0 no invariant broke, 1 one broke, 2 a usage error, a fault in the scenario's file or an address of
    --metrics that cannot be had, 3 the simulation itself failed. docs/scenarios.md says what a scenario's file may
    hold.

    \b
    Examples:
      nodeward sim
      nodeward sim daemon-killed --for 20s --seed 7
      nodeward sim --for 20s --record day.record && nodeward replay day.record
      nodeward sim --for 15s --picture view.svg
      nodeward sim --list
    """
    from nodeward.settings.checks import address
    from nodeward_sim import scenario as scenarios
    from nodeward_sim.world import MUTANTS, World

    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # its own log, on our standard error, tells of each peer's end
    if listed:
        width = max(map(len, scenarios.names()))
        for shipped in scenarios.names():
            print(f"{shipped:{width}} {scenarios.load(shipped).about}")
        return
    if mutant and mutant not in MUTANTS:
        raise click.BadParameter(f"{mutant!r} is not one of {', '.join(MUTANTS)}", param_hint="--mutant")
    for option, file in (("--record", record), ("--picture", picture)):
        if file is not None and not file.absolute().parent.is_dir():
            raise click.BadParameter(f"{file.absolute().parent} is no folder", param_hint=option)
        if file is not None and os.path.lexists(file):
            raise click.BadParameter(f"{file} exists already; name a new file", param_hint=option)
    if metrics and address(metrics) is None:
        raise click.BadParameter(
            f"{metrics!r} is no address with a port, such as 127.0.0.1:9743", param_hint="--metrics"
        )
    if scenario is not None and named is not None:
        raise click.UsageError(f"{scenario} and --scenario {named} both name a scenario; give one")
    seconds, chosen = _seconds(duration), _chosen(scenario or named or USUAL)
    _may_listen(metrics)

    def new(folder: Path, log: Path | None) -> World:
        return World(chosen, folder, seed, mutant=mutant, record=RECORD if record else "", log=log, metrics=metrics)

    try:
        world = _lived(new, seconds, picture, sys.stdout.isatty() if page is None else page)
        _summary(world, seed)
        if record is not None:
            _copy_record(world, record)
    except (NodewardError, OSError) as error:
        _end(exits.BROKEN_OFF, error)
    sys.exit(exits.FAILED if world.judge.violations else exits.GOOD)


def _chosen(name: str) -> "Scenario":
    """The scenario; ends the program where there is none without a fault."""
    from nodeward_sim import scenario

    try:
        return scenario.load(name)
    except NodewardError as error:
        _end(exits.UNUSABLE, error)


def _may_listen(metrics: str) -> None:
    """Ends the program where the address cannot be had: a simulation would serve nothing there."""
    from nodeward.host.process import cannot_listen
    from nodeward.settings.checks import address

    if found := address(metrics):
        from nodeward.people.metrics.server import check

        try:
            asyncio.run(check(*found))
        except OSError as error:
            _end(exits.UNUSABLE, cannot_listen(f"--metrics {metrics}", error))


def _end(code: int, error: Exception) -> NoReturn:
    print(f"nodeward: {error}", file=sys.stderr)
    sys.exit(code)


def _lived(new: "Callable[[Path, Path | None], World]", seconds: float, picture: Path | None, page: bool) -> "World":
    """A world of its own folder that has lived so long, with a page beside it."""
    from nodeward_sim.daemon import socket_in

    with tempfile.TemporaryDirectory(prefix="nodeward-sim-") as folder:
        live = sys.stdout.isatty()
        log = Path(folder) / "daemon.log" if live else None  # on a terminal it would be drawn into the view
        world = new(Path(folder), log)
        print(f"beside it: {_program()} status --socket {socket_in(Path(folder))}", flush=True)
        if also := suiting(world.scenario):
            print(f"and as well: nodeward {', '.join(also)}, with the same --socket", flush=True)
        try:
            with _page(socket_in(Path(folder))) if page else nullcontext():
                if live or picture is not None:
                    _live(world, seconds, picture, socket_in(Path(folder)))
                else:
                    _run(world, seconds)
        finally:
            if log is not None:
                _tell_log(log)
    return world


@contextmanager
def _page(socket: Path) -> Iterator[None]:
    """`nodeward page` as a process of its own, which prints its address; without it the simulation goes on."""
    words = [sys.executable, "-m", "nodeward", "page", "--socket", str(socket), "--any-port"]
    page = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        page.terminate()
        try:
            page.wait(PAGE_ENDS_S)
        except subprocess.TimeoutExpired:
            page.kill()
            page.wait()


def _program() -> str:
    """How a shell in another terminal calls this program: by its name where that is on PATH."""
    beside = Path(sys.executable).parent / "nodeward"
    return "nodeward" if shutil.which("nodeward") or not beside.exists() else str(beside)


def _run(
    world: "World",
    seconds: float,
    shown: Callable[[], None] = lambda: None,
    keys: tuple[int | None, Callable[[int], None]] = (None, lambda _: None),
) -> None:
    """Lives until the time is over or a signal comes; in both cases the daemon is ended and nothing is left behind.
    `keys` are a terminal, and who is told that a key was pressed there."""
    from nodeward.host.process import until_signal

    async def run() -> None:
        fd, pressed = keys
        if fd is not None:
            asyncio.get_running_loop().add_reader(fd, pressed, fd)
        await until_signal(world.run(seconds, shown))

    asyncio.run(run())


def suiting(scenario: "Scenario") -> tuple[str, ...]:
    """The commands that have something to show of it beside `status`."""
    has = {
        "keys": scenario.vms or scenario.claims,
        "cpus": scenario.pinned,
        "vms": scenario.katas,
        "pod --list": scenario.guests or scenario.gate,
    }
    return tuple(command for command, there in has.items() if there)


def _tell_log(log: Path) -> None:
    lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
    if lines:
        print(f"the daemon logged {len(lines)} line(s), of which the last are:", file=sys.stderr)
    for line in lines[-LOG_LINES:]:
        print(f"  {line}", file=sys.stderr)


def _copy_record(world: "World", place: Path) -> None:
    try:
        place.write_bytes(world.kernel.read(RECORD, MAX_RECORD))
    except OSError as error:
        raise NodewardError(f"the record cannot be written to {place}: {error.strerror}") from error
    print(f"record: {place} ({place.stat().st_size} bytes); `nodeward replay {place}` decides it again")


def _seconds(text: str) -> float:
    """`20s`, `2m`, `1h` or plain seconds; a year for an empty text."""
    if not text:
        return 365 * 86400.0
    unit = {"s": 1, "m": 60, "h": 3600}.get(text[-1], 0)
    try:
        value = float(text[:-1]) * unit if unit else float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 365 * 86400:
        raise click.BadParameter(f"{text!r} is no duration; write 20s, 2m or 1h", param_hint="--for")
    return value


def _live(world: "World", seconds: float, picture: Path | None, socket: Path) -> None:
    from rich.console import Console
    from rich.live import Live

    from nodeward.people.screen import Screen, read, typed
    from nodeward_sim.decided import LatestDecisions

    quiet = None if sys.stdout.isatty() else io.StringIO()
    decisions, console, screen = LatestDecisions(), Console(file=quiet), Screen()
    with typed() as keys, Live(console=console, auto_refresh=False, screen=False) as live:

        def draw() -> None:
            if world.view is not None:
                decisions.look(world.view)
            live.update(_picture(world, decisions, console.height, screen, socket), refresh=True)

        def pressed(fd: int) -> None:
            read(fd, screen)
            if screen.is_over:
                signal.raise_signal(signal.SIGINT)
            draw()

        _run(world, seconds, draw, (keys, pressed))
    if picture is not None:
        _save(_picture(world, decisions, PICTURE_LINES, Screen()), picture)


def _save(view: "Group", picture: Path) -> None:
    """As SVG, without the fonts that rich would have a browser fetch."""
    from rich.console import Console

    console = Console(record=True, width=PICTURE_COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(view)
    drawn = re.sub(r"@font-face {.*?}|<!--.*?-->", "", console.export_svg(title="nodeward sim"), flags=re.DOTALL)
    try:
        picture.write_text("\n".join(line for line in drawn.splitlines() if line.strip()), "utf-8")
    except OSError as error:
        raise NodewardError(f"the picture cannot be written to {picture}: {error.strerror}") from error
    print(f"picture: {picture}")


def _picture(
    world: "World", decisions: "LatestDecisions", height: int, screen: "Screen", socket: Path | None = None
) -> "Group":
    """The live view, in no more than `height` lines: what has the least room is the table. `socket` is shown to people
    with another terminal: on a small one the first line has scrolled away."""
    from rich.console import Group
    from rich.text import Text

    from nodeward.people.pods import pod_rows
    from nodeward.people.table import render

    told = list(decisions.latest)[-(5 if height >= TALL else 2) :]
    head = f"{world.scenario.title}: {world.tally.pods} pods ended, {len(world.judge.violations)} violations"
    lines = [
        Text(head, style="bold", no_wrap=True, overflow="ellipsis"),
        Text(f"charges: {_charges(world)}", no_wrap=True, overflow="ellipsis"),
    ]
    if socket is not None:
        lines.append(Text(f"export NODEWARD_SOCKET={socket}", no_wrap=True, overflow="ellipsis"))
    foot = [Text(f"the latest decisions, and why   ({screen.line})", style="bold", no_wrap=True, overflow="ellipsis")]
    for one in told:
        foot.append(Text(one.what, no_wrap=True, overflow="ellipsis"))
        foot.append(Text(f"  {one.why}", style="dim", no_wrap=True, overflow="ellipsis"))
    if world.view is None:
        return Group(*lines, Text("the daemon does not answer", style="red"), *foot)
    pods = screen.shows(pod_rows(world.view))
    return Group(*lines, render(world.view, height - len(lines) - len(foot) - 1, pods=pods), *foot)


def _charges(world: "World") -> str:
    """How many were tried, and how many the kernel refused, by the level at which it did."""
    by_level = world.charges.refused
    levels = ", ".join(f"{by_level[level]} {level}" for level in sorted(by_level))
    told = f"{world.charges.tried} tried, {sum(by_level.values())} refused"
    return f"{told} ({levels})" if levels else told


def _offered(offered: "Offered") -> None:
    """What kubelet was given, and both rules side by side."""
    counts = offered.counts
    print(
        f"kubelet: {counts.granted} pods admitted with keys, {counts.refused} refused, "
        f"{counts.starts_refused} starts put off"
    )
    if counts.why:
        print(f"  the last refusal: {counts.why}")
    if counts.why_put_off:
        print(f"  the last start put off: {counts.why_put_off}")
    print(f"sold by `unhealthy = used - counter`: {offered.proposal.told()}")
    print(f"sold by nodeward:                     {offered.ours.told()}")
    print(f"  by its list, without Allocate's no: {offered.listed.told()}")


def _claimed(claimed: "Claimed") -> None:
    counts = claimed.counts
    print(
        f"claims: {counts.prepared} prepared, {counts.put_off} times put off, {counts.taken_back} taken back, "
        f"{counts.forced} pods deleted by force"
    )
    if counts.why:
        print(f"  the last one put off: {counts.why}")


def _relayed(relayed: "Relayed") -> None:
    counts, fates = relayed.counts, relayed.fates
    held = sum(fates.values()) - fates["passed"]
    print(
        f"kubelet: {counts.calls} calls through the relay, {counts.unavailable} unavailable; "
        f"{counts.born} containers looked at when they began, {counts.judged_updates} updates"
    )
    print(
        f"relay: {sum(fates.values())} calls, {held} held ({fates['changed']} changed, {fates['refused']} refused), "
        "as the relays said when they were asked last"
    )


def _pinned(pinned: "Pinned") -> None:
    counts = pinned.counts
    print(
        f"CPUs: {counts.starts} programs looked at when they began, {counts.exclusive} with CPUs of their own; "
        f"{counts.written} sets written, {counts.drifts} repaired"
    )
    print(
        f"  {counts.refused} starts put off, {counts.late} of them late; {counts.unplaced} containers unplaced; "
        f"{counts.resized} resized, {counts.unresized} resizes refused"
    )
    if counts.why:
        print(f"  the last refusal: {counts.why}")


def _katas(katas: "Katas") -> None:
    counts = katas.counts
    print(
        f"VM sandboxes: {counts.sandboxes} started, {counts.read} rows compared; {counts.warned} said to be killed, "
        f"{counts.killed} VMMs killed, of which {counts.counted} shown as such"
    )
    if counts.moved:
        print(f"  {counts.moved} VMMs moved away, {counts.told} of them told, {counts.told_back} told to be back")


def _gated(gated: "Gated") -> None:
    counts = gated.counts
    print(
        f"gates: {counts.passed} pods passed, {counts.denied} denied; {counts.refused} creates refused at a shut gate"
    )


def _guests(guests: "Guests") -> None:
    counts = guests.counts
    print(
        f"Pod API: {counts.described} pods told at their start ({counts.pending} pulls pending then); "
        f"{counts.resolved} pulls resolved, {counts.reported} reported, {counts.compared} compared, "
        f"{counts.unjudged} not judged"
    )


def _summary(world: "World", seed: int) -> None:
    tally, judge = world.tally, world.judge
    print(f"{world.scenario.title} (seed {seed}): {tally.pods} pods ended, {tally.containers} containers started")
    print(f"charges: {_charges(world)}; creates refused: {tally.refused_creates}")
    if world.scenario.vms or world.scenario.claims:
        print(f"TDX keys: {world.machines.taken} taken, {world.machines.refused} refused")
    if world.offered is not None:
        _offered(world.offered)
    if world.claimed is not None:
        _claimed(world.claimed)
    for told in world.sharing.story if world.sharing is not None else ():
        print(f"keys shared with Kata {told}")
    if world.relayed is not None:
        _relayed(world.relayed)
    if world.pinned is not None:
        _pinned(world.pinned)
    if world.katas is not None:
        _katas(world.katas)
    if world.gated is not None:
        _gated(world.gated)
    if world.guests is not None:
        _guests(world.guests)
    for what, count in tally.happenings.items():
        print(f"happened: {what} x {count}")
    if world.view is not None:
        states: dict[str, int] = {}
        for row in world.view.rows:
            states[row.state] = states.get(row.state, 0) + 1
        print(
            "states at the end: " + (", ".join(f"{count} {state}" for state, count in states.items()) or "no cgroups")
        )
        for kind in world.view.keys:
            if kind.capacity:
                print(f"keys {kind.key} at the end: {kind.sentence}")
    print(f"invariants: {judge.checks} checks, {len(judge.violations)} violations")
    for violation in judge.violations[:20]:
        print(f"  {violation}")
