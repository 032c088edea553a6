"""Holds the calls that a VM may be unable to do: the checkpoint of a container, and a change of its CPU or memory.

Promises: an update that changes nothing but the cpuset (kubelet's CPU manager, and Nodeward's own) waits for nothing;
whatever cannot be read or decided in time goes on as it came. Must not decide itself, nor change a request.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from nodeward.core.workload import NO_SHARE, ContainerId, HostShare, SandboxId
from nodeward.neighbours.cri import mapping
from nodeward.neighbours.cri.calls import Call, Pass, Refuse, Verdict
from nodeward.neighbours.cri.methods import VERSIONS

FAILED_PRECONDITION: Final = 9
"""gRPC's status of a refusal: the same call will fail again until something else has changed."""
CHECKPOINTS: Final = ("CheckpointContainer",)
RESIZES: Final = ("UpdateContainerResources", "UpdatePodSandboxResources")


@dataclass(frozen=True, slots=True)
class VmCall:
    """What is asked of a container, or of a sandbox as a whole. `service`: the path of the CRI service that was called,
    where the runtime may be asked too."""

    service: str
    container: ContainerId | None = None
    sandbox: SandboxId | None = None
    resize: HostShare | None = None
    """The resources that are to hold; None for a checkpoint."""


class VmCalls:
    """A Decider. Belongs to the loop's thread."""

    def __init__(self, methods: tuple[str, ...], why_not: Callable[[VmCall, float], Awaitable[str]]) -> None:
        """`methods`: which are held. `why_not` returns within so many seconds why the call is refused; empty where it
        is not."""
        self._why_not = why_not
        services = [f"/runtime.{version}.RuntimeService" for version in VERSIONS]
        self._held = {f"{service}/{name}": (service, name) for service in services for name in methods}

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

    def undecided(self, call: Call, message: bytes | None, why: str, ending: bool) -> Verdict:
        """It goes on: the runtime answers."""
        return Pass()


def _read(service: str, name: str, message: bytes) -> VmCall | None:
    if name == "CheckpointContainer":
        return VmCall(service, mapping.checkpointing(message))
    if name == "UpdatePodSandboxResources":
        return VmCall(service, sandbox=mapping.resizing_sandbox(message), resize=NO_SHARE)
    container, asked = mapping.resizing(message)
    cpu = asked.cpu
    says = cpu.shares or cpu.quota or cpu.period or asked.memory
    return VmCall(service, container, resize=asked) if says else None
