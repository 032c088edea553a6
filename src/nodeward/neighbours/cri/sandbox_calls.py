"""Holds the calls that start a VM's pod: until its gate is open, and with its size.

Promises: pods without a gate go on at once; a call of which it cannot be told whether its pod has a gate is refused
retryably where gates are enforced, since it could be one. Must not decide whether a gate is open.

`sandbox`: RunPodSandbox is held, so that not even the VM starts. `container`: CreateContainer, which does not name the
runtime handler: the runtime is asked for the sandbox, once each. RestorePod makes both and is held in any case.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from nodeward.core.errors import WireError
from nodeward.core.gating import GateAt
from nodeward.core.vms import Sized
from nodeward.core.workload import NO_SHARE, ContainerId, HostShare, Sandbox, SandboxId
from nodeward.neighbours.cri import mapping
from nodeward.neighbours.cri.calls import Call, Pass, Refuse, Replace, UndecidedError, Verdict
from nodeward.neighbours.cri.methods import paths
from nodeward.neighbours.sockets.unary_client import CallFailedError

FAILED_PRECONDITION: Final = 9
"""gRPC's status of a refusal: the same call will fail again until something else has changed."""
CHECKPOINTS: Final = ("CheckpointContainer",)
RESIZES: Final = ("UpdateContainerResources", "UpdatePodSandboxResources")


@dataclass(frozen=True, slots=True)
class VmCall:
    """A call that asks for a change of a container, or of a sandbox as a whole. `service`: the path of the CRI service
    that was called, where the runtime may be asked too."""

    service: str
    container: ContainerId | None = None
    sandbox: SandboxId | None = None
    resize: HostShare | None = None
    """The resources that are to hold; None for a checkpoint."""


class VmCalls:
    """A Decides. Belongs to the loop's thread."""

    def __init__(self, methods: tuple[str, ...], why_not: Callable[[VmCall, float], Awaitable[str]]) -> None:
        """`methods`: which are held. `why_not` returns within so many seconds why the call is refused; empty where it
        is not."""
        self._why_not = why_not
        self._held = {path: (path.rpartition("/")[0], name) for path, name in paths(*methods).items()}

    def holds(self, path: str) -> bool:
        """The chosen methods of any version."""
        return path in self._held

    def decide(self, call: Call, message: bytes, within_ns: int) -> Verdict | Awaitable[Verdict]:
        """A refusal, or the request as it came."""
        asked = _read(*self._held[call.path], message)
        return Pass() if asked is None else self._later(asked, within_ns)

    async def _later(self, asked: VmCall, within_ns: int) -> Verdict:
        why = await self._why_not(asked, within_ns / 1e9)
        return Refuse(FAILED_PRECONDITION, why) if why else Pass()


def _read(service: str, name: str, message: bytes) -> VmCall | None:
    if name == "CheckpointContainer":
        return VmCall(service, mapping.checkpointing(message))
    if name == "UpdatePodSandboxResources":
        return VmCall(service, sandbox=mapping.resizing_sandbox(message), resize=NO_SHARE)
    container, asked = mapping.resizing(message)
    cpu = asked.cpu
    says = cpu.shares or cpu.quota or cpu.period or asked.memory
    return VmCall(service, container, resize=asked) if says else None


RUNS: Final = paths("RunPodSandbox")


class SandboxSizer:
    """A Decides. Belongs to the loop's thread."""

    def __init__(self, decide: Callable[[Sandbox, float], Awaitable[Sized | None] | None]) -> None:
        """`decide`: what is to be sent for a pod, within so many seconds; None for what came, at once for a pod that
        is no VM."""
        self._decide = decide

    def holds(self, path: str) -> bool:
        """RunPodSandbox of any version."""
        return path in RUNS

    def decide(self, call: Call, message: bytes, within_ns: int) -> Verdict | Awaitable[Verdict]:
        """The request, with other resources where they are to be sent."""
        found = self._decide(mapping.running(message), within_ns / 1e9)
        return Pass() if found is None else self._later(found, message)

    async def _later(self, found: Awaitable[Sized | None], message: bytes) -> Verdict:
        size = await found
        return Pass() if size is None else Replace(mapping.changed_run(message, size))


