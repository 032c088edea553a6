"""Pod after pod with a TEE key of its own, through one life of a daemon that sells them, as fast as virtual time goes.

Beside what `lifetimes` does each pod is admitted by an Allocate, is in kubelet's checkpoint, starts, takes its key in a
cgroup of its own, and ends. The kernel's counters, the checkpoint and the journal of grants are read and written as on
a node.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import msgspec

from nodeward.app import grants
from nodeward.app.facts import FactsByKind
from nodeward.edges.cgroups.keys import KeyPoll, KeyReader
from nodeward.edges.kubelet.checkpoint import CheckpointPoll, CheckpointReader
from nodeward.engine.ledger import gate
from nodeward.engine.pods.found import pod_cgroups
from nodeward.model import events as ev
from nodeward.model.decision import Final, Refusal
from nodeward.model.settings import KeySettings, LedgerSettings, Mode, Publisher
from nodeward.model.tee import PluginStanding
from nodeward.model.workload import ContainerSpec, PodUid, Sandbox
from nodeward.wire import kubelet_checkpoint
from nodeward.wire.kubelet_checkpoint import Data, Entry
from tests.unit.simulated.life import SETTINGS, Life
from tests.unit.simulated.lifetimes import ROOT, Lifetimes
from tests.unit.simulated.plans import EPC

TDX, KEYS = "devices.kubevirt.io/tdx", 64
KUBELET = "/var/lib/kubelet"
ROW = KeySettings((TDX,), publisher=Publisher.DEVICE_PLUGIN, publish=TDX)
WITHIN_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class KeysLeft:
    """What is there once no pod is: grants that stand, what else the ledger keeps, bytes of the journal."""

    granted: int
    entries: int
    journal_bytes: int


class KeyedLifetimes(Lifetimes):
    """One daemon, its kernel, kubelet's checkpoint, and pods with keys without end."""

    capacity: Mapping[str, int] = MappingProxyType({EPC: 1 << 40, "tdx": KEYS})
    settings = replace(SETTINGS, ledger=LedgerSettings(Mode.ENFORCE, {"tdx": ROW}, KUBELET))
    more = (ContainerSpec("compute", declared={TDX: 1}),)

    def __init__(self) -> None:
        self._ids = deque(gate.id_name("tdx", number) for number in range(KEYS))
        self._held: dict[PodUid, str] = {}
        self.granted = self.refused_ids = self.put_off = 0
        self.why = ""
        self.facts = self._by_kind = FactsByKind(self._nobody)
        super().__init__()

    async def _nobody(self, key: str) -> str:
        return f"pod {key}: nobody is asked here"

    async def _start(self) -> Life:
        for folder in ("/var", "/var/lib", KUBELET, f"{KUBELET}/device-plugins", "/run", self.settings.run_dir):
            with contextlib.suppress(FileExistsError):
                self.kernel.mkdir(folder)
        self._write()
        life = await super()._start()
        core, tree = life.core, life.tree
        reader = KeyReader(life.files, tree)
        counting = KeyPoll(
            life.cgroup_lane, reader, ("tdx",), lambda: pod_cgroups(core.state.pods), core.tell, core.seq, self._clock
        )

        def given_out() -> bool:
            return any(life.grants.now().values())

        handed = CheckpointReader(life.files, KUBELET, [TDX])
        looking = CheckpointPoll(life.disk_lane, handed, core.tell, core.seq, self._clock, given_out)
        self._by_kind.offer("keys", counting.fetch)
        self._by_kind.offer("held", looking.fetch)
        for work in (counting.run(), looking.run(), life.grants.keep(core.tell, self._clock)):
            life.spawn(work)
        core.tell(ev.PluginTold(TDX, PluginStanding.SERVING))
        return life

    async def _live_on(self, sandbox: Sandbox) -> None:
        uid = sandbox.pod_uid
        name = await self._admitted()
        self._held[uid] = name
        self._write()
        while not await self._asked(ev.Starting(TDX, (name,))):
            self.put_off += 1
            await asyncio.sleep(0.5)
        home = f"{ROOT}{sandbox.cgroup_parent}/compute"
        self.kernel.make_cgroup(home)
        self.kernel.charge(home, "tdx", 1)
        await asyncio.sleep(self._random.uniform(0, 0.5))
        self.kernel.uncharge(home, "tdx", 1)
        self.kernel.rmdir(home)
        del self._held[uid]
        self._write()
        self._ids.append(name)

    async def _admitted(self) -> str:
        """The id that was granted. Kubelet fails a pod for good; whoever wants it makes another one."""
        while True:
            name = self._ids.popleft()
            if await self._asked(ev.Allocating(TDX, (name,))):
                self.granted += 1
                return name
            self.refused_ids += 1
            self._ids.append(name)
            await asyncio.sleep(0.5)

    async def _asked(self, question: ev.Admitted) -> bool:
        answer = self._life.core.ask(question, WITHIN_NS)
        final = answer if isinstance(answer, Final) else await answer
        if isinstance(final.value, Refusal):
            self.why = final.value.message
            return False
        return True

    def _write(self) -> None:
        """Kubelet's checkpoint, as it writes it."""
        entries = tuple(Entry(uid, "compute", TDX, {-1: (name,)}, b"") for uid, name in self._held.items())
        data = Data(entries or None, {TDX: tuple(gate.id_name("tdx", number) for number in range(KEYS))})
        file = {"Data": data, "Checksum": kubelet_checkpoint.checksum(data)}
        self.kernel.replace(f"{KUBELET}/{kubelet_checkpoint.PLACE}", msgspec.json.encode(file))

    def keys_left(self) -> KeysLeft:
        """What has stayed behind of keys."""
        ledger = self._life.core.state.ledger
        granted = sum(bool(grant.times) for offer in ledger.offers.values() for grant in offer.grants.values())
        entries = len(ledger.reserved) + sum(len(offer.held) + len(offer.over) for offer in ledger.offers.values())
        journal = self.kernel.stat(grants.path_in(self.settings.run_dir)).size
        return KeysLeft(granted, entries, journal)
