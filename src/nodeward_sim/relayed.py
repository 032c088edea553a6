"""A runtime behind the real relay, and kubelet's side of CRI before it: what a scenario with `relay: true` runs on.

The world asks this for pods and containers as it asks the runtime double, and each call goes client, relay process,
runtime double, on real sockets. Kubelet's habits are here: lists once a while, an update of a running container now and
then, and after UNAVAILABLE a new connection and another try, since the answer may be all that was lost.

Judged is what the runtime got and what the client was answered, call by call (each has a number, `cri_runtime.MARK`),
and the kernel double's limit at the moment when a container's program would begin to run. The relay's own word counts
for nothing.

Must not: know the relay's inside, or correct it.
"""

import asyncio
import contextlib
import json
import math
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from google.protobuf.message import Message

from nodeward.contracts import cri_pb2 as cri
from nodeward.core.annotations import OWN_LIMITS
from nodeward.core.errors import NodewardError, WireError
from nodeward.neighbours.cri import relay_line as line
from nodeward.neighbours.cri import relay_socket
from nodeward.neighbours.cri.calls import Fate
from nodeward.neighbours.sockets.grpc_unix import Code, GrpcClient, GrpcError
from nodeward.people.relay_view import RelayView
from nodeward_sim.charges import EPC, Charges
from nodeward_sim.daemon import Process
from nodeward_sim.doubles.cri_runtime import MARK, SERVICE, CriRuntime, Shim, marked
from nodeward_sim.doubles.runtime import SimContainer, SimPod, SimRuntime
from nodeward_sim.doubles.runtime_plugins import RuntimeRefusalError
from nodeward_sim.invariants import Judge
from nodeward_sim.relay_child import DOUBLES, DROPS, FAILS, FORGETS
from nodeward_sim.shapes import Shape

BORN = "born-without-limit"
BARE = "update-without-limit"
TWICE = "call-doubled"
LOST = "call-lost"
OTHER = "call-failed"
AWAY = "relay-away"
HANGS, STAYS_AWAY = "relay-hangs", "relay-stays-away"
MUTANTS = (DROPS, DOUBLES, FORGETS, FAILS, HANGS, STAYS_AWAY)
IMAGES = "runtime.v1.ImageService"
CALL_S = 8.0
"""Longer than the relay may hold a call; then nobody has answered."""
FIRST_S = 60.0
ASK_S = 1.0
AGAIN_S = 0.2
LIST_S = 0.5
AWAY_S = 1.0
"""So long relay or runtime are away once they have been killed."""
COMES_BACK_S = 6.0
"""Within this time after both are started again a call has passed."""
LEARN_S = 3.0
"""Within this time a relay that has begun has asked the runtime what there is."""
KEPT = 10_000
"""Calls whose numbers are kept to see whether one comes again."""


@dataclass(slots=True)
class Counts:
    """What the client saw, for the summary."""

    calls: int = 0
    unavailable: int = 0
    updates: int = 0
    judged_updates: int = 0
    born: int = 0
    """Containers whose limit was looked at when they started."""


@dataclass(slots=True)
class _Pod:
    promised: Mapping[str, int]
    """By container, in bytes."""
    config: SimPod | None = None
    """Once it is there."""


