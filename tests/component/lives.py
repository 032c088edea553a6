"""Lives of a simulated node, for tests."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from nodeward_sim import scenario
from nodeward_sim.scenario import Happening, Scenario
from nodeward_sim.world import World


def lived(
    name: str,
    folder: Path,
    seconds: float,
    shown: Callable[[World], None] = lambda _: None,
    *,
    record: str = "",
    **changes: Any,
) -> World:
    """A world that has lived for some seconds without a violation; `shown` looks at it again and again."""
    world = made(name, folder, record=record, **changes)
    asyncio.run(world.run(seconds, lambda: shown(world)))
    assert world.judge.violations == [], world.judge.violations
    return world


def made(name: str, folder: Path, *, mutant: str = "", record: str = "", **changes: Any) -> World:
    chosen = scenario.load(name)
    values = {field: getattr(chosen, field) for field in Scenario.__slots__} | changes
    return World(Scenario(**values), folder, seed=3, mutant=mutant, record=record)


def fires(world: World, seconds: float, *invariants: str) -> None:
    def fired() -> bool:
        return all(any(one.startswith(invariant) for one in world.judge.violations) for invariant in invariants)

    async def live() -> None:
        def shown() -> None:
            if fired():
                living.cancel()

        living = asyncio.ensure_future(world.run(seconds, shown))
        with suppress(asyncio.CancelledError):
            await living

    asyncio.run(live())
    assert fired(), world.judge.violations


def kills(action: str) -> dict[str, Any]:
    """It happens early and once, so that what comes after has time."""
    return {"events": (Happening(2.5, action),)}
