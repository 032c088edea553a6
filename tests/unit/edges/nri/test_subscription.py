"""Given a plugin's session that looks whether the settings name other labels, when it registers anew."""

import asyncio

from nodeward.edges.nri.session import PLUGIN, NriSettings, Session
from nodeward.model.decision import Adjustment, Final, Reason
from nodeward.model.events import Event, Question
from nodeward.transport.ttrpc_unix import TtrpcPeer, unimplemented
from nodeward.wire.ttrpc import Request
from tests.patience import scaled


class Waking:
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.awake = asyncio.Event()

    def now_ns(self) -> int:
        return 0

    def wall_ns(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        await self.awake.wait()


def _ask(question: Question, within_ns: int) -> Final:
    return Final(Adjustment(), Reason("test"))


def _tell(event: Event) -> int:
    return 0


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
