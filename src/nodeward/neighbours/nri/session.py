"""The NRI plugin: registers with a container runtime, reports events, and answers with decisions.

Promises: serves before it registers (Configure may come before the registration's reply); subscribes to nothing the
runtime does not know; takes each notification by its own method and by StateChange; answers each question within half
of the runtime's patience, at most a second, and with "no change" if nobody said anything by then; never fails a pod
sandbox; comes back after a runtime's restart, later each time. Must not decide, and holds no state of pods.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from re import compile as _compile

from nodeward.contracts import nri_pb2
from nodeward.core.decision import Adjustment, Final
from nodeward.core.errors import NodewardError, WireError
from nodeward.core.events import Creating, Listed, Question, RuntimeConnected, RuntimeLost, Updating
from nodeward.core.hints import Hints
from nodeward.core.ports import Ask, AtStart, ReadHints, ReadSets, Sequence, Tell
from nodeward.core.refusal import Refusal
from nodeward.core.workload import Container, ContainerId, Keys, Phase, Sandbox
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock
from nodeward.neighbours.formats.protobuf import read
from nodeward.neighbours.nri import mapping, ttrpc_unix
from nodeward.neighbours.nri.ttrpc import Code, Request, Status
from nodeward.neighbours.nri.ttrpc_unix import Answer, TtrpcError, TtrpcPeer


class NriError(NodewardError):
    """Something between Nodeward and a container runtime's NRI."""


class NriSettingsError(NriError):
    """A name, index or socket that no runtime would take."""


class RuntimeGoneError(NriError):
    """The runtime that started this plugin has closed the connection it gave; only it can start the plugin again."""


PLUGIN = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME = "nri.pkg.api.v1alpha1.Runtime"
OUR_NRI = "v0.12.0"
"""What RegisterPlugin says we were written for."""

REGISTRATION_S = 5.0
"""The runtime's own patience for the whole handshake, unless configured otherwise."""
REQUEST_MS = 2000
"""The runtime's patience for one call where Configure does not say (before NRI 0.7)."""
MOST_ANSWER_S = 1.0
HINTS_SHARE = 0.5
"""Of that, how long it is read where the things lie that a new container uses; the decision has as long as ever."""
LABELS_S = 1.0
"""How often it is looked whether the settings name other labels."""
MOST_LISTED = 20_000
"""Pods and containers of one Synchronize together; kubelet's own bounds are far below."""
BACKOFF_FIRST_S = 0.5
BACKOFF_MOST_S = 30.0

_NAME = _compile(r"[A-Za-z0-9._+-]+")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NriSettings:
    """How to be a plugin. `fd` is a connection the runtime gave; without it `socket_path` is connected to."""

    socket_path: str = "/var/run/nri/nri.sock"
    plugin_name: str = "nodeward"
    plugin_index: str = "90"
    """Two digits. Plugins are called in the order of this text."""
    fd: int | None = None


Lines = Callable[[], Awaitable[bool]]
"""Whether the OCI runtimes write `misc.max` line by line (runc 1.2, crun 1.18), which NRI cannot tell."""


async def one_line() -> bool:
    """Lines, where nobody says so."""
    return False


def from_environment(settings: NriSettings, environment: Mapping[str, str]) -> NriSettings:
    """`settings`, with the variables of a runtime that starts its plugins itself."""
    given = environment.get("NRI_PLUGIN_SOCKET")
    if given is None:
        return settings
    if not given.isascii() or not given.isdigit():
        raise NriSettingsError(f"NRI_PLUGIN_SOCKET is {given!r}, not the number of a file descriptor; unset it")
    return NriSettings(
        settings.socket_path,
        environment.get("NRI_PLUGIN_NAME", settings.plugin_name),
        environment.get("NRI_PLUGIN_IDX", settings.plugin_index),
        int(given),
    )


def check(settings: NriSettings) -> None:
    """Refuses what a runtime would refuse."""
    if _NAME.fullmatch(settings.plugin_name) is None:
        raise NriSettingsError(f"plugin name {settings.plugin_name!r} may only have letters, digits and any of . _ + -")
    index = settings.plugin_index
    if len(index) != 2 or not (index.isascii() and index.isdigit()):
        raise NriSettingsError(f"plugin index {index!r} must be exactly two digits, such as 10")


