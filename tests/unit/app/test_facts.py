"""A fact that several views can tell: all that answer soon, else the first that does, else the last resort."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from nodeward.app.host import facts
from nodeward.app.host.facts import either


class View:
    """Answers when it is told to."""

    def __init__(self, says: str | None = None) -> None:
        self.says: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.asked = self.left = False
        if says is not None:
            self.says.set_result(says)

    async def fetch(self, key: str) -> str:
        assert key == "tdx"
        self.asked = True
        try:
            return await asyncio.shield(self.says)
        except asyncio.CancelledError:
            self.left = True
            raise


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "SOON_S", 0.05)


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await story()

    asyncio.run(bounded())


def test_every_view_that_answers_soon_is_heard_and_the_last_one_is_left_alone() -> None:
    async def story() -> None:
        one, two, last = View(""), View("torn"), View("")
        assert await either((one.fetch, two.fetch), last.fetch, "tdx") == ""
        assert (one.asked, two.asked, last.asked) == (True, True, False)

    play(story)


def test_a_view_that_hangs_does_not_keep_what_another_has_answered() -> None:
    async def story() -> None:
        hangs, answers, last = View(), View(""), View("")
        assert await either((hangs.fetch, answers.fetch), last.fetch, "tdx") == ""
        await asyncio.sleep(0)
        assert (hangs.left, last.asked) == (True, False)

    play(story)


def test_who_can_wait_hears_a_view_that_answers_late() -> None:
    """Given views that have nothing yet, as a start may find them, then the last resort is asked beside them, and the
    first that knows is heard."""

    async def story() -> None:
        late, torn, last = View(), View("torn"), View("seldom")
        asked = asyncio.ensure_future(either((late.fetch, torn.fetch), last.fetch, "tdx"))
        while not last.asked:
            await asyncio.sleep(0.01)
        assert not asked.done()
        late.says.set_result("")
        assert await asked == ""

    play(story)


def test_where_none_knows_each_says_why() -> None:
    async def story() -> None:
        one, two, last = View("torn"), View("no socket"), View("seldom")
        assert await either((one.fetch, two.fetch), last.fetch, "tdx") == "torn; no socket; seldom"

    play(story)


def test_who_gives_up_waits_for_nobody() -> None:
    async def story() -> None:
        one, last = View(), View()
        asked = asyncio.ensure_future(either((one.fetch,), last.fetch, "tdx"))
        while not last.asked:
            await asyncio.sleep(0.01)
        asked.cancel()
        await asyncio.wait((asked,))
        await asyncio.sleep(0)
        assert (one.left, last.left) == (True, True)

    play(story)
