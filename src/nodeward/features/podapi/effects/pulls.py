"""Image pulls of this node's pods: whose each is, where it is pulled, and what guests hold by their runtimes' reports.

The relay sees pulls and sandboxes, and is asked only when somebody asks here. Promises: a relay that is away, late,
older or talks nonsense is the reason in the answer, never a guess; it is asked once at a time; a digest of the host is
never shown as a guest's; reports are bounded, and end with their sandbox. Must not store credentials.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Generic, TypeVar

from nodeward.core.errors import RequestError, WireError
from nodeward.core.pulls import PullRow, PullsView, SandboxKey
from nodeward.core.vms import Profile
from nodeward.core.workload import PodUid, SandboxId
from nodeward.features.podapi.rows import (
    GuestImage,
    GuestState,
    HostPull,
    PodImage,
    PodPullsSeen,
    PullMode,
    PullState,
    ReportPullRequest,
    ReportPullResponse,
    ResolvePullRequest,
    ResolvePullResponse,
    Section,
)
from nodeward.features.podapi.view import RELAY
from nodeward.features.pods.state import Pods
from nodeward.features.settings import Settings
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.cri import relay_line
from nodeward.neighbours.cri import relay_socket as line
from nodeward.neighbours.kata import config_file, configs, handlers

WITHIN_S: Final = 1.0
"""How long the relay may take, and the files of the runtimes."""
FRESH_NS: Final = 10**9
"""So long a telling of sandboxes is taken for true."""
LOOK_S: Final = 10.0
"""How long what the runtimes' files say is taken for true."""
MOST_SANDBOXES: Final = 500
MOST_IMAGES: Final = 64
"""Images of one sandbox that are kept, the newest."""
MOST_NAME: Final = 512
MOST_ERROR: Final = 200
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_PRIVATE: Final = re.compile(r"(?<=//)[^/\s@]*@|\?\S*")
"""User and query of an address."""
Modes = Mapping[str, tuple[PullMode, str]]
T = TypeVar("T")


class PullRequestError(RequestError):
    """A request about pulls that makes no sense: which field, and its rule."""


class _Shared(Generic[T]):
    """Asks once at a time. Whoever asks while a question is under way waits for the next one, and shares it."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask, self._turn = ask, asyncio.Lock()
        self._next: asyncio.Task[T] | None = None

    async def now(self) -> T:
        """An answer to a question that began after this call."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._run())
        return await asyncio.shield(self._next)

    async def _run(self) -> T:
        async with self._turn:
            self._next = None
            return await self._ask()


class _Told:
    """What the relay has told, by namespace and name of the pod."""

    def __init__(self, view: PullsView) -> None:
        self.view = view
        self.pulls: dict[tuple[str, str], list[PullRow]] = {}
        self.sandboxes: dict[tuple[str, str], list[SandboxKey]] = {}
        for row in view.pulls:
            self.pulls.setdefault((row.namespace, row.name), []).append(row)
        for key in view.sandboxes:
            self.sandboxes.setdefault((key.namespace, key.name), []).append(key)