async def run(
    settings: NriSettings,
    ask: Ask,
    tell: Tell,
    sequence: Sequence,
    clock: Clock,
    random: Callable[[], float],
    at_start: AtStart | None = None,
    lines: Lines = one_line,
    read_sets: ReadSets | None = None,
    labels: Callable[[], Keys] | None = None,
    read_hints: ReadHints | None = None,
) -> None:
    """Is a plugin until cancelled. Ends by itself only where it cannot come back: RuntimeGoneError after a given fd.

    With `at_start` a container's program waits until what its create could not carry is written. `read_sets` tells
    the CPUs of containers that are there already and of which the runtime's own record names none. `lines` is asked
    before each connection, since a restarted runtime may have come with other OCI runtimes. `labels`: the keys of
    labels that are copied (`nodeward.core.workload`). `read_hints` tells before each question about a create where the
    things lie that the container uses."""
    check(settings)
    backoff = Backoff(BACKOFF_FIRST_S, BACKOFF_MOST_S, random)
    while True:
        hears = at_start, read_sets, labels, read_hints
        session = NriConnection(settings, ask, tell, sequence, *hears, multi_line=await lines())
        try:
            why = await session.live(clock)
        except (OSError, NriError, TtrpcError) as error:
            why = str(error)
        if session.configured:
            tell(RuntimeLost(why))
        if settings.fd is not None:
            raise RuntimeGoneError(f"the runtime has closed the connection it gave (fd {settings.fd}): {why}")
        if session.synchronized:
            backoff.reset()
        wait_s = backoff.next_s()
        _log.info("nri connection ended socket=%s why=%r retry_s=%.1f", settings.socket_path, why, wait_s)
        await clock.sleep(wait_s)


