"""The hook's line to and from the words of the model. Pure.

Copies allow-listed annotations only, whatever the hook sends, and takes no cgroup that is not a pod's. Must not decide.
"""

from nodeward.core.annotations import read_ones
from nodeward.core.decision import Final
from nodeward.core.refusal import Refusal
from nodeward.core.wire_errors import WireError
from nodeward.core.workload import Container, ContainerId, Phase, PodUid, Sandbox, SandboxId
from nodeward.neighbours.formats import cgroup_paths, misc_files
from nodeward.neighbours.hook.line import HookAnswer, HookRequest


def sandbox(request: HookRequest) -> Sandbox:
    """The container's sandbox. WireError where the cgroup above the container's is not a pod's."""
    path = cgroup_paths.container_path(request.cgroup)
    pod_path, _, name = path.rpartition("/")
    own_uid = cgroup_paths.pod_uid(pod_path.rpartition("/")[2])
    if not (path.startswith("/") and name and own_uid):
        raise WireError("hook line", f"cgroup {request.cgroup[:200]!r} is not one step below a pod's cgroup")
    if not request.id or not request.sandbox:
        raise WireError("hook line", "id or sandbox is empty")
    return Sandbox(
        SandboxId(request.sandbox),
        PodUid(request.uid or own_uid),
        request.namespace,
        request.pod,
        read_ones(request.annotations),
        pod_path,
    )


def container(request: HookRequest) -> Container | None:
    """The container, whose cgroup can be read already; None for what holds the sandbox."""
    if not request.container:
        return None
    home, path = SandboxId(request.sandbox), cgroup_paths.container_path(request.cgroup)
    return Container(ContainerId(request.id), home, request.container, Phase.RUNNING, path)


def answer(final: Final, on_error: str) -> HookAnswer:
    """The answer in the hook's words."""
    why = " ".join((final.reason.code, *(str(value) for value in final.reason.values)))[:4096]
    if isinstance(final.value, Refusal):
        return HookAnswer({}, final.value.message, on_error, why)
    limits = misc_files.parse_limits(final.value.unified.get("misc.max", "").encode())
    return HookAnswer(limits, "", on_error, why)
