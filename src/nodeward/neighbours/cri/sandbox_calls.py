"""Holds the call that starts a pod with a gate until somebody says that it is open.

Promises: pods without a gate go on at once; a call of which it cannot be told whether its pod has a gate is refused
retryably where gates are enforced, since it could be one. Must not decide whether a gate is open.

`sandbox`: RunPodSandbox is held, so that not even the VM starts. `container`: CreateContainer, which does not name the
runtime handler: the runtime is asked for the sandbox, once each. RestorePod makes both and is held in any case.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from nodeward.core.gating import GateAt
from nodeward.core.wire_errors import WireError
from nodeward.core.workload import Sandbox, SandboxId
from nodeward.neighbours.cri import mapping
from nodeward.neighbours.cri.calls import Call, Pass, Refuse, Verdict
from nodeward.neighbours.cri.methods import VERSIONS

UNAVAILABLE: Final = 14
"""gRPC's status: kubelet tries again."""
MOST_KNOWN: Final = 4096
"""Sandboxes that are remembered; a node has some hundreds."""
STATUS_S: Final = 1.0
"""How long the runtime may take to tell of a sandbox."""
_READS: Final = {"RunPodSandbox": mapping.running, "RestorePod": mapping.restoring}


def _paths(name: str) -> dict[str, str]:
    return {f"/runtime.{version}.RuntimeService/{name}": name for version in VERSIONS}


_HELD: Final = {
    GateAt.SANDBOX: _paths("RunPodSandbox") | _paths("RestorePod"),
    GateAt.CONTAINER: _paths("CreateContainer") | _paths("RestorePod"),
}


class Gatekeeper:
    """A Decider. Belongs to the loop's thread."""

    def __init__(
        self,
        at: Callable[[], GateAt],
        wait: Callable[[Sandbox, float], Awaitable[str] | None],
        status: Callable[[str, bytes, float], Awaitable[bytes]],
        unsure: Callable[[Sandbox | None, str], str],
    ) -> None:
        """`wait` returns why the gate of a pod is shut, after so many seconds at most; None, at once, for a pod without
        one. `status` asks the runtime for a sandbox, by a path. `unsure` returns why a call of which there is no
        verdict is refused, empty where it passes; the sandbox is None where it cannot be told."""
        self._at, self._wait, self._status, self._unsure = at, wait, status, unsure
        self._homes: dict[SandboxId, Sandbox] = {}

    def holds(self, path: str) -> bool:
        """The calls by which a pod, or its containers, come to be."""
        return path in _HELD[self._at()]

    def decide(self, call: Call, message: bytes, within_ns: int) -> Verdict | Awaitable[Verdict]:
        """Pass, once the gate is open."""
        read, within_s = _READS.get(call.path.rpartition("/")[2]), within_ns / 1e9
        if read is not None:
            return self._of(read(message), within_s)
        home_id = mapping.home_of(message)
        home = self._homes.get(home_id)
        return self._of(home, within_s) if home is not None else self._asked(call.path, home_id, within_s)

    def _of(self, home: Sandbox, within_s: float) -> Verdict | Awaitable[Verdict]:
        waiting = self._wait(home, within_s)
        return Pass() if waiting is None else _verdict(waiting)

    async def _asked(self, path: str, home_id: SandboxId, within_s: float) -> Verdict:
        patience_s = min(STATUS_S, within_s / 2)
        answer = await self._status(_beside(path), mapping.sandbox_status_of(home_id), patience_s)
        home = mapping.sandbox_as_is(answer)
        if not home.id.startswith(home_id):  # runtimes take the beginning of an id too
            raise WireError("cri", "the runtime tells of no such sandbox")
        self._homes[home_id] = home
        if len(self._homes) > MOST_KNOWN:
            del self._homes[next(iter(self._homes))]
        found = self._of(home, within_s - patience_s)
        return await found if isinstance(found, Awaitable) else found

    def undecided(self, call: Call, message: bytes | None, why: str, ending: bool) -> Verdict:
        """Refused, unless it is known that its pod has no gate."""
        text = self._unsure(self._home(call, message), why)
        return Refuse(UNAVAILABLE, text) if text else Pass()

    def _home(self, call: Call, message: bytes | None) -> Sandbox | None:
        if message is None:
            return None
        read = _READS.get(call.path.rpartition("/")[2])
        try:
            return read(message) if read is not None else self._homes.get(mapping.home_of(message))
        except WireError:
            return None


async def _verdict(waiting: Awaitable[str]) -> Verdict:
    why = await waiting
    return Refuse(UNAVAILABLE, why) if why else Pass()


def _beside(path: str) -> str:
    """PodSandboxStatus, of the same version."""
    return f"{path.rpartition('/')[0]}/PodSandboxStatus"
