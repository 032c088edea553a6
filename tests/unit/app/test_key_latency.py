"""How soon kubelet's list follows what somebody else takes: bounds that hold by construction, on virtual time.

The whole inside of the daemon as on a node, with the sampler on the same lane as the key counters, each of whose jobs
takes up to LANE_S: as much as a pass of a full node takes on a machine with no processor to spare.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

from nodeward.aio.lanes import InlineLane
from nodeward.app import components, grants, wiring
from nodeward.app.facts import FactsByKind
from nodeward.app.readiness import Readiness
from nodeward.app.record import RecordWriter
from nodeward.edges.cgroups.hierarchy import Tree
from nodeward.engine.ledger.gate import id_name
from nodeward.model import events as ev
from nodeward.model.settings import (
    KeySettings,
    KubeSection,
    LedgerSettings,
    LimitsSettings,
    Mode,
    NriSection,
    Publisher,
    Settings,
)
from nodeward.model.workload import PodUid, Sandbox, SandboxId
from nodeward.sim.kernel import SimKernel
from tests.unit.simulated.virtual import Pace, VirtualClock, VirtualLane, VirtualLoop

TDX, KEYS = "devices.kubevirt.io/tdx", 16
ROOT, POD, VM = "/sys/fs/cgroup", "/kubepods/podA", "/machine.slice"
INSIDE = f"{POD}/{'c' * 64}"
LANE_S = 0.2
MOVED_S, SWEPT_S = 0.5, 2.5
"""Issue 5, B6."""
PHASES = 40


class Node:
    """A node whose one pod was given an id and holds a key for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self.kernel, self.clock = loop, SimKernel({"tdx": KEYS}), VirtualClock(loop)
        self.kernel.write(f"{ROOT}/cgroup.subtree_control", b"+misc")
        self.kernel.make_cgroup(ROOT + INSIDE)
        self.kernel.make_cgroup(ROOT + VM)
        for above in ("/kubepods", POD):
            self.kernel.write(f"{ROOT}{above}/cgroup.subtree_control", b"+misc")
        row = KeySettings((TDX,), publisher=Publisher.DEVICE_PLUGIN, publish=TDX)
        settings = Settings(
            ledger=LedgerSettings(Mode.ENFORCE, {"tdx": row}),
            limits=LimitsSettings(),
            nri=NriSection(enabled=False),
            kube=KubeSection(enabled=False),
        )
        lane = VirtualLane(loop, Random(1), Pace(LANE_S), lambda: None)
        lanes = wiring.Lanes(lane, InlineLane(), InlineLane(), InlineLane())
        facts = FactsByKind(partial(components.NoFacts().fetch, "pod"))
        inside = wiring.wire(
            settings,
            self.kernel,
            self.clock,
            lanes,
            RecordWriter(self.kernel, lanes.disk, "", 1, 1),
            Readiness(settings, self.clock),
            facts,
            wiring.in_kernel(self.kernel, Tree(self.kernel, ROOT)),
            wiring.OnDisk(unread=False),
            grants.Recalled(),
        )
        self.core, self.offers = inside.core, inside.newest["offer"]
        counting = components.keys(
            settings, self.kernel, inside.tree, lane, lanes.disk, self.core, self.clock, facts, inside.grants
        )
        wanted = ("cgroups", "keys")
        self.tasks = [asyncio.ensure_future(run()) for name, run in (*inside.components, *counting) if name in wanted]
        self.core.tell(ev.ApiBack())
        self.core.tell(ev.SandboxStarted(Sandbox(SandboxId("s"), PodUid("A"), "shop", "vm", cgroup_parent=POD)))
        self.core.tell(ev.KeysHeld(self.core.seq(), {PodUid("A"): {TDX: (id_name("tdx", 0),)}}))
        self.charge(INSIDE, 1)

    def charge(self, path: str, amount: int) -> None:
        """Takes keys, or gives them back."""
        (self.kernel.charge if amount > 0 else self.kernel.uncharge)(ROOT + path, "tdx", abs(amount))

    @property
    def healthy(self) -> int:
        """What kubelet's list has of them."""
        text = self.offers.value(f"offer:{TDX}")
        return sum(healthy for _, healthy in json.loads(text)) if text else 0

    async def until(self, healthy: int, within_s: float) -> float:
        """How long that took."""
        began = self.loop.time()
        while self.healthy != healthy:
            waited = self.loop.time() - began
            assert waited < within_s, f"{self.healthy} ids healthy after {waited:.2f} s, not {healthy}"
            await asyncio.sleep(0.004)
        return self.loop.time() - began


def play(story: Callable[[Node], Awaitable[None]]) -> None:
    loop = VirtualLoop()

    async def told() -> None:
        node = Node(loop)
        await node.until(KEYS, 30)
        await story(node)
        assert [task for task in node.tasks if task.done()] == []
        for task in node.tasks:
            task.cancel()
        await asyncio.gather(*node.tasks, return_exceptions=True)
        node.core.close()

    try:
        loop.run_until_complete(told())
    finally:
        loop.close()


def test_what_moves_the_nodes_counter_is_withheld_in_half_a_second_at_any_moment() -> None:
    took: list[float] = []

    async def story(node: Node) -> None:
        for phase in range(PHASES):
            await asyncio.sleep(phase * 0.0347)
            node.charge(VM, 1)
            took.append(await node.until(KEYS - 1, MOVED_S))
            node.charge(VM, -1)
            await node.until(KEYS, 30)

    play(story)

    assert len(took) == PHASES

    assert max(took) > 0.05, "else nothing was waited for, and this shows nothing"


def test_what_leaves_the_nodes_counter_as_it_was_is_withheld_in_two_and_a_half_seconds() -> None:
    """Given a pod that keeps its id while its machine ends, and foreign ones that begin in the same instant."""
    took: list[float] = []

    async def story(node: Node) -> None:
        for phase in range(PHASES):
            await asyncio.sleep(phase * 0.147)
            node.charge(INSIDE, -1)
            node.charge(VM, 1)
            took.append(await node.until(KEYS - 1, SWEPT_S))
            node.charge(VM, -1)
            node.charge(INSIDE, 1)
            await node.until(KEYS, 30)

    play(story)

    assert len(took) == PHASES

    assert max(took) > MOVED_S, "else the sweep was never needed, and this shows nothing"
