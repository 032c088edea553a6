"""The session of policy objects, by a client that a test writes: what it believes, and what it does not do twice."""

import asyncio
from collections.abc import Mapping

from nodeward.app.node.policy_objects import Session
from nodeward.app.settings.policy_object import translated
from nodeward.app.settings.reload import Reload
from nodeward.edges.kube.errors import KubeAwayError
from nodeward.edges.kube.policy_objects import Seen
from nodeward.engine.state.root import State
from nodeward.model.events import Event
from nodeward.model.policy_object import PolicyKind, PolicyObject, Said
from nodeward.model.policy_rule import CpusSettings
from nodeward.model.settings import EngineSettings, Mode, Settings
from tests.lanes import InlineLane
from tests.unit.app.test_policy_object import an_object
from tests.unit.app.test_reload import YieldingClock, folders

SERVED: Mapping[PolicyKind, str] = {PolicyKind.BALLOONS: "1"}
RULES = {"reservedResources": {"cpu": 1}}


class Told:
    """A core, and an API server's client: `answers` are what it finds, one a round; None: the API server is away."""

    def __init__(self, *answers: Seen | None, mode: Mode = Mode.ENFORCE, began: PolicyObject | None = None) -> None:
        self.node, self.namespace = "n1", "kube-system"
        self._answers = list(answers)
        self.state = State(settings=EngineSettings(cpus=CpusSettings(mode)))
        self.events, self.said = list[Event](), list[tuple[str, Said | None]]()
        chosen = translated(began) if began is not None else None
        self.reload = Reload(Settings(), None, folders(), InlineLane(), YieldingClock(), chosen)
        self.over = asyncio.Event()

    async def look(self) -> Seen:
        if not self._answers:
            self.over.set()
            await asyncio.Event().wait()
        found = self._answers.pop(0)
        if found is None:
            raise KubeAwayError("away")
        return found

    async def until_touched(self, *_: object) -> None:
        await asyncio.sleep(0)

    async def until_moved(self, *_: object) -> None:
        await asyncio.sleep(0)

    async def say(self, _: PolicyKind, name: str, said: Said | None) -> None:
        self.said.append((name, said))

    def tell(self, event: Event) -> int:
        self.events.append(event)
        return len(self.events)


def play(told: Told) -> Told:
    async def story() -> None:
        session = Session(told, told, told.tell, told.reload, YieldingClock(), lambda *_: None)  # type: ignore[arg-type]
        running = asyncio.create_task(session.forever())
        async with asyncio.timeout(10):
            await told.over.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())
    return told


def seen(*objects: PolicyObject) -> Seen:
    return Seen("", objects, SERVED)


def test_what_is_in_force_outlives_an_api_server_that_is_away_or_does_not_serve_the_kind_yet() -> None:
    object_ = an_object(RULES)

    assert play(Told(None, Seen(), None, seen(object_), began=object_)).reload.chosen == translated(object_)
    assert play(Told(Seen(), Seen(), began=object_)).reload.chosen is None


def test_an_object_is_put_in_force_once_and_never_while_the_domain_is_off() -> None:
    told = play(Told(*[seen(an_object(RULES))] * 3))
    assert (len(told.events), told.said[0]) == (1, ("default", Said("Success", 1)))

    told = play(Told(*[seen(an_object(RULES))] * 3, mode=Mode.OFF))
    assert told.events == []
    assert told.reload.row.policy_object_faults == (
        "cpus.mode is off in the settings of this node: no policy is in force",
    )
