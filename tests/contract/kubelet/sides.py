"""The ends of the device manager's contract: the double, and a real kubelet joined to a real API server."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from nodeward.aio.clock import SystemClock
from nodeward.aio.hostfs import OsFiles
from nodeward.sim.kubelet import AdmissionError, Asks, SimKubelet
from nodeward.wire import kubelet_checkpoint
from tests.peers.keynode import key_node

SIDES = ("double", "real")
RETRY_S = 0.2
_T = TypeVar("_T")


class Side(Protocol):
    """A node with a kubelet, as the cases see it; every call but the last three only asks."""

    home: Path

    def capacity(self, resource: str) -> tuple[int, int] | None:
        """The node's capacity and what is allocatable."""

    def phase(self, pod: str) -> str:
        """The pod's phase."""

    def failed(self, pod: str) -> str:
        """Why the pod has failed, empty while it has not."""

    def waits(self, pod: str) -> str:
        """What the pod's first container waits for."""

    def held(self, pod: str, resource: str) -> tuple[str, ...]:
        """The ids that the pod has by kubelet's checkpoint."""

    def create(self, pod: str, resource: str, counts: Sequence[int] = (1,), init: Sequence[int] = ()) -> None:
        """A pod whose containers ask for so many ids each."""

    def end_init(self, pod: str) -> None:
        """Ends the pod's init container."""

    def delete(self, pod: str) -> None:
        """Deletes the pod, and returns when it is gone."""

    def restart(self) -> None:
        """Kills kubelet, and starts it again."""


class DoubleSide:
    """The double on a loop of its own, and who runs its pods."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._kubelet = SimKubelet(str(home), OsFiles(), SystemClock())
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._pods: dict[str, asyncio.Task[None]] = {}
        self._said: dict[str, tuple[str, str]] = {}
        self._init_ended: dict[str, asyncio.Event] = {}
        self._do(self._kubelet.start())

    def capacity(self, resource: str) -> tuple[int, int] | None:
        async def asked() -> tuple[int, int] | None:
            return self._kubelet.capacity(resource)

        return self._do(asked())

    def phase(self, pod: str) -> str:
        return self._said.get(pod, ("", ""))[0]

    def failed(self, pod: str) -> str:
        phase, words = self._said.get(pod, ("", ""))
        return words if phase == "Failed" else ""

    def waits(self, pod: str) -> str:
        phase, words = self._said.get(pod, ("", ""))
        return words if phase == "Pending" else ""

    def held(self, pod: str, resource: str) -> tuple[str, ...]:
        found = kubelet_checkpoint.decode((self.home / kubelet_checkpoint.PLACE).read_bytes(), [resource])
        return found.pods.get(pod, {}).get(resource, ())

    def create(self, pod: str, resource: str, counts: Sequence[int] = (1,), init: Sequence[int] = ()) -> None:
        async def made() -> None:
            self._init_ended[pod] = asyncio.Event()
            self._said[pod] = ("Pending", "")
            self._pods[pod] = asyncio.create_task(self._live(pod, resource, counts, init))

        self._do(made())

    def end_init(self, pod: str) -> None:
        self._loop.call_soon_threadsafe(self._init_ended[pod].set)

    def delete(self, pod: str) -> None:
        async def ended() -> None:
            task = self._pods.pop(pod)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._kubelet.end(pod)
            self._said.pop(pod)

        self._do(ended())

    def restart(self) -> None:
        self._do(self._kubelet.kill())
        self._do(self._kubelet.start())

    def close(self) -> None:
        """Ends the double and its loop."""
        for pod in list(self._pods):
            self.delete(pod)
        self._do(self._kubelet.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _live(self, pod: str, resource: str, counts: Sequence[int], init: Sequence[int]) -> None:
        first = [Asks(f"init{number}", count, init=True) for number, count in enumerate(init)]
        apps = [Asks(f"app{number}", count) for number, count in enumerate(counts)]
        try:
            await self._kubelet.admit(pod, resource, [*first, *apps])
        except AdmissionError as error:
            self._said[pod] = ("Failed", f"UnexpectedAdmissionError: Pod was rejected: {error}")
            return
        for one in first:
            await self._start(pod, one)
            await self._init_ended[pod].wait()
        for one in apps:
            await self._start(pod, one)
        self._said[pod] = ("Running", "")

    async def _start(self, pod: str, one: Asks) -> None:
        while why := await self._kubelet.start_container(pod, one.name):
            self._said[pod] = ("Pending", why)
            await asyncio.sleep(RETRY_S)

    def _do(self, what: Coroutine[object, object, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(30)


@contextmanager
def opened(side: str) -> Iterator[Side]:
    """The end of this name."""
    if side == "real":
        with key_node() as node:
            yield node
        return
    with tempfile.TemporaryDirectory(prefix="kub") as folder:
        double = DoubleSide(Path(folder))
        try:
            yield double
        finally:
            double.close()
