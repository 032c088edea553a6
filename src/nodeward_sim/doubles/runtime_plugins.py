"""The runtime double's side of NRI: what containerd's adaptation does with its plugins.

Exists so that sessions, the demo and the scenarios need no containerd. Promises: registers plugins one at a time, calls
them serially in the order of their index, drops one that is slow or gone and goes on without it, fails the request on a
status, and speaks as NRI 0.8, 0.11 or 0.12 does. Must not know about cgroups or containers' lives.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nodeward.contracts import nri_pb2
from nodeward.core.errors import NodewardError
from nodeward.neighbours.nri import mux, ttrpc_unix
from nodeward.neighbours.nri.ttrpc import Code, Request, Status
from nodeward.neighbours.nri.ttrpc_unix import Answer, CallFailedError, TtrpcError, TtrpcPeer

PLUGIN = "nri.pkg.api.v1alpha1.Plugin"
MOST_CALLS = 10_000
"""So many are kept of a plugin, however long it is connected."""
_log = logging.getLogger(__name__)


class RuntimeRefusalError(NodewardError):
    """The runtime fails the request, as kubelet would see it."""


@dataclass(frozen=True, slots=True)
class NriGeneration:
    """How one NRI speaks: what Configure says, which events exist, and whether each has a method of its own."""

    runtime_version: str
    said: str
    known_events: int
    dedicated: bool


NRI_0_8 = NriGeneration("v2.1.9", "", 0x7FF, False)
NRI_0_11 = NriGeneration("v2.2.1", "", 0x3FFF, False)
NRI_0_12 = NriGeneration("v2.4.2", "v0.12.3", 0x3FFF, True)

_METHODS = {
    nri_pb2.RUN_POD_SANDBOX: "RunPodSandbox",
    nri_pb2.STOP_POD_SANDBOX: "StopPodSandbox",
    nri_pb2.REMOVE_POD_SANDBOX: "RemovePodSandbox",
    nri_pb2.POST_CREATE_CONTAINER: "PostCreateContainer",
    nri_pb2.START_CONTAINER: "StartContainer",
    nri_pb2.POST_START_CONTAINER: "PostStartContainer",
    nri_pb2.POST_UPDATE_CONTAINER: "PostUpdateContainer",
    nri_pb2.REMOVE_CONTAINER: "RemoveContainer",
}


@dataclass(slots=True)
class Plugin:
    """One connected plugin. `calls` is what it was sent first, in order, for tests to look at."""

    peer: TtrpcPeer
    name: str = ""
    index: str = ""
    mask: int = 0
    state_change_only: bool = False
    gone: bool = False
    calls: list[str] = field(default_factory=list)

    @property
    def full_name(self) -> str:
        """How the runtime speaks of it."""
        return f"{self.index}-{self.name}"

    def wants(self, event: nri_pb2.Event) -> bool:
        """Whether it subscribed to `event`."""
        return bool(self.mask & (1 << (event - 1)))


@dataclass(frozen=True, slots=True)
class AdaptationSettings:
    """How the adaptation behaves. `configure_early` answers RegisterPlugin only after Configure was answered."""

    generation: NriGeneration = NRI_0_12
    runtime_name: str = "containerd"
    request_timeout_s: float = 2.0
    registration_timeout_s: float = 5.0
    chunk: int = 1000
    """Pods and containers of one Synchronize message; real runtimes go by 4 MiB."""
    configure_early: bool = False


Listing = Callable[[], tuple[Sequence[nri_pb2.PodSandbox], Sequence[nri_pb2.Container]]]
Wanted = Callable[[nri_pb2.ContainerUpdate], None]
"""Is told what a plugin wants of a container when it synchronizes."""


class Adaptation:
    """The plugins of one runtime, behind one socket."""

    def __init__(self, socket_path: Path, settings: AdaptationSettings, listing: Listing, wanted: Wanted) -> None:
        self.settings = settings
        self.plugins: list[Plugin] = []
        self.lock = asyncio.Lock()
        """Held during each request, as runtimes do; a registration waits for it before Synchronize."""
        self._path = socket_path
        self._listing, self._wanted = listing, wanted
        self._changed = asyncio.Condition()
        self._accepting = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.silent = False
        """Loses every notification: the mutant of a lost event."""
        self.unasked: Sequence[nri_pb2.Event] = ()
        """Events of which no plugin is told: the mutant of a runtime that does not wait for it."""

    async def serve(self) -> None:
        """Listens from now on."""
        self._path.unlink(missing_ok=True)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._accept, str(self._path))

    async def close(self) -> None:
        """Ends all connections and stops listening."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for plugin in self.plugins:
            plugin.peer.close("the runtime stops")
        self.plugins = []
        self._path.unlink(missing_ok=True)

    async def wait_for_plugins(self, count: int, within_s: float = 10.0) -> None:
        """Returns when exactly `count` plugins are registered and synchronized."""
        async with asyncio.timeout(within_s), self._changed:
            await self._changed.wait_for(lambda: len(self.plugins) == count)

    # ---- registration

    def _accept(self) -> TtrpcPeer:
        registered: asyncio.Future[nri_pb2.RegisterPluginRequest] = asyncio.get_running_loop().create_future()
        configured: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def reply_late() -> Answer:
            await configured
            return b""

        def handle(request: Request) -> Answer | asyncio.Future[Answer]:
            if request.method != "RegisterPlugin":
                return ttrpc_unix.unimplemented(request)
            if registered.done():
                return Status(Code.FAILED_PRECONDITION, "plugin is registered already")
            registered.set_result(nri_pb2.RegisterPluginRequest.FromString(request.payload))
            return asyncio.ensure_future(reply_late()) if self.settings.configure_early else b""

        peer = TtrpcPeer(handle, serves=mux.RUNTIME_SERVICE, calls=mux.PLUGIN_SERVICE)
        task = asyncio.get_running_loop().create_task(self._admit(peer, registered, configured))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return peer

    async def _admit(
        self,
        peer: TtrpcPeer,
        registered: asyncio.Future[nri_pb2.RegisterPluginRequest],
        configured: asyncio.Future[None],
    ) -> None:
        plugin = Plugin(peer)
        try:
            async with self._accepting, asyncio.timeout(self.settings.registration_timeout_s):
                registration = await registered
                plugin.name, plugin.index = registration.plugin_name, registration.plugin_idx
                await self._configure(plugin)
                configured.set_result(None)
                async with self.lock:
                    await self._synchronize(plugin)
                    self.plugins = sorted((*self.plugins, plugin), key=lambda each: each.index)
            await self._tell_change()
            await peer.wait_ended()
        except (NodewardError, TimeoutError) as error:
            _log.info("nri plugin refused why=%r", str(error) or "registration takes too long")
        finally:
            configured.cancel()
            plugin.gone = True
            self.forget_gone()
            peer.close("the plugin is not registered")
        await self._tell_change()

    async def _tell_change(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _configure(self, plugin: Plugin) -> None:
        settings = self.settings
        request = nri_pb2.ConfigureRequest(
            runtime_name=settings.runtime_name,
            runtime_version=settings.generation.runtime_version,
            registration_timeout=int(settings.registration_timeout_s * 1000),
            request_timeout=int(settings.request_timeout_s * 1000),
            NRI_version=settings.generation.said,
        )
        reply = await self._send(plugin, "Configure", request.SerializeToString())
        mask = nri_pb2.ConfigureResponse.FromString(reply).events
        unknown = mask & ~settings.generation.known_events
        if unknown:
            raise RuntimeRefusalError(f"invalid plugin events: {unknown:#x}")
        plugin.mask = mask or settings.generation.known_events

    async def _synchronize(self, plugin: Plugin) -> None:
        pods, containers = self._listing()
        chunk = self.settings.chunk
        starts = range(0, max(len(pods), len(containers), 1), chunk)
        said = nri_pb2.SynchronizeResponse()
        async with asyncio.timeout(self.settings.request_timeout_s):
            for start in starts:
                more = start + chunk < max(len(pods), len(containers))
                request = nri_pb2.SynchronizeRequest(
                    pods=pods[start : start + chunk], containers=containers[start : start + chunk], more=more
                )
                reply = await self._send(plugin, "Synchronize", request.SerializeToString())
                said = nri_pb2.SynchronizeResponse.FromString(reply)
                if said.more != more:
                    raise RuntimeRefusalError("plugin does not handle split sync requests")
        for update in said.update:
            self._wanted(update)

    # ---- calls

    async def _send(self, plugin: Plugin, method: str, payload: bytes) -> bytes:
        if len(plugin.calls) < MOST_CALLS:
            plugin.calls.append(method)
        timeout_s = self.settings.request_timeout_s
        return await plugin.peer.call(Request(PLUGIN, method, payload, int(timeout_s * 1e9)), timeout_s)

    async def ask(self, plugin: Plugin, method: str, payload: bytes) -> bytes | None:
        """The plugin's reply. None if it is dropped now: the request goes on without it. A status fails the request."""
        if self.silent and method == "StopContainer":
            return None
        try:
            return await self._send(plugin, method, payload)
        except CallFailedError as error:
            raise RuntimeRefusalError(error.status.message) from error
        except TtrpcError as error:
            _log.info("nri plugin dropped plugin=%s why=%r", plugin.full_name, str(error))
            plugin.gone = True
            plugin.peer.close("dropped by the runtime")
            return None

    async def notify(
        self, event: nri_pb2.Event, pod: nri_pb2.PodSandbox, container: nri_pb2.Container | None = None
    ) -> None:
        """Tells each plugin that subscribed. The caller holds the lock."""
        if self.silent:
            return
        change = nri_pb2.StateChangeEvent(event=event, pod=pod, container=container).SerializeToString()
        own = nri_pb2.PostCreateContainerRequest(pod=pod, container=container).SerializeToString()
        for plugin in self.subscribed(event):
            if self.settings.generation.dedicated and not plugin.state_change_only:
                try:
                    await self._send(plugin, _METHODS[event], own)
                    continue
                except CallFailedError as error:
                    if error.status.code != Code.UNIMPLEMENTED:
                        raise RuntimeRefusalError(error.status.message) from error
                    plugin.state_change_only = True
                except TtrpcError:
                    plugin.gone = True
                    plugin.peer.close("dropped by the runtime")
                    continue
            await self.ask(plugin, "StateChange", change)
        self.forget_gone()

    def subscribed(self, event: nri_pb2.Event) -> Iterable[Plugin]:
        """The plugins to be called for `event`, in order."""
        return [plugin for plugin in self.plugins if plugin.wants(event) and event not in self.unasked]

    def forget_gone(self) -> None:
        """Drops the plugins that failed during a request."""
        self.plugins = [plugin for plugin in self.plugins if not plugin.gone]