UNAVAILABLE: Final = 14
"""gRPC's status: kubelet tries again."""
MOST_KNOWN: Final = 4096
"""Sandboxes that are remembered; a node has some hundreds."""
STATUS_S: Final = 1.0
"""How long the runtime may take to tell of a sandbox."""
_READS: Final = {"RunPodSandbox": mapping.running, "RestorePod": mapping.restoring}


GATED: Final = {
    GateAt.SANDBOX: paths("RunPodSandbox", "RestorePod"),
    GateAt.CONTAINER: paths("CreateContainer", "RestorePod"),
}


class Homes:
    """Sandboxes by the calls that make them or containers in them. A create does not name the runtime handler: the
    runtime is asked for its sandbox, once each."""

    def __init__(self, status: Callable[[str, bytes, float], Awaitable[bytes]]) -> None:
        """`status` asks the runtime for a sandbox, by a path."""
        self._status = status
        self._known: dict[SandboxId, Sandbox] = {}

    def known(self, path: str, message: bytes) -> Sandbox | None:
        """The sandbox that the call is about, where that can be told at once. WireError for what is no such call."""
        read = _READS.get(path.rpartition("/")[2])
        return read(message) if read is not None else self._known.get(mapping.home_of(message))

    async def asked(self, path: str, message: bytes, within_s: float) -> Sandbox:
        """The same by the runtime's word. What it raises instead: see `unary_client.call`."""
        home_id = mapping.home_of(message)
        beside = f"{path.rpartition('/')[0]}/PodSandboxStatus"
        home = mapping.sandbox_as_is(await self._status(beside, mapping.sandbox_status_of(home_id), within_s))
        if not home.id.startswith(home_id):  # runtimes take the beginning of an id too
            raise WireError("cri", "the runtime tells of no such sandbox")
        self._known[home_id] = home
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return home


class Gatekeeper:
    """A Decides. Belongs to the loop's thread."""

    def __init__(
        self, at: Callable[[], GateAt], wait: Callable[[Sandbox, float], Awaitable[str] | None], homes: Homes
    ) -> None:
        """`wait` returns why the gate of a pod is shut, after so many seconds at most; None, at once, for a pod without
        one."""
        self._at, self._wait, self._homes = at, wait, homes

    def holds(self, path: str) -> bool:
        """The calls by which a pod, or its containers, come to be."""
        return path in GATED[self._at()]

    def decide(self, call: Call, message: bytes, within_ns: int) -> Verdict | Awaitable[Verdict]:
        """Pass, once the gate is open."""
        home, within_s = self._homes.known(call.path, message), within_ns / 1e9
        return self._of(home, within_s) if home is not None else self._asked(call.path, message, within_s)

    def _of(self, home: Sandbox, within_s: float) -> Verdict | Awaitable[Verdict]:
        waiting = self._wait(home, within_s)
        return Pass() if waiting is None else _verdict(waiting)

    async def _asked(self, path: str, message: bytes, within_s: float) -> Verdict:
        patience_s = min(STATUS_S, within_s / 2)
        try:
            home = await self._homes.asked(path, message, patience_s)
        except (OSError, TimeoutError, CallFailedError) as error:
            raise UndecidedError(
                f"whether the pod has a gate: the runtime was asked for its sandbox: {error}"
            ) from error
        found = self._of(home, within_s - patience_s)
        return await found if isinstance(found, Awaitable) else found


async def _verdict(waiting: Awaitable[str]) -> Verdict:
    why = await waiting
    return Refuse(UNAVAILABLE, why) if why else Pass()
