"""What parts of the daemon stand on in a test: a disk with folders, a lane and a clock that wait for nobody."""

import asyncio
from collections.abc import Callable
from typing import Final

from nodeward.host.hostfs import ensure_folder
from nodeward_sim.doubles.kernel import SimKernel
from tests.lanes import Done, Ended, InlineLane, T
from tests.unit.features.build import ManualClock

FOLDER: Final = "/var/lib/nodeward"


async def no_commit(_: str) -> str:
    return "nothing commits here"


def folders(*paths: str) -> SimKernel:
    """A machine that has these folders; by default the daemon's for its state."""
    kernel = SimKernel({})
    for path in paths or (FOLDER,):
        ensure_folder(kernel, path)
    return kernel


class AtOnce(InlineLane):
    def submit(self, name: str, job: Callable[[], T], done: Done[T], ended: Ended = None) -> bool:
        return super().submit(name, job, done, ended) and self.drain() > 0


class YieldingClock(ManualClock):
    """Who sleeps lets the others go on."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        await asyncio.sleep(0)