class PodPulls:
    """ResolvePull, ReportPull, and the sections `pulls` and `images`. Belongs to the loop's thread."""

    def __init__(self, settings: Settings, files: HostFiles, clock: Clock, pods: Callable[[], Pods]) -> None:
        self._profiles, self._files, self._clock, self._pods = settings.sandboxes.profiles, files, clock, pods
        self._path = f"{settings.run_dir}/{relay_line.SOCKET}"
        self._relay, self._files_say = _Shared(self._ask), _Shared(self._look)
        self._telling: asyncio.Future[tuple[_Told | None, str]] | None = None
        self._telling_ns = 0
        self.absent = False
        """No relay answers: there is none, or it is not running."""
        self._modes: Modes = {}
        self._no_modes = "the runtimes' configuration was not read yet"
        self._read_ns: int | None = None
        self._reports: dict[str, dict[str, GuestImage]] = {}
        """By sandbox and image, oldest first."""

    async def resolve(self, asked: ResolvePullRequest) -> ResolvePullResponse:
        """Finds the sandbox that a pull is for. PullRequestError where no pod is named."""
        _check(asked.namespace and asked.name and asked.uid, "namespace, name, uid", "none may be empty")
        _check(0 <= asked.attempt < 2**32, "attempt", "a whole number from 0 to 2^32-1")
        told, why = await self._relay.now()
        if told is None:
            mode, said = await self._mode_of(self._sandbox_of(asked.uid))
            return ResolvePullResponse(PullState.UNKNOWN, why, mode=mode, mode_why=said)
        of_name = told.sandboxes.get((asked.namespace, asked.name), ())
        of_pod = [one for one in of_name if one.uid == asked.uid]
        later = max((one.attempt for one in of_pod), default=-1)
        found = next((one for one in of_pod if one.attempt == asked.attempt), None)
        if found is None and later < asked.attempt:
            wait = "" if told.view.listed else "; the relay began a moment ago and has seen no list of sandboxes yet"
            return ResolvePullResponse(
                PullState.PENDING, f"no sandbox of this pod and attempt is known{wait}", mode_why="no sandbox yet"
            )
        handler = found.handler if found is not None else of_pod[-1].handler
        mode, said = await self._mode(handler, found.id if found is not None else "", asked.image)
        state, why = PullState.RESOLVED, ""
        if later > asked.attempt:
            state, why = PullState.STALE, f"attempt {later} of this pod exists"
        return ResolvePullResponse(state, why, found.id if found is not None else "", handler, mode, said)

    async def report(self, told: ReportPullRequest) -> ReportPullResponse:
        """Takes a runtime's report of an image in its VM. PullRequestError where a field is not as it must be."""
        _check(0 < len(told.sandbox) <= MOST_NAME, "sandbox", f"1 to {MOST_NAME} characters")
        _check(0 < len(told.image) <= MOST_NAME, "image", f"1 to {MOST_NAME} characters")
        _check(told.state in set(GuestState), "state", f"one of {', '.join(GuestState)}")
        no_digest = not told.digest and told.state != GuestState.PULLED
        _check(no_digest or _DIGEST.fullmatch(told.digest), "digest", "sha256: and 64 hexadecimal digits")
        _check(0 <= told.bytes < 2**63, "bytes", "a whole number from 0 to 2^63-1")
        seen, why = await self._relay.now()
        known = self._known(seen)
        if told.sandbox not in known:
            return ReportPullResponse(False, f"no such sandbox is known on this node{f' ({why})' if why else ''}")
        if seen is not None and seen.view.listed:  # else it cannot be known which have ended
            for ended in [one for one in self._reports if one not in known]:
                del self._reports[ended]
        rows = self._reports.setdefault(told.sandbox, {})
        rows.pop(told.image, None)
        error = "".join(one if one.isprintable() else " " for one in _PRIVATE.sub("", told.error[: 4 * MOST_ERROR]))
        rows[told.image] = GuestImage(
            *(told.sandbox, told.image, told.state, told.digest, told.bytes, error[:MOST_ERROR], self._clock.wall_ns())
        )
        if len(rows) > MOST_IMAGES:
            del rows[next(iter(rows))]
        if len(self._reports) > MOST_SANDBOXES:
            del self._reports[next(iter(self._reports))]
        return ReportPullResponse(True)

    async def pulls(self, uid: str, namespace: str, name: str, sandbox: str) -> Section[PodPullsSeen]:
        """The section `pulls` of a pod; `sandbox` is empty where it is not known."""
        seen, why, at = await self._seen(uid, namespace, name, sandbox)
        return Section(seen, RELAY, not why, why, at)

    async def images(
        self, uid: str, namespace: str, name: str, sandbox: str, images: Section[Mapping[str, str]]
    ) -> Section[tuple[PodImage, ...]]:
        """The section `images`: of each container the image of its spec, and what host and guest have of it."""
        if images.value is None:
            return Section(None, images.source, False, images.why, images.observed_at)
        seen, why, _ = await self._seen(uid, namespace, name, sandbox)
        rows = tuple(_image(container, image, seen) for container, image in images.value.items())
        return Section(rows, images.source, not why, why, images.observed_at)

    async def sandboxes(self) -> tuple[PullsView | None, str]:
        """The sandboxes that the relay has reported, or why they are not known. It is asked at most once in
        `FRESH_NS`."""
        now_ns = self._clock.now_ns()
        if self._telling is None or (self._telling.done() and now_ns - self._telling_ns >= FRESH_NS):
            self._telling_ns, self._telling = now_ns, asyncio.ensure_future(self._relay.now())
        told, why = await asyncio.shield(self._telling)
        return (told.view if told is not None else None), why

    # ---- inside

    async def _seen(self, uid: str, namespace: str, name: str, sandbox: str) -> tuple[PodPullsSeen, str, int]:
        """What is known of a pod's pulls, why it is not all, and when it was asked for."""
        told, why = await self._relay.now()
        if told is None:
            guests = tuple(self._reports.get(sandbox, {}).values())
            return PodPullsSeen(sandbox, (), guests, *await self._mode_of(sandbox)), why, 0
        known = self._pods().specs.get(PodUid(uid))
        uids = (uid, known.spec.config_hash if known is not None else "")  # kubelet's UID of a static pod
        of_name = told.sandboxes.get((namespace, name), ())
        of_pod = {one.attempt: one for one in of_name if one.uid and one.uid in uids}
        hosts = [
            _host(row, _id(of_pod.get(row.attempt)))
            for row in told.pulls.get((namespace, name), ())
            if row.uid and row.uid in uids
        ]
        last = of_pod[max(of_pod)] if of_pod else None
        home = _id(last) or sandbox
        mode = await (self._mode(last.handler, home) if last is not None else self._mode_of(home))
        ids = dict.fromkeys((*map(_id, of_pod.values()), home))
        guests = tuple(one for id_ in ids for one in self._reports.get(id_, {}).values())
        lost = f"{told.view.forgotten} older pulls of this node had no room" if told.view.forgotten else ""
        return PodPullsSeen(home, tuple(hosts), guests, *mode), lost, self._clock.wall_ns()

    def _sandbox_of(self, uid: str) -> str:
        return self._pods().sandbox_of.get(PodUid(uid), "")

    def _known(self, told: _Told | None) -> set[str]:
        """The ids of sandboxes that there are."""
        return {*self._pods().sandboxes, *(one.id for one in (told.view.sandboxes if told is not None else ()))}

    async def _ask(self) -> tuple[_Told | None, str]:
        """What the relay has seen, else why not."""
        self.absent = False
        try:
            return _Told(await line.ask_pulls(self._path, WITHIN_S)), ""
        except TimeoutError:
            return None, f"the relay at {self._path} did not answer within {WITHIN_S:g} s"
        except (FileNotFoundError, ConnectionRefusedError):
            self.absent = True
            return None, f"no relay answers at {self._path}; only a relay before the runtime sees pulls"
        except (OSError, WireError) as error:
            return None, f"no answer of the relay at {self._path}: {error}"

    async def _mode_of(self, sandbox: str) -> tuple[PullMode, str]:
        """By the handler that the runtime has told the daemon of."""
        known = self._pods().sandboxes.get(SandboxId(sandbox))
        if known is None or not known.sandbox.handler:
            return PullMode.UNKNOWN, "the runtime handler is not known"
        return await self._mode(known.sandbox.handler, sandbox)

    async def _mode(self, handler: str, sandbox: str, image: str = "") -> tuple[PullMode, str]:
        """Where images of this handler are pulled. What a runtime has reported of its sandbox comes first."""
        for row in self._reports.get(sandbox, {}).values():
            if row.state == GuestState.PULLED and (not image or _same(row.image, image)):
                return PullMode.GUEST, "its runtime has reported a pull in the guest"
        now_ns = self._clock.now_ns()
        if self._read_ns is None or now_ns - self._read_ns > LOOK_S * 1e9:
            try:
                self._modes, self._no_modes = await asyncio.wait_for(self._files_say.now(), WITHIN_S)
                self._read_ns = now_ns
            except TimeoutError:
                return PullMode.UNKNOWN, f"the runtimes' configuration was not read within {WITHIN_S:g} s"
        return self._modes.get(
            handler, (PullMode.UNKNOWN, f"no configuration of handler {handler[:64]}; {self._no_modes}")
        )

    async def _look(self) -> tuple[Modes, str]:
        return await asyncio.get_running_loop().run_in_executor(None, _modes, self._files, self._profiles)


