"""Components that fail are started again; only the end of all work is passed on."""

import asyncio

import pytest

from nodeward.aio.backoff import Backoff
from nodeward.aio.clock import SystemClock
from nodeward.aio.supervise import WorkEndedError, forever


class NoWait(SystemClock):
    """Waits are over at once."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def test_a_component_that_fails_is_started_again_until_it_says_that_the_work_has_ended() -> None:
    """Given a component that fails, returns and then has nothing left to do, then only the last is heard outside."""
    failures: list[str] = []
    lives = iter([ValueError("broken"), None, WorkEndedError("the runtime is gone")])

    async def component() -> None:
        if error := next(lives):
            raise error

    def failed(name: str, error: BaseException) -> None:
        failures.append(f"{name}: {type(error).__name__}")

    with pytest.raises(WorkEndedError, match="the runtime is gone"):
        asyncio.run(forever("nri", component, NoWait(), Backoff(1.0, 1.0, lambda: 0.0), failed))
    assert failures == ["nri: ValueError", "nri: RuntimeError"]


def test_a_component_whose_only_task_fails_is_told_of_by_that_tasks_own_error() -> None:
    failures: list[str] = []

    async def fails() -> None:
        raise ValueError("broken")

    async def component() -> None:
        if failures:
            raise WorkEndedError("enough")
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())

    def failed(name: str, error: BaseException) -> None:
        failures.append(f"{name}: {type(error).__name__}: {error}")

    with pytest.raises(WorkEndedError, match="enough"):
        asyncio.run(forever("plugin", component, NoWait(), Backoff(1.0, 1.0, lambda: 0.0), failed))
    assert failures == ["plugin: ValueError: broken"]