class Relayed:
    """The runtime as kubelet reaches it. `config` is the settings file that relay and daemon share."""

    def __init__(
        self,
        folder: Path,
        runtime: SimRuntime,
        judge: Judge,
        charges: Charges,
        now: Callable[[], float],
        random: Random,
        mutant: str,
        log: Path | None,
        shim: Shim | None = None,
    ) -> None:
        self._folder, self._runtime, self._judge, self._charges = folder, runtime, judge, charges
        self._now, self._random, self._mutant = now, random, mutant if mutant in MUTANTS else ""
        self._listen, self._behind = folder / "cri.sock", folder / "runtime.sock"
        self._cri = CriRuntime(runtime, self._behind, self._executed, shim=shim)
        self._relay = Process(log)
        self._client: GrpcClient | None = None
        self._config = ""
        self._habits: asyncio.Future[None] | None = None
        self._number = 0
        self._got: dict[int, bytes] = {}
        """What the runtime answered to each call that it got, newest last."""
        self._pods: dict[str, _Pod] = {}
        """By UID."""
        self._uids: dict[str, str] = {}
        """By sandbox."""
        self._running: dict[str, None] = {}
        self._there_since_s = math.inf
        """Since when relay and runtime are both there; infinite while one is away."""
        self._since_s = 0.0
        """When a call was answered last."""
        self._decided_by = self._went = 0
        """The daemon that decides, by the relay's own word; 0 while none does. And how often one went."""
        self._undecided: dict[str, None] = {}
        """Containers that were created while none did."""
        self._socket = folder / "run" / line.SOCKET
        self._heard: dict[int, RelayView] = {}
        """What each relay said last, by its process."""
        self.view: RelayView | None = None
        self.counts = Counts()

    @property
    def sections(self) -> dict[str, dict[str, object]]:
        """What the settings of relay and daemon say of it."""
        relay = {"listen": str(self._listen), "runtime": str(self._behind), "limits": True}
        return {"nri": {"enabled": False}, "relay": relay}

    @property
    def unremoved(self) -> list[str]:
        """The ids of all sandboxes and containers that the runtime has, those that are being stopped among them."""
        return [*(one.id for one in self._runtime.pods()), *(one.id for one in self._runtime.containers())]

    @property
    def pid(self) -> int | None:
        """The relay's process."""
        return self._relay.pid

    @property
    def life(self) -> float | None:
        """Since when relay and runtime are both there, for long enough to know what there is; None else."""
        is_there = self._now() - self._there_since_s > LEARN_S
        return self._there_since_s if is_there else None

    async def look(self) -> None:
        """Asks the relay how it does: for people, not for the judge."""
        went = self._went
        try:
            self.view = await relay_socket.ask(str(self._socket), line.STATUS, RelayView, ASK_S)
        except (OSError, TimeoutError, WireError):
            self.view = None
        else:
            self._heard[self.view.pid] = self.view
            self._decided_by = self.view.daemon.process if went == self._went else 0

    @property
    def fates(self) -> dict[str, int]:
        """What became of calls in all relays that there were, as far as each was last asked."""
        found = {fate.value: 0 for fate in Fate}
        for view in self._heard.values():
            for row in view.calls:
                for fate, count in row.fates.items():
                    found[fate] = found.get(fate, 0) + count
        return found

    def daemon_went(self) -> None:
        """From now on creates and updates go on undecided, until a daemon is there again."""
        self._decided_by, self._went = 0, self._went + 1

    @property
    def _decides(self) -> bool:
        """Whether a daemon decides; it holds creates until it knows what the runtime has."""
        return self._decided_by != 0

    # ---- its life ----------------------------------------------------------------------------------------------------

    async def begin(self, config: Path) -> None:
        """Runtime and relay begin. Returns when a call has passed."""
        self._config = str(config)
        await self._cri.start()
        await self._start_relay()
        try:
            await asyncio.wait_for(self._listed(), FIRST_S)
        except TimeoutError as error:
            raise NodewardError(f"no call has passed the relay within {FIRST_S:g} s; see its log") from error
        self._habits = asyncio.ensure_future(self._live())

    def break_now(self) -> None:
        """Begins the mutant's fault of the relay, where it is one that begins later."""
        if self._mutant == HANGS:
            self._relay.send(signal.SIGSTOP)

    async def close(self) -> None:
        """All of it ends."""
        if self._habits is not None:
            self._habits.cancel()
            await asyncio.gather(self._habits, return_exceptions=True)
        if self._client is not None:
            await self._client.close()
        self._relay.send(signal.SIGCONT)
        await self._relay.stop()
        await self._cri.stop()

    async def restart(self) -> None:
        """The runtime goes and comes back; its containers go on."""
        self._there_since_s = math.inf
        await self._cri.stop()
        await asyncio.sleep(AWAY_S)
        await self._cri.start()
        self._there_since_s = self._now()

    async def kill_relay(self) -> None:
        """Kill -9, and a second later it is started again."""
        self._there_since_s = math.inf
        self.daemon_went()
        await self._relay.stop(signal.SIGKILL)
        await asyncio.sleep(AWAY_S)
        await self._start_relay()

    async def _start_relay(self) -> None:
        """It is there as soon as its process is: what it needs to begin is in the grace."""
        mutant = "" if self._mutant == FORGETS and not self._relay.starts else self._mutant
        if self._mutant != STAYS_AWAY or not self._relay.starts:
            await self._relay.run("nodeward_sim.relay_child", self._config, mutant)
        self._there_since_s = self._now()

    # ---- what the world asks for -------------------------------------------------------------------------------------

    def pod(self, shape: Shape, uid: str, name: str) -> SimPod:
        """The pod as kubelet asks for it: its annotation is what our webhook writes of what the spec declares."""
        promised = {plan.name: plan.promised for plan in shape.containers if plan.promised is not None}
        self._pods[uid] = _Pod(promised)
        declared = {container: {EPC: str(limit)} for container, limit in promised.items() if limit}
        return SimPod(uid, name, annotations={OWN_LIMITS: json.dumps(declared)} if declared else {})

    async def run_pod(self, pod: SimPod) -> str:
        """The new sandbox's id."""
        while True:
            answer = await self._call("RunPodSandbox", cri.RunPodSandboxRequest(config=_config(pod)))
            if answer is not None:
                made = cri.RunPodSandboxResponse.FromString(answer).pod_sandbox_id
            else:  # it may have come to be all the same
                made = next((one.id for one in (await self._listed())[0].items if one.metadata.uid == pod.uid), "")
            if made:
                self._pods[pod.uid].config = pod
                self._uids[made] = pod.uid
                return made

    async def pull(self, pod_id: str, image: str, nameless: bool) -> None:
        """Pulls an image for this sandbox, as kubelet does: with the sandbox's metadata, unless it is `nameless`."""
        config = self._pods[self._uids[pod_id]].config
        assert config is not None
        request = cri.PullImageRequest(sandbox_config=None if nameless else _config(config))
        request.image.image = image
        request.auth.password = "not to be kept"
        await self._sure("PullImage", request)

    async def create_container(self, pod_id: str, wanted: SimContainer) -> str:
        """The new container's id. RuntimeRefusalError if it is refused."""
        pod = self._pods[self._uids[pod_id]]
        assert pod.config is not None
        request = cri.CreateContainerRequest(pod_sandbox_id=pod_id, sandbox_config=_config(pod.config))
        request.config.metadata.name = wanted.name
        while True:
            answer = await self._call("CreateContainer", request)
            if answer is not None:
                made = cri.CreateContainerResponse.FromString(answer).container_id
            else:
                there = (await self._listed())[1].containers
                made = next((c.id for c in there if (c.pod_sandbox_id, c.metadata.name) == (pod_id, wanted.name)), "")
            if made:
                return made

    async def start(self, container_id: str) -> None:
        """RuntimeRefusalError if the runtime refuses."""
        request = cri.StartContainerRequest(container_id=container_id)
        while await self._call("StartContainer", request) is None:
            there = (await self._listed())[1].containers
            if any(one.id == container_id and one.state == cri.CONTAINER_RUNNING for one in there):
                break
        self._running[container_id] = None

    async def stop(self, container_id: str) -> None:
        """The container's processes are gone, and its cgroup with them."""
        self._running.pop(container_id, None)
        await self._sure("StopContainer", cri.StopContainerRequest(container_id=container_id))

    async def remove_container(self, container_id: str) -> None:
        """Forgets it."""
        await self._sure("RemoveContainer", cri.RemoveContainerRequest(container_id=container_id))

    async def stop_pod(self, pod_id: str) -> None:
        """Stops its containers and its sandbox."""
        await self._sure("StopPodSandbox", cri.StopPodSandboxRequest(pod_sandbox_id=pod_id))

    async def remove_pod(self, pod_id: str) -> None:
        """Removes it."""
        await self._sure("RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id=pod_id))
        del self._pods[self._uids.pop(pod_id)]

    def cgroup(self, container_id: str) -> str:
        """The container's cgroup below the cgroup root."""
        return self._runtime.cgroup(container_id)

    def sandbox_cgroup(self, pod_id: str) -> str:
        """The sandbox's."""
        return self._runtime.sandbox_cgroup(pod_id)

    # ---- kubelet's habits --------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        """Lists what there is, and updates one running container, again and again."""
        while True:
            await asyncio.sleep(LIST_S)
            await self._listed()
            if self._running:
                request = cri.UpdateContainerResourcesRequest(container_id=self._random.choice(list(self._running)))
                request.linux.cpu_shares = self._random.randrange(2, 1024)
                with contextlib.suppress(RuntimeRefusalError):  # it has ended meanwhile
                    await self._call("UpdateContainerResources", request)

    async def _listed(self) -> tuple[cri.ListPodSandboxResponse, cri.ListContainersResponse]:
        sandboxes = await self._sure("ListPodSandbox", cri.ListPodSandboxRequest())
        containers = await self._sure("ListContainers", cri.ListContainersRequest())
        return cri.ListPodSandboxResponse.FromString(sandboxes), cri.ListContainersResponse.FromString(containers)

    async def _sure(self, method: str, request: Message) -> bytes:
        """The answer to a call that may be made again, at last."""
        while (answer := await self._call(method, request)) is None:
            pass
        return answer

    async def _call(self, method: str, request: Message) -> bytes | None:
        """The answer; None, after a while, where nobody could give one. RuntimeRefusalError is the runtime's no."""
        self._number += 1
        number = self._number
        data = request.SerializeToString()
        if not method.startswith("List"):  # a list that says anything may leave some out, and proves nothing
            data = marked(data, number)
        self.counts.calls += 1
        client = self._client = self._client or GrpcClient(str(self._listen))
        try:
            service = IMAGES if method == "PullImage" else SERVICE
            answer = await client.call(f"/{service}/{method}", data, CALL_S)
        except GrpcError as error:
            is_current = self._client is client
            if is_current or error.code is not Code.CANCELLED:  # else a call beside it has closed the client of both
                self._failed(method, error)
            if is_current:
                self._client = None
                await client.close()
            await asyncio.sleep(AGAIN_S)
            return None
        self._judge.checks += 1
        self._since_s = self._now()
        if not method.startswith("List") and self._got.get(number) != answer:
            self._judge.broken(LOST, f"{method}: the client was answered, and not what the runtime said")
        return answer

    def _failed(self, method: str, error: GrpcError) -> None:
        if "is reserved" in error.text:
            return  # the name, by a call of before, of which nobody has told how it ended
        if error.code is Code.UNKNOWN:
            raise RuntimeRefusalError(error.text) from error
        if error.code is Code.UNAVAILABLE:
            self.counts.unavailable += 1
        elif error.code is Code.DEADLINE_EXCEEDED:
            self._judge.broken(LOST, f"{method}: nobody has answered within {CALL_S:g} s")
        elif self._there_since_s < math.inf:
            self._judge.broken(OTHER, f"{method}: {error}")
        if self._now() - max(self._there_since_s, self._since_s) > COMES_BACK_S:
            self._judge.broken(AWAY, f"{method}: relay and runtime are there, and the client is told {error}")
            self._since_s = self._now()

    # ---- judgement ---------------------------------------------------------------------------------------------------

    def _executed(self, method: str, request: bytes, answer: bytes) -> None:
        """The runtime has done what it was asked."""
        self._judge.checks += 1
        marks = MARK.findall(request)
        if method.startswith("List"):
            return
        if len(marks) != 1:
            self._judge.broken(LOST, f"{method}: a field that CRI does not have yet came {len(marks)} times")
            return
        number = int(marks[0])
        if number in self._got:
            self._judge.broken(TWICE, f"{method}: the runtime got call {number} twice")
        self._got[number] = answer
        if len(self._got) > KEPT:
            del self._got[next(iter(self._got))]
        if method == "CreateContainer" and not self._decides:
            self._undecided[cri.CreateContainerResponse.FromString(answer).container_id] = None
        elif method == "StartContainer":
            self._born(cri.StartContainerRequest.FromString(request).container_id)
        elif method == "UpdateContainerResources":
            self._updated(cri.UpdateContainerResourcesRequest.FromString(request))

    def _born(self, container_id: str) -> None:
        cgroup, promised = self._runtime.cgroup(container_id), self._promised(container_id)
        if promised is None or container_id in self._undecided:
            return
        self.counts.born += 1
        limit = self._charges.limit(cgroup)
        if limit != promised:
            self._judge.broken(BORN, f"{cgroup}: its program begins with {limit}, promised {promised}")

    def _updated(self, request: cri.UpdateContainerResourcesRequest) -> None:
        """An update carries the whole limit again, while a daemon decides that can know the container."""
        self.counts.updates += 1
        promised = self._promised(request.container_id)
        if promised is None or not self._decides:
            return
        self.counts.judged_updates += 1
        said = request.linux.unified.get("misc.max", "")
        if said != f"{EPC} {promised}":
            self._judge.broken(BARE, f"{request.container_id}: an update came with {said!r}, promised {promised}")

    def _promised(self, container_id: str) -> int | None:
        one = next((one for one in self._runtime.containers() if one.id == container_id), None)
        uid = self._uids.get(one.pod_sandbox_id, "") if one is not None else ""
        return self._pods[uid].promised.get(one.name) if one is not None and uid in self._pods else None


def _config(pod: SimPod) -> cri.PodSandboxConfig:
    config = cri.PodSandboxConfig(annotations=dict(pod.annotations), labels=dict(pod.labels))
    config.metadata.CopyFrom(cri.PodSandboxMetadata(name=pod.name, uid=pod.uid, namespace=pod.namespace))
    return config
