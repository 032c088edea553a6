"""`nodeward sim`: the daemon against a simulated node."""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from nodeward.sim.world import World


@click.command("sim")
@click.option("--scenario", "name", default="noisy-neighbour", show_default=True, help="A shipped name, or a file.")
@click.option("--for", "duration", default="", help="Run so long, e.g. 20s or 2m.  [default: until Ctrl-C]")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--record", type=click.Path(dir_okay=False), help="Let the daemon record its decisions here.")
@click.option("--list", "listed", is_flag=True, help="List the scenarios that ship.")
@click.option("--mutant", default="", hidden=True, help="Break the node on purpose; an invariant must notice.")
def command(name: str, duration: str, seed: int, record: str | None, listed: bool, mutant: str) -> None:
    """Run the daemon against a simulated node: no hardware, no cluster, no root.

    On a terminal a live view is drawn. Without one, or with --for, a summary is printed at the end. The exit code is 2
    when an invariant broke.

    \b
    Examples:
      nodeward sim
      nodeward sim --scenario daemon-killed --for 20s --seed 7
      nodeward sim --list
    """
    from nodeward.sim import scenario
    from nodeward.sim.world import MUTANTS, World

    if listed:
        for shipped in scenario.names():
            print(f"{shipped:20} {scenario.load(shipped).about}")
        return
    if mutant and mutant not in MUTANTS:
        raise click.BadParameter(f"{mutant!r} is not one of {', '.join(MUTANTS)}", param_hint="--mutant")
    seconds = _seconds(duration)
    chosen = scenario.load(name)
    with tempfile.TemporaryDirectory(prefix="nodeward-sim-") as folder:
        world = World(chosen, Path(folder), seed, mutant=mutant, record=str(Path(record).absolute()) if record else "")
        try:
            if sys.stdout.isatty():
                _live(world, seconds)
            else:
                asyncio.run(world.run(seconds))
        except KeyboardInterrupt:
            pass
        if record:
            Path(record).write_bytes(world.kernel.read(str(Path(record).absolute()), 1 << 30))
    _summary(world, seed)
    sys.exit(2 if world.judge.violations else 0)


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


def _live(world: "World", seconds: float) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from nodeward.cli.table import render

    with Live(auto_refresh=False, screen=False) as live:

        def draw() -> None:
            head = Text(
                f"{world.scenario.title}: {world.tally.pods} pods ended, {world.tally.charges} charges, "
                f"{world.tally.refused} refused, {len(world.judge.violations)} violations   (Ctrl-C ends)",
                style="bold",
            )
            body = render(world.view, most=24) if world.view is not None else Text("the daemon does not answer")
            live.update(Group(head, body), refresh=True)

        asyncio.run(world.run(seconds, draw))


def _summary(world: "World", seed: int) -> None:
    tally, judge = world.tally, world.judge
    print(f"{world.scenario.title} (seed {seed}): {tally.pods} pods ended, {tally.containers} containers started")
    print(f"charges: {tally.charges} tried, {tally.refused} refused; creates refused: {tally.refused_creates}")
    for what, count in tally.happenings.items():
        print(f"happened: {what} x {count}")
    if world.view is not None:
        states: dict[str, int] = {}
        for row in world.view.rows:
            states[row.state] = states.get(row.state, 0) + 1
        print(
            "states at the end: " + (", ".join(f"{count} {state}" for state, count in states.items()) or "no cgroups")
        )
    print(f"invariants: {judge.checks} checks, {len(judge.violations)} violations")
    for violation in judge.violations[:20]:
        print(f"  {violation}")
