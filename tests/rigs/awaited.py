"""A test may be a coroutine: it has a loop of its own, as the daemon's is, and an end. For the conftest."""

import asyncio
import inspect
from collections.abc import Iterator
from typing import Final

import pytest

from nodeward.host.loop import new_loop
from tests.patience import scaled

ON_ANOTHER_LOOP: Final = {"doctor", "component"}
"""Folders of tests of programs that are on asyncio's own loop; those right in `component` are about the simulation."""


class _Loops(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return new_loop()


@pytest.fixture(autouse=True)
def loop_of_the_daemon(request: pytest.FixtureRequest) -> Iterator[None]:
    """`asyncio.run` in a test gives the loop that daemon, relay and webhook have (`host.process.run`)."""
    if request.path.parent.name not in ON_ANOTHER_LOOP:
        asyncio.set_event_loop_policy(_Loops())
    yield
    asyncio.set_event_loop_policy(None)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Plays it, where it is one."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}

    async def bounded() -> None:
        async with asyncio.timeout(scaled(240.0)):
            await pyfuncitem.obj(**given)

    asyncio.run(bounded())
    return True
