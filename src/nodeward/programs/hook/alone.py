"""Decides for the OCI hook while no daemon answers, by the file that the daemon left, or by annotations.

Imported only then, since the engine takes as long to import as all the rest of the hook.
"""

from collections.abc import Callable, Mapping

from nodeward.core.errors import WireError
from nodeward.core.modes import Mode, OnError
from nodeward.core.workload import PodSpec
from nodeward.features.limits import hook_file
from nodeward.features.limits.grant import refusal, settable
from nodeward.features.limits.promise import promise
from nodeward.features.limits.settings import LimitsSettings, UnknownPod
from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.hook.line import HookAnswer, HookRequest


def answer_alone(
    request: HookRequest,
    files: HostFiles,
    folder: str,
    on_error: str,
    capacity: Callable[[], Mapping[str, int]],
    notes: list[str],
) -> HookAnswer:
    """What the daemon would answer, by what it has left in `folder`. `on_error` holds where it has left no settings.
    What could not be read, and what this kernel cannot limit, is told in `notes`."""
    rule = _rule(files, folder, on_error, notes)
    if rule.mode is not Mode.ENFORCE:
        return HookAnswer({}, "", rule.on_error.value, f"limits.mode is {rule.mode.value}")
    spec = _pod(files, folder, request.uid, notes)
    found = promise(spec, request.annotations, request.container, rule)
    there = capacity()
    who = f"{request.namespace}/{request.pod}, container {request.container}"
    refused = refusal(rule, there, found, who)
    limits = {} if refused is not None else settable(rule, there, found.values)
    if refused is None:
        notes += [f"{fault}; it counts as undeclared" for fault in found.faults]
        if not found.known and any(there.get(resource, 0) > 0 for resource in rule.resources.values()):
            notes.append(_unknown(rule.unknown_pod, folder))
        notes += [
            f"declares {value} of {resource}, which this kernel cannot limit (not in misc.capacity): the container "
            f"starts without that limit, for limits.unsupported is {rule.unsupported.value}"
            for resource, value in found.values.items()
            if value > 0 and resource not in limits
        ]
    return HookAnswer(limits, refused.message if refused else "", rule.on_error.value, found.source)


def _unknown(fallback: UnknownPod, folder: str) -> str:
    """Said of a container that starts all the same."""
    gets = "with limit 0" if fallback is UnknownPod.ZERO else "without a limit"
    return (
        f"nobody knows this pod (no daemon answers, it has no file in {folder}/pods, and no annotation counts): the "
        f"container starts {gets}, for limits.unknown_pod is {fallback.value}. See that nodeward node runs and reaches "
        "the API server (nodeward status)"
    )


def _rule(files: HostFiles, folder: str, on_error: str, notes: list[str]) -> LimitsSettings:
    path = f"{folder}/{hook_file.RULE}"
    try:
        return hook_file.decode_rule(files.read(path, hook_file.MAX_BYTES))
    except FileNotFoundError:
        pass
    except (OSError, WireError) as error:
        notes.append(f"{path} is not used: {error}")
    return LimitsSettings(on_error=OnError(on_error))


def _pod(files: HostFiles, folder: str, uid: str, notes: list[str]) -> PodSpec | None:
    name = hook_file.name_of(uid)
    if not name:
        return None
    path = f"{folder}/{name}"
    try:
        spec = hook_file.decode_pod(files.read(path, hook_file.MAX_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, WireError) as error:
        notes.append(f"{path} is not used: {error}")
        return None
    if uid != spec.uid:
        notes.append(f"{path} is not used: it is of pod {spec.uid}")
        return None
    return spec
