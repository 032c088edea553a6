"""The page "Add a feature" is true: its example decides, is performed, and hears of its own goals alone."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from nodeward.core import events as ev
from nodeward.core.decision import Adjustment, Decision, Target
from nodeward.core.workload import Phase
from nodeward.features.all import ENGINE
from nodeward.host.clock import SystemClock
from nodeward.host.hostfs import OsFiles
from nodeward.host.slots import Slots
from nodeward.neighbours.cgroups.hierarchy import Tree
from tests.lanes import InlineLane
from tests.unit.features.build import container, creating, sandbox, value_of

PAGE = Path(__file__).parents[3] / "docs" / "add-a-feature.md"
HEAD = """
from collections.abc import Mapping

from nodeward.host.hostfs import HostFiles
from nodeward.features.wiring import Remember, Wiring
from nodeward.neighbours.cgroups.hierarchy import Tree
from nodeward.core.feature import Feature
from nodeward.features.root import State
from nodeward.core.decision import NOTHING, Adjustment, Decision, Final, Goal, Reason, Target
from nodeward.core.events import Creating, Started, Stopped
from nodeward.core.ports import Perform, Written
from dataclasses import dataclass, field, replace
"""


def test_the_example_pins_a_container_and_moves_all_others_by_one_goal(tmp_path: Path) -> None:
    code: dict[str, object] = {"__name__": "example"}
    (block,) = PAGE.read_text().split("```python\n")[1:]
    exec(HEAD + block.split("```")[0], code)
    made = SimpleNamespace(**code)
    state, engine = made.WithSpare(), replace(ENGINE, features=(*ENGINE.features, made.SPARE))

    def told(event: ev.Event) -> Decision:
        nonlocal state
        state, decision = engine.apply(state, replace(event, seq=state.seq + 1))
        assert decision.faults == ()
        return decision

    def started(uid: str, name: str) -> ev.Started:
        return ev.Started(sandbox(uid), replace(container(uid, name), cgroups_path=f"/{uid}", phase=Phase.RUNNING))

    for uid in ("a", "b", "c"):
        (tmp_path / uid).mkdir()
        (tmp_path / uid / "cpuset.cpus").write_text("0-3\n")
        told(started(uid, "app"))
    told(ev.Stopped(sandbox("c"), started("c", "app").container))
    assert value_of(told(creating("q", "quiet"))) == Adjustment(cpus="0")

    (goal,) = [goal for goal in told(started("q", "quiet")).goals if goal.target.kind == "cpuset"]
    lane, files = InlineLane(), OsFiles()
    slots = Slots(lane, made.WIRING.performers(files, Tree(files, str(tmp_path)), print), SystemClock())
    slots.require("spare", made.SPARE.kinds)
    heard = list[ev.Event]()

    def tell(event: ev.Event) -> int:
        heard.append(event)
        told(event)
        return len(heard)

    slots.connect(tell, lambda: None)
    slots.set([goal])
    lane.drain()

    assert [(tmp_path / uid / "cpuset.cpus").read_text().strip() for uid in ("a", "b", "c")] == ["1-3", "1-3", "0-3"]
    assert heard == [ev.Reached((both := (Target("cpuset", "/a"), Target("cpuset", "/b"))), both)]
