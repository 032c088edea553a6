"""The whole daemon in the test's own process: real sockets, the runtime double, and a kernel double whose
calls a test can hold up or refuse. There is no API server; what pods declare is on the disk, as last known.
"""

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from nodeward.core.workload import ContainerSpec, PodSpec, PodUid
from nodeward.features.limits.settings import LimitsSettings
from nodeward.features.pods.effects import last_known
from nodeward.features.settings import CgroupsSection, KubeSection, NriSection, Settings
from nodeward.host.clock import Clock, SystemClock
from nodeward.host.hostfs import HostFiles, ensure_folder
from nodeward.programs.node import run as node
from nodeward.settings.source import SettingsSource
from nodeward_sim.doubles.cpus import Plan
from nodeward_sim.doubles.kernel import SimKernel
from nodeward_sim.doubles.runtime import SimContainer, SimPod, SimRuntime
from tests.faults import FaultyFiles
from tests.patience import scaled

EPC = "sgx_epc"
ROOT = "/sys/fs/cgroup"
STATE = "/var/lib/nodeward"
PODS = ("a", "b", "c", "good", "bad")
"""Pods that are known; the container `app` of each declares 4096."""
WITHIN_S = scaled(60.0)
"""For what a quiet machine does within a second."""


@dataclass(slots=True)
class Trouble:
    """What is wrong with calls whose name is among `calls` and whose path contains `path`."""

    calls: tuple[str, ...]
    path: str
    number: int = 0
    """The errno they fail with; 0: they hang until `over`."""
    over: threading.Event = field(default_factory=threading.Event)
    met: int = 0
    first: Callable[[], None] | None = None
    """Where given, no call fails or hangs: this is done once, just before the first of them."""

    def end(self) -> None:
        self.over.set()


class _OneAtATime:
    """Calls of many threads, on the kernel double; on the disk, where there is one, for what is below STATE."""

    def __init__(self, kernel: SimKernel, disk: HostFiles | None, lock: threading.RLock) -> None:
        self._kernel, self._disk, self._lock = kernel, disk, lock

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            on_disk = self._disk is not None and str(args[0]).startswith(STATE)
            with self._lock:
                return getattr(self._disk if on_disk else self._kernel, name)(*args, **more)

        return call


class TroubledFiles(FaultyFiles):
    def __init__(self, kernel: SimKernel, disk: HostFiles | None = None) -> None:
        self.lock = threading.RLock()
        super().__init__(cast(HostFiles, _OneAtATime(kernel, disk, self.lock)))
        self._refused = threading.Event()
        kernel.on_refusal = self._refused.set
        self._paths: dict[int, str] = {}
        self.troubles: list[Trouble] = []

    def trouble(self, trouble: Trouble) -> Trouble:
        self.troubles.append(trouble)
        return trouble

    def open(self, path: str) -> int:
        handle = super().open(path)
        self._paths[handle] = path
        return handle

    def pread(self, handle: int, max_bytes: int) -> bytes:
        self._meet("pread", self._paths.get(handle, ""))
        return self._inner.pread(handle, max_bytes)

    def wait(self, handles: Sequence[int], timeout_s: float) -> list[int]:
        for patience in (timeout_s, 0.0):
            self._refused.clear()
            ready = self._inner.wait(handles, 0.0)
            if ready or not patience:
                return ready
            self._refused.wait(patience)
        return []

    def put(self, path: str, data: bytes) -> None:
        """By the test itself, which meets no trouble."""
        self._inner.replace(path, data)

    def _count(self, name: str, path: str) -> None:
        if name not in ("close", "mkdir", "rmdir", "unlink"):
            self._meet(name, path)

    def _meet(self, call: str, path: str) -> None:
        for trouble in self.troubles:
            if call in trouble.calls and trouble.path in path and not trouble.over.is_set():
                trouble.met += 1
                if trouble.first is not None:
                    trouble.end()
                    trouble.first()
                elif trouble.number:
                    raise OSError(trouble.number, os.strerror(trouble.number), path)
                else:
                    assert trouble.over.wait(4 * WITHIN_S)