def _check(right: object, field: str, rule: str) -> None:
    if not right:
        raise PullRequestError(f"{field}: must be {rule}" if field != "namespace, name, uid" else f"{field}: {rule}")


def _same(one: str, other: str) -> bool:
    """Whether two references name the same image: kubelet adds the tag that is left out."""
    return one in (other, f"{other}:latest") or other == f"{one}:latest"


def _id(key: SandboxKey | None) -> str:
    return key.id if key is not None else ""


def _host(row: PullRow, sandbox: str) -> HostPull:
    return HostPull(row.image, row.attempt, sandbox, row.began, row.ended, row.status, row.image_ref)


def _image(container: str, image: str, seen: PodPullsSeen) -> PodImage:
    """A guest that was replaced holds nothing any more."""
    refs = [one.image_ref for one in seen.host if one.image_ref and _same(one.image, image)]
    held = [one for one in seen.guest if one.state == GuestState.PULLED and one.sandbox == seen.sandbox]
    digests = [one.digest for one in held if _same(one.image, image)]
    return PodImage(container, image, tuple(dict.fromkeys(refs)), tuple(dict.fromkeys(digests)))


def _modes(files: HostFiles, profiles: Mapping[str, Profile]) -> tuple[Modes, str]:
    """Of each handler where its images are pulled, and what says so; then which files were read. May sleep."""
    containerd = [config_file.Source(*one) for one in handlers.containerd(files)]
    crio = [config_file.Source(*one) for one in handlers.crio(files)]
    nydus = [config_file.Source(*one) for one in handlers.nydus(files)]
    machines = config_file.handlers([one.table for one in containerd], [one.table for one in crio], profiles)
    found = {name: (PullMode.HOST, f"handler {name} starts no VM") for name in config_file.names(containerd, crio)}
    for handler in machines:
        kata, fault = configs.sources(files, handler) if handler.profile is not Profile.DOCUMENT else ([], "")
        guest, why = config_file.pulls(handler.name, containerd, crio, kata, nydus)
        if guest is False and fault:
            guest, why = None, fault
        found[handler.name] = PullMode.UNKNOWN if guest is None else PullMode.GUEST if guest else PullMode.HOST, why
    default = config_file.default_handler(containerd, crio) or "runc"
    found[""] = found.get(default, (PullMode.HOST, f"the runtime's default handler, {default}, starts no VM"))
    return found, f"read were {', '.join(one.path for one in (*containerd, *crio) if one.table) or 'no files'}"