class NriConnection:
    """One connection to one runtime."""

    def __init__(
        self,
        settings: NriSettings,
        ask: Ask,
        tell: Tell,
        sequence: Sequence,
        at_start: AtStart | None = None,
        read_sets: ReadSets | None = None,
        labels: Callable[[], Keys] | None = None,
        read_hints: ReadHints | None = None,
        *,
        multi_line: bool = False,
    ) -> None:
        self._settings, self._read_hints = settings, read_hints
        self._multi_line = multi_line
        self._at_start, self._read_sets = at_start, read_sets
        self._nri = mapping.OLDEST
        self._labels: Callable[[], Keys] = labels or tuple[str, ...]
        self._labels_listed: Keys = ()
        self._may_name_others = labels is not None and settings.fd is None
        self._ask = ask
        self._tell = tell
        self._sequence = sequence
        self._as_of = 0
        self._answer_s = MOST_ANSWER_S
        self._sandboxes: list[Sandbox] = []
        self._containers: list[Container] = []
        self._methods: Mapping[str, Callable[[bytes], Answer | Awaitable[Answer]]] = {
            "Configure": self._configure,
            "Synchronize": self._synchronize,
            "CreateContainer": self._create,
            "UpdateContainer": self._update,
            "StateChange": self._state_change,
            "ValidateContainerAdjustment": _agree,
            "Shutdown": self._shutdown,
        }
        self.configured = False
        self.synchronized = False

    async def live(self, clock: Clock) -> str:
        """Connects, registers, serves; returns why it ended."""
        settings = self._settings
        if settings.fd is not None:
            peer = await ttrpc_unix.adopt(settings.fd, self._handle)
        else:
            peer = await ttrpc_unix.connect(settings.socket_path, self._handle)
        try:
            await self._register(peer)
            return await self._until_ended(peer, clock)
        finally:
            peer.close("the session ends")

    async def _until_ended(self, peer: TtrpcPeer, clock: Clock) -> str:
        """Settings that name other labels need another connection: the runtime lists the labels of all pods when a
        plugin registers, and only then."""
        ended = asyncio.ensure_future(peer.wait_ended())
        try:
            while self._may_name_others:
                asleep = asyncio.ensure_future(clock.sleep(LABELS_S))
                try:
                    await asyncio.wait((ended, asleep), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    asleep.cancel()
                if ended.done():
                    break
                if not self.synchronized:
                    continue
                if set(self._labels()) - set(self._labels_listed):
                    return "the settings name other labels now: registers anew to be told those of all pods"
            return await ended
        finally:
            ended.cancel()

    async def _register(self, peer: TtrpcPeer) -> None:
        registration = nri_pb2.RegisterPluginRequest(
            plugin_name=self._settings.plugin_name, plugin_idx=self._settings.plugin_index, NRI_version=OUR_NRI
        )
        self._as_of = self._sequence()
        request = Request(RUNTIME, "RegisterPlugin", registration.SerializeToString(), int(REGISTRATION_S * 1e9))
        await peer.call(request, REGISTRATION_S)

    # ---- what the runtime calls

    def _handle(self, request: Request) -> Answer | Awaitable[Answer]:
        if request.service != PLUGIN:
            return ttrpc_unix.unimplemented(request)
        method = self._methods.get(request.method)
        if method is not None:
            return method(request.payload)
        kind = mapping.NOTIFICATIONS.get(request.method)
        if kind is None:
            return ttrpc_unix.unimplemented(request)
        if kind in mapping.UNHEARD:
            return b""
        # The requests of all other notifications have pod = 1 and, if any, container = 2.
        notice = read("nri", nri_pb2.PostCreateContainerRequest, request.payload)
        return self._happened(kind, notice.pod, notice.container)

    def _configure(self, payload: bytes) -> Answer:
        request = read("nri", nri_pb2.ConfigureRequest, payload)
        nri = self._nri = mapping.generation(request)
        patience_ms = request.request_timeout if request.request_timeout > 0 else REQUEST_MS
        self._answer_s = min(patience_ms / 2000, MOST_ANSWER_S)
        self.configured = True
        self._tell(
            RuntimeConnected(request.runtime_name, request.runtime_version, request.NRI_version, self._multi_line)
        )
        more = () if self._at_start is None else (mapping.BEFORE_THE_PROGRAM,)
        return nri_pb2.ConfigureResponse(events=mapping.event_mask((*mapping.WANTED, *more), nri)).SerializeToString()

    def _synchronize(self, payload: bytes) -> Answer | Awaitable[Answer]:
        request = read("nri", nri_pb2.SynchronizeRequest, payload)
        labels = self._labels_listed = self._labels()
        listed = len(self._sandboxes) + len(self._containers) + len(request.pods) + len(request.containers)
        if listed > MOST_LISTED:
            raise WireError("nri", f"Synchronize lists more than {MOST_LISTED} pods and containers")
        self._sandboxes += (mapping.sandbox(pod, labels) for pod in request.pods)
        self._containers += (mapping.container(one, labels=labels) for one in request.containers)
        if not request.more:
            sandboxes, self._sandboxes = tuple(self._sandboxes), []
            containers, self._containers = tuple(self._containers), []
            if self._read_sets is not None:
                return self._listed_with_sets(self._read_sets, sandboxes, containers)
            self._listed(sandboxes, containers)
        return nri_pb2.SynchronizeResponse(more=request.more).SerializeToString()

    def _listed(self, sandboxes: tuple[Sandbox, ...], containers: tuple[Container, ...]) -> None:
        """Containers that have exited are not listed, and runtimes are reported to lose some that are created
        meanwhile: the list proves no absence of a cgroup, only of a running container older than `as_of`."""
        self.synchronized = True
        self._tell(Listed(sandboxes, containers, self._as_of))

    async def _listed_with_sets(
        self, read_sets: ReadSets, sandboxes: tuple[Sandbox, ...], containers: tuple[Container, ...]
    ) -> Answer:
        """The CPUs of each container by the runtime's record; by the kernel where that names none."""
        try:
            async with asyncio.timeout(self._answer_s):
                sets = await read_sets(tuple(one.cgroups_path for one in containers if _is_untold(one)))
            containers = tuple(
                one.with_cpus(sets.get(one.cgroups_path, 0)) if _is_untold(one) else one for one in containers
            )
        except TimeoutError:
            _log.warning("nri cpusets not read in time within_s=%.1f: by the runtime's record", self._answer_s)
        self._listed(sandboxes, containers)
        return nri_pb2.SynchronizeResponse().SerializeToString()

    def _create(self, payload: bytes) -> Answer | Awaitable[Answer]:
        request, labels = read("nri", nri_pb2.CreateContainerRequest, payload), self._labels()
        question = Creating(
            mapping.sandbox(request.pod, labels), mapping.container(request.container, Phase.CREATING, labels=labels)
        )
        hints = None
        if self._read_hints is not None:
            hints = self._read_hints(question, partial(mapping.used, request.container), self._answer_s * HINTS_SHARE)
        if hints is not None:
            return self._create_near(question, hints)
        return self._decide(question, self._created)

    async def _create_near(self, question: Creating, hints: Awaitable[Hints]) -> Answer:
        answer = self._decide(replace(question, hints=await hints), self._created)
        return await answer if isinstance(answer, Awaitable) else answer

    def _created(self, adjustment: Adjustment) -> bytes:
        return mapping.create_answer(adjustment, self._nri)

    def _update(self, payload: bytes) -> Answer | Awaitable[Answer]:
        request, labels = read("nri", nri_pb2.UpdateContainerRequest, payload), self._labels()
        changed = mapping.container(request.container, asked=request.linux_resources, labels=labels)
        question = Updating(mapping.sandbox(request.pod, labels), changed)
        return self._decide(question, lambda adjustment: mapping.update_answer(changed.id, adjustment))

    def _state_change(self, payload: bytes) -> Answer | Awaitable[Answer]:
        request = read("nri", nri_pb2.StateChangeEvent, payload)
        return self._happened(request.event, request.pod, request.container)

    def _shutdown(self, payload: bytes) -> Answer:
        _log.info("nri runtime asks the plugin to shut down socket=%s", self._settings.socket_path)
        return b""

    # ---- inside

    def _happened(
        self, kind: nri_pb2.Event, pod: nri_pb2.PodSandbox, container: nri_pb2.Container
    ) -> Answer | Awaitable[Answer]:
        waits = self._at_start if kind == mapping.BEFORE_THE_PROGRAM else None
        if kind == mapping.BEFORE_THE_PROGRAM and (waits is None or not waits.needed()):
            return b""  # what PostStartContainer tells again soon is told once
        event = mapping.happening(kind, pod, container, self._labels())
        if event is None:
            return b""
        try:
            self._tell(event)
        except Exception:  # the port promises that it does not; a pod must not fail if it breaks the promise
            _log.exception("nri event lost event=%s", type(event).__name__)
            return b""
        return b"" if waits is None else self._when_written(waits, ContainerId(container.id))

    async def _when_written(self, at_start: AtStart, container_id: ContainerId) -> Answer:
        """A refusal only where the port asks for one: the container fails to start, and kubelet makes another."""
        why = ""
        try:
            async with asyncio.timeout(self._answer_s * 1.5):  # the port keeps the time; this is for one that does not
                why = await at_start.written(container_id, self._answer_s)
        except TimeoutError:
            _log.warning("nri start answered before all is written container=%s", container_id)
        except Exception:
            _log.exception("nri start answered without waiting container=%s", container_id)
        return Status(Code.FAILED_PRECONDITION, why) if why else b""

    def _decide(self, question: Question, encode: Callable[[Adjustment], bytes]) -> Answer | Awaitable[Answer]:
        try:
            final = self._ask(question, int(self._answer_s * 1e9))
        except Exception:
            return _no_change(question, encode)
        if isinstance(final, Final):
            return _answer(final, encode)
        asked = asyncio.ensure_future(final)
        later = asyncio.ensure_future(self._decide_later(question, asked, encode))
        later.add_done_callback(lambda _: asked.cancel())  # also where nothing of it has run
        return later

    async def _decide_later(
        self, question: Question, final: asyncio.Future[Final], encode: Callable[[Adjustment], bytes]
    ) -> Answer:
        """The port keeps the deadline; this one is for a port that does not. What is decided is answered also after it:
        the engine counts it as given."""
        try:
            try:
                async with asyncio.timeout(self._answer_s * 1.5):
                    await final
            except TimeoutError:
                if final.cancelled():
                    raise
            return _answer(final.result(), encode)
        except TimeoutError:
            _log.warning("nri answer too late within_s=%.2f answered='no change'", self._answer_s)
            return encode(Adjustment())
        except Exception:
            return _no_change(question, encode)


def _no_change(question: Question, encode: Callable[[Adjustment], bytes]) -> Answer:
    """After a fault in the core itself. Features' faults have their own `on_error` and never come here."""
    _log.exception("nri question failed question=%s answered='no change'", type(question).__name__)
    return encode(Adjustment())


def _answer(final: Final, encode: Callable[[Adjustment], bytes]) -> Answer:
    if isinstance(final.value, Refusal):
        return Status(Code.FAILED_PRECONDITION, final.value.message)
    return encode(final.value)


def _agree(payload: bytes) -> Answer:
    return b""


def _is_untold(one: Container) -> bool:
    """Whether only the kernel can tell on which CPUs the container is."""
    return bool(one.cgroups_path) and not one.cpu.cpus
