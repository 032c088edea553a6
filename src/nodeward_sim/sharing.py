"""NFD of the simulated node, which comes and goes while the daemon lives, and what the daemon shares with Kata by it.

NFD is its kinds in the API server double, an object that its worker would make, Kata's unmodified rule, and the double
of its master. docs/scenarios.md says what is judged; both bounds of our number are worked out from promises and charges
as for the other invariants about keys. Must not know the engine, or write our object.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nodeward.features.keys.rows import KeySharing
from nodeward.host.clock import SystemClock
from nodeward.neighbours.sockets.kube_http import Endpoint, KubeHttp, KubeHttpError
from nodeward.people.rows import NodeView
from nodeward_sim.doubles.kube_nfd import SimNfdKinds
from nodeward_sim.doubles.nfd import KATA_RULE, NfdMaster, worker_object
from nodeward_sim.invariants import Judge
from nodeward_sim.machines import TDX, Machines

NODE = "sim"
NFD_NAMESPACE = "node-feature-discovery"
OURS = ("nodeward", f"zzz-nodeward-{NODE}")
KATAS = "tdx.intel.com/keys"
UNSAID = "share-unsaid"
UNWRITTEN = "share-unwritten"
WRONG = "share-number"
MUTANTS = ("nfd-unfollowed", "nfd-frozen", "nfd-forgets")
FOUND_S = 45.0
"""NFD is looked for each 30 seconds while it is away; then the pods are counted, and the object is written."""
SETTLES_S = 6.0
"""So old may be what the number goes by: what the daemon learns within three seconds, and writes once a second."""
PASS_S = 0.5
"""How often the master looks, which is told of changes by a watch in truth."""


@dataclass(frozen=True, slots=True)
class _Moment:
    at_s: float
    most: int
    """What Kata's pods ask and what is left."""
    asked: int


class Sharing:
    """NFD, and the judgement. `kinds` are the API server double's."""

    def __init__(
        self,
        kinds: SimNfdKinds,
        judge: Judge,
        machines: Machines,
        capacity: int,
        now: Callable[[], float],
        mutant: str,
    ) -> None:
        self._kinds, self._judge, self._machines, self._capacity = kinds, judge, machines, capacity
        self._now, self._mutant = now, mutant
        self._there = False
        self._since_s = self._began_s = self._shared_s = 0.0
        """When the phase began, and all of it; since when the daemon shares in this phase."""
        self._master: asyncio.Future[None] | None = None
        self._moments: deque[_Moment] = deque()
        self._said = ""
        self.story: list[str] = []
        """What was seen in each phase, for the summary."""

    def start(self, url: str) -> None:
        """The node is there, and NFD is installed."""
        self._began_s = self._now()
        metadata: dict[str, object] = {"name": NODE, "uid": "node-sim", "annotations": {}}
        self._kinds.nodes[NODE] = {"kind": "Node", "metadata": metadata, "status": {"capacity": {}, "allocatable": {}}}
        self._install()
        self._master = asyncio.ensure_future(self._be_master(url))

    async def stop(self) -> None:
        """The master ends."""
        if self._master is not None:
            self._master.cancel()
            await asyncio.gather(self._master, return_exceptions=True)

    async def install(self) -> None:
        """NFD and Kata's rule are installed."""
        if not self._there:
            self._install()

    async def remove(self) -> None:
        """NFD is removed, its kinds too, and with them all objects; what it put on the node stays there."""
        if self._there:
            self._there, self._since_s = False, self._now()
            if self._mutant != "nfd-unfollowed":
                self._kinds.uninstall()

    def break_now(self) -> None:
        """Begins the mutant's fault."""
        self._kinds.frozen = self._mutant == "nfd-frozen"
        self._kinds.forgets = self._mutant == "nfd-forgets"
        if self._kinds.forgets:
            self._kinds.features.pop(OURS, None)

    def _install(self) -> None:
        worker = worker_object(NFD_NAMESPACE, NODE, {"tdx.enabled": "true", "tdx.total_keys": str(self._capacity)})
        self._kinds.install(dict(worker), rule=dict(KATA_RULE))
        self._there, self._since_s = True, self._now()

    async def _be_master(self, url: str) -> None:
        async with KubeHttp(Endpoint(url), SystemClock(), user_agent="nfd-master double") as http:
            master = NfdMaster(http, NFD_NAMESPACE)
            while True:
                await asyncio.sleep(PASS_S)
                if self._there:
                    with contextlib.suppress(KubeHttpError):  # the API server is away, or NFD has just gone
                        await master.reconcile(NODE)

    # ---- judgement ---------------------------------------------------------------------------------------------------

    def note(self) -> None:
        """Takes down what the number may go by now."""
        asked = self._machines.asked
        self._moments.append(_Moment(self._now(), self._machines.unsold + asked, asked))
        while self._moments[0].at_s < self._now() - SETTLES_S:
            self._moments.popleft()

    def compare(self, view: NodeView | None) -> None:
        """Holds what the daemon shows, and our object, against the phase."""
        row = next((row for row in view.keys if row.key == TDX), None) if view is not None else None
        if row is None or row.sharing is None or self._judge.api_away:
            return
        self._tell(row.sharing)
        self._judge.checks += 1
        expected, allowed_s = ("override", FOUND_S) if self._there else ("own", self._judge.grace_s)
        if row.sharing.mode != expected and self._now() - self._since_s > allowed_s:
            self._judge.broken(UNSAID, f"NFD is {'there' if self._there else 'gone'}, and share is {row.sharing.mode}")
            self._since_s = self._now()
        if row.sharing.mode != expected or expected == "own":
            self._shared_s = self._now()
        elif self._now() - self._shared_s > SETTLES_S:
            self._number()

    def _number(self) -> None:
        number = self.written
        if number is None:
            self._judge.broken(UNWRITTEN, "NFD is there, and our object is not")
            self._shared_s = self._now()
            return
        most, least = max(one.most for one in self._moments), min(one.asked for one in self._moments)
        if not least <= number <= most:
            self._judge.broken(WRONG, f"Kata is told {number} keys; its pods ask {least} or more, {most} are to be had")
            self._shared_s = self._now()

    @property
    def written(self) -> int | None:
        """The number that our object says; None where there is none."""
        found: object = self._kinds.features.get(OURS)
        for name in ("spec", "features", "attributes", "cpu.security", "elements", "tdx.total_keys"):
            found = found.get(name) if isinstance(found, Mapping) else None
        return int(str(found)) if found is not None else None

    @property
    def on_node(self) -> str:
        """What Kata's pods are scheduled by."""
        status = self._kinds.nodes[NODE]["status"]
        table = status.get("allocatable") if isinstance(status, Mapping) else None
        return str(table.get(KATAS, "-")) if isinstance(table, Mapping) else "-"

    def _tell(self, sharing: KeySharing) -> None:
        phase = f"NFD {'there' if self._there else 'gone'}, share {sharing.mode}"
        if phase == self._said:
            return
        self._said, self._shared_s = phase, self._now()
        offered = f"{sharing.sellable} to sell by our plugin" if sharing.published else "nothing by our plugin"
        says = "no object of ours" if self.written is None else f"our object says {self.written}"
        self.story.append(
            f"after {self._now() - self._began_s:.0f} s: {phase}: {offered}, {says}, the node {self.on_node}"
        )
