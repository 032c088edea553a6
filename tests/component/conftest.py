"""The parts of the daemon are tried on the event loop that the daemon runs on (`app.process.run`)."""

import asyncio
from collections.abc import Iterator

import pytest
import uvloop

OF_THE_DAEMON = ("daemon", "kube", "kubelet", "metrics", "nfd", "nri", "qgs")


@pytest.fixture(autouse=True)
def loop_of_the_daemon(request: pytest.FixtureRequest) -> Iterator[None]:
    """`asyncio.run` makes a uvloop, in these folders."""
    if request.path.parent.name in OF_THE_DAEMON:
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    yield
    asyncio.set_event_loop_policy(None)
