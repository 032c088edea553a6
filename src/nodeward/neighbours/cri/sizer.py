"""Holds RunPodSandbox of VMs until their size is decided, and appends it to the client's own request.

Promises: whatever cannot be read or decided in time goes on byte for byte as it came; pods of other runtime handlers
wait for nothing. Must not decide a size itself.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from nodeward.core.vms import Sized
from nodeward.core.workload import Sandbox
from nodeward.neighbours.cri import mapping
from nodeward.neighbours.cri.calls import Call, Pass, Replace, Verdict
from nodeward.neighbours.cri.methods import VERSIONS

_PATHS: Final = frozenset(f"/runtime.{version}.RuntimeService/RunPodSandbox" for version in VERSIONS)


class SandboxSizer:
    """A Decider. Belongs to the loop's thread."""

    def __init__(
        self,
        decide: Callable[[Sandbox, float], Awaitable[Sized | None] | None],
        undecided: Callable[[str], None],
    ) -> None:
        """`decide`: what is to be sent for a pod, within so many seconds; None for what came, at once for a pod that
        is no VM. `undecided` hears why a call went on without a decision."""
        self._decide, self._undecided = decide, undecided

    def holds(self, path: str) -> bool:
        """RunPodSandbox of any version."""
        return path in _PATHS

    def decide(self, call: Call, message: bytes, within_ns: int) -> Verdict | Awaitable[Verdict]:
        """The request, with other resources where they are to be sent."""
        found = self._decide(mapping.running(message), within_ns / 1e9)
        return Pass() if found is None else self._later(found, message)

    async def _later(self, found: Awaitable[Sized | None], message: bytes) -> Verdict:
        size = await found
        return Pass() if size is None else Replace(mapping.changed_run(message, size))

    def undecided(self, call: Call, message: bytes | None, why: str, ending: bool) -> Verdict:
        """It goes on: a pod with the size that kubelet sent is better than none."""
        self._undecided(why)
        return Pass()
