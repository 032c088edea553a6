"""The OCI hook's socket: one line in, one line out (`neighbours.sockets.lines`).

Promises: a question of the hook's is asked as a create is, within a second; a fault of ours answers nothing, and the
hook then goes by the files. Must not decide, and holds nothing of pods.
"""

from collections.abc import Callable

from nodeward.core.decision import Final
from nodeward.core.errors import WireError
from nodeward.core.events import Creating, Hooked
from nodeward.core.ports import Ask, Tell
from nodeward.core.refusal import Refusal
from nodeward.core.workload import Container, Phase, Sandbox
from nodeward.neighbours.formats import cgroup_paths, described, misc_files
from nodeward.neighbours.hook import line as hook_line
from nodeward.neighbours.hook.line import HookAnswer, HookRequest
from nodeward.neighbours.sockets.lines import LineServer


def sandbox(request: HookRequest) -> Sandbox:
    """The container's sandbox. WireError where the cgroup above the container's is not a pod's."""
    path = cgroup_paths.container_path(request.cgroup)
    pod_path, _, name = path.rpartition("/")
    own_uid = cgroup_paths.pod_uid(pod_path.rpartition("/")[2])
    if not (path.startswith("/") and name and own_uid):
        raise WireError("hook line", f"cgroup {request.cgroup[:200]!r} is not one step below a pod's cgroup")
    if not request.id or not request.sandbox:
        raise WireError("hook line", "id or sandbox is empty")
    return described.sandbox(
        *(request.sandbox, request.uid or own_uid, request.namespace, request.pod),
        annotations=request.annotations,
        cgroup_parent=pod_path,
    )


def container(request: HookRequest) -> Container | None:
    """The container of the request; None for what holds the sandbox."""
    if not request.container:
        return None
    path = cgroup_paths.container_path(request.cgroup)
    return described.container(request.id, request.sandbox, request.container, phase=Phase.RUNNING, cgroups_path=path)


def answer_of(final: Final, on_error: str) -> HookAnswer:
    """The answer in the hook's words."""
    why = " ".join((final.reason.code, *(str(value) for value in final.reason.values)))[:4096]
    if isinstance(final.value, Refusal):
        return HookAnswer({}, final.value.message, on_error, why)
    limits = misc_files.parse_limits(final.value.unified.get("misc.max", "").encode())
    return HookAnswer(limits, "", on_error, why)


ANSWER_NS = 1_000_000_000


class HookServer:
    """Answers hooks. `on_error` is the setting of the moment."""

    def __init__(self, ask: Ask, tell: Tell, on_error: Callable[[], str]) -> None:
        self._ask, self._tell, self._on_error = ask, tell, on_error

    async def run(self, path: str, serving: Callable[[], None]) -> None:
        """Serves until cancelled; the socket's file is there meanwhile, mode 0600. Calls `serving` once it is."""
        await LineServer("hook", self._line, hook_line.MAX_REQUEST).run(path, serving)

    async def _line(self, line: bytes) -> bytes | None:
        answer = await self.answer(hook_line.decode_request(line))
        return hook_line.encode_answer(answer) if answer is not None else None

    async def answer(self, request: HookRequest) -> HookAnswer | None:
        """What the container is to have; None for what holds a sandbox, for which nobody waits. The daemon knows of it
        from then on."""
        home, made = sandbox(request), container(request)
        if made is None:
            self._tell(Hooked(home))
            return None
        final = self._ask(Creating(home, made, by_hook=True), ANSWER_NS)
        if not isinstance(final, Final):
            final = await final
        answer = answer_of(final, self._on_error())
        if not answer.refusal:
            self._tell(Hooked(home, made))
        return answer
