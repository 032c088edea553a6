"""Kubelet and confidential VMs of a simulated history: who is promised a key, who takes one, and others who do.

As far as keys go this is kubelet: it asks for an id that it was told is healthy and that it has given to no pod, one
admission at a time; writes its checkpoint once it is answered; asks again before each start; and forgets a pod's id
some time after the pod's end. An answer that does not come fails the pod. What was promised is known here by answers
alone, never by the engine's rules.
"""

import asyncio
import contextlib
import json
from dataclasses import replace
from random import Random

import msgspec

from nodeward.doubles.kernel import SimKernel
from nodeward.engine.ledger import device_ids
from nodeward.engine.state.ledger import Offer
from nodeward.model import events as ev
from nodeward.model.decision import Final
from nodeward.model.settings import KeySettings, LedgerSettings, Mode, Publisher
from nodeward.model.workload import PodUid
from nodeward.wire import kubelet_checkpoint
from nodeward.wire.kubelet_checkpoint import Data, Entry
from tests.unit.simulated.life import SETTINGS, Life
from tests.unit.simulated.plans import Plan
from tests.unit.simulated.world import ROOT, LiveContainer, World

KEY, TDX = "tdx", "devices.kubevirt.io/tdx"
FOLDER = "/var/lib/kubelet"
ROW = KeySettings((TDX,), publisher=Publisher.DEVICE_PLUGIN, publish=TDX)
LEDGER = LedgerSettings(Mode.ENFORCE, {KEY: ROW}, FOLDER)
FOREIGN = f"{ROOT}/machine.slice"
ALLOCATE_NS, ANSWER_S = (400_000_000, 250_000_000), 0.45
"""As our device plugin asks, and where it comes to that late: then more answers are too late for their record."""
START_NS, STARTED_S = 20_000_000_000, 21.0
TRIES = 12
"""Of a start, until its container is given up for now."""


def disk_of(kernel: SimKernel) -> None:
    """The folders that kubelet and systemd make before the daemon starts."""
    for folder in (FOLDER, f"{FOLDER}/device-plugins", SETTINGS.run_dir):
        with contextlib.suppress(FileExistsError):
            kernel.mkdir(folder)


def write_checkpoint(kernel: SimKernel, keys: int, held: dict[PodUid, str]) -> None:
    """Kubelet's checkpoint, as it writes it."""
    entries = tuple(Entry(uid, "compute", TDX, {-1: (name,)}, b"") for uid, name in held.items())
    data = Data(entries or None, {TDX: tuple(device_ids.id_name(KEY, number) for number in range(keys))})
    file = {"Data": data, "Checksum": kubelet_checkpoint.checksum(data)}
    kernel.replace(f"{FOLDER}/{kubelet_checkpoint.PLACE}", msgspec.json.encode(file))


def with_key(plan: Plan) -> Plan:
    """The same pod, whose container `app` is a VM."""
    containers = tuple(
        replace(one, declared={**one.declared, TDX: 1}) if one.name == "app" else one for one in plan.spec.containers
    )
    return replace(plan, spec=replace(plan.spec, containers=containers))


async def answered(life: Life, question: ev.Admitted, within_ns: int, patience_s: float) -> Final | None:
    """The daemon's answer; None where none came in time, or the daemon died."""
    answer = life.core.ask(question, within_ns)
    if isinstance(answer, Final):
        return answer
    task = life.spawn(answer)
    await asyncio.wait({task}, timeout=patience_s)
    if not task.done():
        task.cancel()
        return None
    found = None if task.cancelled() or task.exception() is not None else task.result()
    return found if isinstance(found, Final) else None


