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

from nodeward.core import events as ev
from nodeward.core.decision import Final
from nodeward.core.modes import Mode
from nodeward.core.refusal import Refusal
from nodeward.core.workload import ContainerSpec, PodUid, Sandbox
from nodeward.features.keys import device_ids
from nodeward.features.keys.effects import grants
from nodeward.features.keys.settings import KeyKind, KeysSettings, Publisher
from nodeward.neighbours.kubelet import checkpoint_file
from nodeward.neighbours.kubelet.checkpoint_file import Data, Entry
from tests.unit.simulated.life import SETTINGS, Life
from tests.unit.simulated.lifetimes import ROOT, Lifetimes
from tests.unit.simulated.plans import EPC

KEY, TDX = "tdx", "devices.kubevirt.io/tdx"
FOLDER = "/var/lib/kubelet"
ROW = KeyKind((TDX,), publisher=Publisher.DEVICE_PLUGIN, publish=TDX)
KEYS = KeysSettings(Mode.ENFORCE, {KEY: ROW}, FOLDER)
CAPACITY = 64
WITHIN_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class KeysLeft:
    """What is there once no pod is: grants that stand, what else `keys` keeps, bytes of the journal."""

    granted: int
    entries: int
    journal_bytes: int


class KeyedLifetimes(Lifetimes):
    capacity: Mapping[str, int] = MappingProxyType({EPC: 1 << 40, KEY: CAPACITY})
    settings = replace(SETTINGS, keys=KEYS)
    more = (ContainerSpec("compute", declared={TDX: 1}),)

    def __init__(self) -> None:
        self._ids = deque(device_ids.id_name(KEY, number) for number in range(CAPACITY))
        self._held: dict[PodUid, str] = {}
        self.granted = self.refused_ids = self.put_off = 0
        self.why = ""
        super().__init__()

    async def _start(self) -> Life:
        for folder in (FOLDER, f"{FOLDER}/device-plugins", SETTINGS.run_dir):  # as kubelet and systemd do before
            with contextlib.suppress(FileExistsError):
                self.kernel.mkdir(folder)
        self._write()
        return await super()._start()

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
        self.kernel.charge(home, KEY, 1)
        await asyncio.sleep(self._random.uniform(0, 0.5))
        self.kernel.uncharge(home, KEY, 1)
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
        entries = tuple(Entry(uid, "compute", TDX, {-1: (name,)}, b"") for uid, name in self._held.items())
        data = Data(entries or None, {TDX: tuple(device_ids.id_name(KEY, number) for number in range(CAPACITY))})
        file = {"Data": data, "Checksum": checkpoint_file.checksum(data)}
        self.kernel.replace(f"{FOLDER}/{checkpoint_file.PLACE}", msgspec.json.encode(file))

    def keys_left(self) -> KeysLeft:
        keys = self._life.core.state.keys
        granted = sum(bool(grant.times) for offer in keys.offers.values() for grant in offer.grants.values())
        entries = len(keys.reserved) + sum(len(offer.held) + len(offer.over) for offer in keys.offers.values())
        journal = self.kernel.stat(grants.path_in(self.settings.run_dir)).size
        return KeysLeft(granted, entries, journal)