@dataclass(slots=True)
class Rig:
    folder: Path
    kernel: SimKernel
    files: TroubledFiles
    runtime: SimRuntime
    settings: Settings
    runtime_hands_down: bool
    clock: Clock
    source: SettingsSource
    daemon: asyncio.Task[None] | None = None
    made: dict[str, tuple[str, str]] = field(default_factory=dict)

    def remember(self, *pods: PodSpec) -> None:
        self.files.put(
            last_known.FILE.path_in(STATE), last_known.FILE.encode(last_known.Remembered(pods, 1_700_000_000 * 10**9))
        )

    async def start(self) -> None:
        self.daemon = asyncio.create_task(node.run(self.settings, self.files, self.clock, self.source))
        await self.runtime.nri.wait_for_plugins(int(self.settings.nri.enabled), WITHIN_S)

    async def stop(self) -> None:
        if self.daemon is not None:
            self.daemon.cancel()
            await asyncio.gather(self.daemon, return_exceptions=True)
            await self.runtime.nri.wait_for_plugins(0, WITHIN_S)

    def change_limits(self, limits: LimitsSettings) -> None:
        self.settings = replace(self.settings, limits=limits)
        self.source.asked.set()

    async def pod(self, uid: str) -> str:
        """Starts one of PODS with its one container; its path below the cgroup root."""
        if not self.runtime_hands_down:
            self.kernel.make_cgroup(f"{ROOT}/kubepods/pod{uid}")
        sandbox = await self.runtime.run_pod(SimPod(uid, f"pod-{uid}"))
        container = await self.runtime.create_container(sandbox, SimContainer("app"))
        if not self.runtime_hands_down:
            self.kernel.make_cgroup(f"{ROOT}/kubepods/pod{uid}/{container}")
        await self.runtime.start(container)
        self.made[uid] = (sandbox, container)
        return f"/kubepods/pod{uid}"

    def limit(self, path: str) -> str:
        return self.kernel.read(f"{ROOT}{path}/misc.max", 999).decode().strip()

    async def ask(self, what: str = "/v1/status") -> dict[str, Any]:
        """What the operators' socket answers; empty while it does not."""
        try:
            async with asyncio.timeout(2.0):
                reader, writer = await asyncio.open_unix_connection(
                    self.folder / "run" / "nodeward.sock", limit=1 << 24
                )
                writer.write(f"GET {what} HTTP/1.0\r\nHost: nodeward\r\n\r\n".encode())
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.read(-1)
                writer.close()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return {}
        found: dict[str, Any] = json.loads(body) if b" 200 " in head.splitlines()[0] else {}
        return found

    async def health(self) -> dict[str, int]:
        found: dict[str, int] = (await self.ask()).get("health", {})
        return found

    async def row(self, cgroup: str) -> dict[str, Any]:
        return _row(await self.ask(), cgroup=cgroup)

    async def until(self, so: Callable[[dict[str, Any]], object], what: str = "/v1/status") -> dict[str, Any]:
        """What the operators' socket answers, once it is so."""
        async with asyncio.timeout(WITHIN_S):
            while not so(found := await self.ask(what)):
                await asyncio.sleep(0.02)
        return found

    async def until_ready(self) -> None:
        await self.until(lambda view: view.get("ready"))

    async def until_source(self, name: str, ready: bool, detail: str = "") -> dict[str, Any]:
        wanted = {"name": name, "ready": ready, **({"detail": detail} if detail else {})}
        return _row(await self.until(lambda view: _row(view, "components", **wanted)), "components", **wanted)

    async def until_health(self, name: str, value: int) -> None:
        await self.until(lambda view: view.get("health", {}).get(name) == value)

    async def until_state(self, cgroup: str, state: str) -> None:
        await self.until(lambda view: _row(view, cgroup=cgroup, state=state))

    async def until_error(self, cgroup: str, text: str) -> None:
        await self.until(lambda view: text in str(_row(view, cgroup=cgroup).get("last_error")))


def _row(view: Mapping[str, Any], of: str = "rows", **wanted: object) -> dict[str, Any]:
    """The first row of a table that has these values; empty where none has."""
    return next((row for row in view.get(of, ()) if row.items() >= wanted.items()), {})


def changed(**sections: Any) -> Callable[[Settings], Settings]:
    return lambda settings: replace(settings, **sections)


@contextlib.asynccontextmanager
async def rig(
    folder: Path,
    clock: Clock | None = None,
    *,
    runtime_hands_down: bool = True,
    change: Callable[[Settings], Settings] = lambda settings: settings,
    troubles: tuple[Trouble, ...] = (),
    capacity: Mapping[str, int] | None = None,
    disk: HostFiles | None = None,
    machine: Plan | None = None,
    pods: tuple[PodSpec, ...] = (),
    misc_v1: bool = False,
    sysfs: Mapping[str, str] | None = None,
    links: Mapping[str, str] | None = None,
) -> AsyncIterator[Rig]:
    """The node with its daemon, for as long as the block lasts; `change` may alter its settings.

    With `runtime_hands_down` false the runtime touches no cgroup, and `+misc` and all limits are left to the daemon.
    `disk` has what is below STATE, a folder that is there. `pods` are known in the place of PODS; `sysfs` are more
    files, and `links` symbolic links."""
    kernel = SimKernel(capacity or {EPC: 1 << 30}, machine=machine)
    ensure_folder(kernel, STATE)
    kernel.lay(sysfs or {})
    for path, to in (links or {}).items():
        kernel.link(path, to)
    if misc_v1:
        kernel.mount_misc_v1()
    files = TroubledFiles(kernel, disk)
    known = [
        PodSpec(PodUid(uid), "default", f"pod-{uid}", (ContainerSpec("app", declared={EPC: 4096}),)) for uid in PODS
    ]
    settings = change(
        Settings(
            run_dir=str(folder / "run"),
            nri=NriSection(socket=str(folder / "nri.sock")),
            kube=KubeSection(enabled=False),
            cgroups=CgroupsSection(period_s=0.1),
        )
    )
    files.troubles += troubles
    runtime = SimRuntime(folder / "nri.sock", files if runtime_hands_down else None)
    await runtime.serve()
    source = SettingsSource(lambda: found.settings, "the test")
    locked = cast(SimKernel, _OneAtATime(kernel, None, files.lock))
    found = Rig(folder, locked, files, runtime, settings, runtime_hands_down, clock or SystemClock(), source)
    found.remember(*(pods or known))
    try:
        await found.start()
        yield found
    finally:
        for trouble in files.troubles:
            trouble.end()
        await found.stop()
        await runtime.close()
