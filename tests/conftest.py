"""What all tiers share."""

import asyncio
import signal
from collections.abc import Iterator

import pytest
from _pytest.terminal import TerminalReporter
from hypothesis import settings

from nodeward.aio.loop import new_loop
from tests.told import LINES

# A property says nothing of time: on a busy machine the same example takes a thousand times as long.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Who runs the tests in the background has them ignore these, and every program that they start and mean to end so too.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)

ON_ANOTHER_LOOP = {"doctor", "component"}
"""Folders of tests of programs that are on asyncio's own loop; those right in `component` are about the simulation."""


class _Loops(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return new_loop()


@pytest.fixture(autouse=True)
def loop_of_the_daemon(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where a test says `asyncio.run`, the parts of daemon, relay and webhook and their neighbours are on the loop that
    these are on (`app.process.run`)."""
    if request.path.parent.name not in ON_ANOTHER_LOOP:
        asyncio.set_event_loop_policy(_Loops())
    yield
    asyncio.set_event_loop_policy(None)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    if LINES:
        terminalreporter.section("seen")
    for line in LINES:
        terminalreporter.write_line(line)