class Kubelet:
    """What kubelet has given out of `keys` keys, and who has taken them."""

    def __init__(self, world: World, keys: int) -> None:
        self._world, self._kernel, self.keys = world, world.kernel, keys
        self.promised: dict[PodUid, str] = {}
        """The ids of pods that live."""
        self.granted = 0
        self._held: dict[PodUid, str] = {}
        """The same as the checkpoint has it, where a pod that has ended is named for a while."""
        self._asked_s: dict[PodUid, float] = {}
        """When each pod's last start was asked for."""
        self._within_ns = Random(f"{world.seed}/within").choice(ALLOCATE_NS)
        self._turn = asyncio.Lock()
        self._foreign = [(0.0, 0)]
        """How many keys others had, from each time on."""
        disk_of(self._kernel)
        self._kernel.make_cgroup(FOREIGN)
        self._write()

    async def admits(self, uid: PodUid) -> bool:
        """Whether the pod is given an id."""
        async with self._turn:
            life, asked_s = self._world.life, _now_s()
            name = next((one for one in self.healthy() if one not in self._held.values()), "")
            if life is None or not name:
                return False
            had = _granted(life, name)
            final = await answered(life, ev.Allocating(TDX, (name,)), self._within_ns, ANSWER_S)
            if final is None and life.alive:
                self._world.violate(f"no answer to Allocate within {ANSWER_S} s")
            if final is None or final.reason.code != "granted":
                if final is not None and (_granted(life, name) > had or life.core.state.ledger.reserved):
                    self._world.violate(f"{name} was refused and stays granted")
                self._world.say(f"pod {uid} gets no {name}: {final.reason if final is not None else 'no answer'}")
                return False
            self.granted += 1
            self.promised[uid] = self._held[uid] = name
            self._write()
            self._world.say(f"pod {uid} gets {name}")
        taken = len(self.promised) + min(self._foreign_since(asked_s))
        if taken > self.keys:
            self._world.violate(f"{name} was granted though {taken - 1} of {self.keys} keys were promised or taken")
        return True

    def healthy(self) -> list[str]:
        """The ids that kubelet may give out; none while no device plugin is there."""
        life = self._world.life
        text = life.offers.value(TDX) if life is not None and life.alive else None
        return [name for name, is_healthy in json.loads(text or "[]") if is_healthy]

    async def starts(self, uid: PodUid) -> bool:
        """Whether the pod's VM may start; a refusal is tried again."""
        for _ in range(TRIES):
            life = self._world.life
            if uid not in self.promised:
                return False
            if life is not None and life.alive:
                self._asked_s[uid] = _now_s()
                final = await answered(life, ev.Starting(TDX, (self.promised[uid],)), START_NS, STARTED_S)
                if final is not None and final.reason.code == "let-through":
                    return True
            await asyncio.sleep(0.5)
        return False

    async def takes(self, live: LiveContainer, late_s: float) -> None:
        """The VM takes its key, some time after its start was let through."""
        uid, path = live.plan.uid, live.container.cgroups_path
        await asyncio.sleep(late_s)
        pod = self._world.pods.get(uid)
        if pod is None or pod.containers.get(live.container.id) is not live:
            return
        before, *since = self._foreign_since(self._asked_s[uid])
        try:
            self._kernel.charge(ROOT + path, KEY, 1)
        except OSError as error:
            self._world.say(f"{live.label} finds no key: {error}")
            if all(amount <= before for amount in since):
                self._world.violate(f"the start of {live.label} was let through, and there was no key")
        else:
            self._world.say(f"{live.label} takes a key")

    def others_take(self, amount: int) -> None:
        """So many keys are in use outside of Kubernetes, or as many as there are."""
        there = self._foreign[-1][1]
        while there > amount:
            self._kernel.uncharge(FOREIGN, KEY, 1)
            there -= 1
        with contextlib.suppress(OSError):
            while there < amount:
                self._kernel.charge(FOREIGN, KEY, 1)
                there += 1
        self._foreign.append((_now_s(), there))
        self._world.say(f"others have {there} keys")

    def ended(self, uid: PodUid, late_s: float) -> None:
        """The pod is gone; kubelet forgets its id so much later."""
        if self.promised.pop(uid, None) is not None:
            asyncio.get_running_loop().call_later(late_s, self._forget, uid)

    def _forget(self, uid: PodUid) -> None:
        del self._held[uid]
        self._write()

    def _write(self) -> None:
        write_checkpoint(self._kernel, self.keys, self._held)

    def _foreign_since(self, at_s: float) -> list[int]:
        """How many keys others had at this time, and after each change since."""
        before = [amount for since_s, amount in self._foreign if since_s <= at_s]
        return [before[-1], *(amount for since_s, amount in self._foreign if since_s > at_s)]


def _granted(life: Life, name: str) -> int:
    """For how many pods the daemon has granted the id."""
    offer = life.core.state.ledger.offers.get(KEY, Offer())
    return offer.grants[name].times if name in offer.grants else 0


def _now_s() -> float:
    return asyncio.get_running_loop().time()
