"""The whole inside of the daemon as on a node whose keys it offers, on virtual time, with kubelet's list as it stands.

The sampler is on the same lane as the key counters, each of whose jobs takes up to LANE_S: as much as a pass of a full
node takes on a machine with no processor to spare.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

from nodeward.app.host.facts import FactsByKind
from nodeward.app.host.record import RecordWriter
from nodeward.app.node import assemble, grants
from nodeward.app.node import ledger as keys
from nodeward.app.node.readiness import Readiness
from nodeward.app.node.wiring import Lanes
from nodeward.doubles.kernel import SimKernel
from nodeward.edges.cgroups.hierarchy import Tree
from nodeward.engine.ledger.device_ids import id_name
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
from tests.lanes import InlineLane
from tests.unit.simulated.virtual import Pace, VirtualClock, VirtualLane, VirtualLoop

TDX, KEYS = "devices.kubevirt.io/tdx", 16
ROW = KeySettings((TDX,), publisher=Publisher.DEVICE_PLUGIN, publish=TDX)
OFFERED = LedgerSettings(Mode.ENFORCE, {"tdx": ROW})
ROOT, POD, VM = "/sys/fs/cgroup", "/kubepods/podA", "/machine.slice"
INSIDE = f"{POD}/{'c' * 64}"
LANE_S = 0.2


class Node:
    """A node one of whose pods was given an id and holds a key for it, by the one row of these settings; the `others`
    hold none."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ledger: LedgerSettings, others: int = 0) -> None:
        ((self.key, row),) = ledger.keys.items()
        self.resource = row.publish
        self.loop, self.kernel, self.clock = (
            loop,
            SimKernel({self.key: KEYS}, resources=(self.key,)),
            VirtualClock(loop),
        )
        self.kernel.write(f"{ROOT}/cgroup.subtree_control", b"+misc")
        self.kernel.make_cgroup(ROOT + INSIDE)
        self.kernel.make_cgroup(ROOT + VM)
        for above in ("/kubepods", POD):
            self.kernel.write(f"{ROOT}{above}/cgroup.subtree_control", b"+misc")
        settings = Settings(
            ledger=ledger,
            limits=LimitsSettings(),
            nri=NriSection(enabled=False),
            kube=KubeSection(enabled=False),
        )
        self.pace, self.journal = Pace(LANE_S), InlineLane()
        self.lane = lane = VirtualLane(loop, Random(1), self.pace, lambda: None)
        lanes = Lanes(lane, InlineLane(), InlineLane(), self.journal)
        self.facts = facts = FactsByKind()
        inside = assemble.wire(
            settings,
            self.kernel,
            self.clock,
            lanes,
            RecordWriter(self.kernel, lanes.disk, "", 1, 1),
            Readiness(settings, self.clock),
            facts,
            assemble.in_kernel(self.kernel, Tree(self.kernel, ROOT)),
            assemble.OnDisk(unread=False),
            grants.Recalled(),
        )
        self.core, self.offers = inside.core, inside.slots.by_edge["offer"]
        handed_out = partial(keys.checkpoint_file, settings, self.kernel)
        counting, _ = keys.keys(
            *(settings, self.kernel, inside.tree, lane, lanes.disk, self.core, self.clock, facts, inside.grants),
            handed_out,
        )
        wanted = ("cgroups", "keys")
        self.tasks = [asyncio.ensure_future(run()) for name, run in (*inside.components, *counting) if name in wanted]
        self.core.tell(ev.ApiBack())
        self.core.tell(ev.SandboxStarted(Sandbox(SandboxId("s"), PodUid("A"), "shop", "vm", cgroup_parent=POD)))
        self.core.tell(ev.KeysHeld(self.core.seq(), {PodUid("A"): {self.resource: (id_name(self.key, 0),)}}))
        for number in range(others):
            path = f"/kubepods/pod{number}"
            self.kernel.make_cgroup(ROOT + path)
            sandbox = Sandbox(SandboxId(str(number)), PodUid(str(number)), "shop", f"pod-{number}", cgroup_parent=path)
            self.core.tell(ev.SandboxStarted(sandbox))
        self.charge(INSIDE, 1)

    def charge(self, path: str, amount: int) -> None:
        """Takes keys, or gives them back."""
        (self.kernel.charge if amount > 0 else self.kernel.uncharge)(ROOT + path, self.key, abs(amount))

    @property
    def listed(self) -> list[tuple[str, bool]]:
        """Kubelet's list: each id, and whether it is healthy."""
        text = self.offers.value(self.resource)
        return [(name, healthy) for name, healthy in json.loads(text)] if text else []

    @property
    def healthy(self) -> int:
        """How many of them are."""
        return sum(healthy for _, healthy in self.listed)

    async def until(self, healthy: int, within_s: float) -> float:
        """How long that took."""
        began = self.loop.time()
        while self.healthy != healthy:
            waited = self.loop.time() - began
            assert waited < within_s, f"{self.healthy} ids healthy after {waited:.2f} s, not {healthy}"
            await asyncio.sleep(0.004)
        return self.loop.time() - began


def play(story: Callable[[Node], Awaitable[None]], ledger: LedgerSettings = OFFERED, others: int = 0) -> None:
    """The story, once all keys are offered."""
    loop = VirtualLoop()

    async def told() -> None:
        node = Node(loop, ledger, others)
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
