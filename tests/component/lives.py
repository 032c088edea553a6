"""Lives of a simulated node, for tests."""

import asyncio
from pathlib import Path

from nodeward.sim import scenario
from nodeward.sim.scenario import Happening, Scenario
from nodeward.sim.world import World


def lived(
    name: str, folder: Path, seconds: float, *, mutant: str = "", **changes: float | tuple[float, float]
) -> World:
    """A world that has lived for some seconds."""
    chosen = scenario.load(name)
    values = {field: getattr(chosen, field) for field in Scenario.__slots__} | changes
    world = World(Scenario(**values), folder, seed=3, mutant=mutant)
    asyncio.run(world.run(seconds))
    return world


def kills(action: str) -> tuple[Happening, ...]:
    """It happens early and once, so that what comes after has time."""
    return (Happening(2.5, action),)
