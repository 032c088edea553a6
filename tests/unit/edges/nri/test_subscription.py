"""Given a plugin's session that looks whether its subscription suffices, when it registers anew."""

import asyncio

from nodeward.edges.nri.session import PLUGIN, NriSettings, Session
from nodeward.model.decision import Adjustment, Final, Reason
from nodeward.model.events import Event, Question
from nodeward.model.workload import ContainerId
from nodeward.transport.ttrpc_unix import TtrpcPeer, unimplemented
from nodeward.wire.ttrpc import Request
from tests.patience import scaled

TURNS = 10
"""Of the loop: more than the session needs to look at its subscription."""


class Waking:
    """Programs always wait; time passes when the test says so."""

    def __init__(self) -> None:
        self.asleep, self.awake = asyncio.Event(), asyncio.Event()

    def needed(self) -> bool:
        return True

    async def written(self, container_id: ContainerId, within_s: float) -> str:
        return ""

    def now_ns(self) -> int:
        return 0

    def wall_ns(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        self.asleep.set()
        await self.awake.wait()


def _ask(question: Question, within_ns: int) -> Final:
    return Final(Adjustment(), Reason("test"))


def _tell(event: Event) -> int:
    return 0


def test_a_subscription_that_came_while_the_session_slept_is_not_asked_for_again() -> None:
    """A runtime may answer the registration before it calls Configure, which brings the subscription."""

    async def story() -> None:
        waking = Waking()
        session = Session(NriSettings(), _ask, _tell, lambda: 0, waking)
        peer = TtrpcPeer(unimplemented)
        watching = asyncio.ensure_future(session._until_ended(peer, waking))
        await waking.asleep.wait()
        for method in ("Configure", "Synchronize"):
            session._handle(Request(PLUGIN, method, b"", 0))
        assert session.synchronized
        waking.awake.set()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        peer.connection_lost(None)
        assert await watching == "closed by the peer"

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await story()

    asyncio.run(bounded())


def test_a_label_that_the_settings_name_later_is_asked_of_all_pods() -> None:
    async def story() -> None:
        waking, named = Waking(), list[str]()
        session = Session(NriSettings(), _ask, _tell, lambda: 0, labels=lambda: named)
        session._handle(Request(PLUGIN, "Synchronize", b"", 0))
        named = ["pod/labels/app"]
        waking.awake.set()
        async with asyncio.timeout(scaled(30)):
            assert "other labels" in await session._until_ended(TtrpcPeer(unimplemented), waking)

    asyncio.run(story())
