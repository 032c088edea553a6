"""The CPUs that a container requests, by the most trusted source that says anything.

The pod's spec comes first; then the annotation that a webhook of nri-plugins or of CRI Resource Manager writes; then an
estimate by what kubelet asked the runtime for. Promises: an estimate is not `known`, so that it gives nobody CPUs of
its own, where the pod's cgroup does not tell the QoS class or contradicts the CPU limit. An annotation counts where
kubelet asked the runtime for the same: where no webhook is, any user can write one. What cannot be read, or is another
amount, is a fault, in a sentence, and counts as not there. Must not raise for anything that a user wrote.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from nodeward.core import annotations as keys
from nodeward.core.quantity import CPU_EXAMPLE, QuantityError, milli_units
from nodeward.core.text import parse_bool
from nodeward.core.workload import ContainerSpec, CpuRecord, PodSpec, Qos, Role

MIN_SHARES, MAX_SHARES = 2, 262_144
"""What kubelet writes for no request, and at most."""
MIN_QUOTA = 1000
"""Kubelet writes no lower one, whatever the limit is."""
ESTIMATE = "an estimate by cpu.shares and the pod's cgroup"
UNTOLD = "nothing: the runtime tells no cpu.shares"
UNREAD = "nothing: the runtime's record could not be read"
UNREAD_STAYS = (
    "the runtime did not tell what it asked for; it keeps the CPUs that it has, nobody gets these alone, and the "
    "runtime is asked again"
)
_REMEDY = 'remove it, let the webhook write it, or write {"containers": {"app": {"requests": {"cpu": "2"}}}}'
_SECTIONS = (("initContainers", Role.INIT), ("containers", Role.REGULAR))


@dataclass(frozen=True, slots=True)
class Requested:
    """What a container requests. See `features.cpus.values.Ask` for the fields of the same name."""

    request_m: int = 0
    limit_m: int = 0
    qos: Qos = Qos.BURSTABLE
    """BURSTABLE where nobody tells the class: no rule gives it more for that."""
    role: Role = Role.REGULAR
    source: str = UNTOLD
    known: bool = True
    pod_level: bool = False
    """The pod has resources as a whole: kubelet's static policy passes it over."""
    faults: tuple[str, ...] = ()


def requested(
    spec: PodSpec | None,
    annotations: Mapping[str, str],
    container: str,
    record: CpuRecord,
    cgroup_parent: str,
    is_placed: Callable[[str, int], bool] = lambda _, __: False,
) -> Requested:
    """What `container` requests, and who says so. `annotations` and `cgroup_parent` are the sandbox's. `is_placed`:
    whether it has its CPUs by this source and request: the record may say since then what a policy gave."""
    own = next((one for one in spec.containers if one.name == container), None) if spec is not None else None
    qos = (spec.qos if spec is not None else None) or qos_of(cgroup_parent)
    if spec is not None and own is not None and own.cpu_m is not None:
        told = qos or Qos.BURSTABLE
        limit_m, source = own.cpu_limit_m, spec.source.value
        return Requested(own.cpu_m, limit_m, told, own.role, source, True, spec.pod_level, own.faults)
    faults = list(own.faults) if own is not None else []
    level = spec is not None and spec.pod_level
    for key in keys.CPU_REQUESTS:
        if key not in annotations:
            continue
        said = _annotated(annotations[key], container)
        if isinstance(said, str):
            faults.append(f"annotation {key}: {said}")
        elif said is not None:
            request_m, limit_m, role = said
            role, source = own.role if own is not None else role, f"annotation {key}"
            why = _contradicted(request_m, limit_m, qos, record)
            if why and not is_placed(source, request_m):
                faults.append(f"{source}: {why}")
                continue
            return Requested(request_m, limit_m, qos or Qos.BURSTABLE, role, source, True, level, tuple(faults))
    return _estimate(record, qos, own, level, tuple(faults))


def qos_of(cgroup_parent: str) -> Qos | None:
    """The QoS class by the pod's cgroup; None for one that no kubelet names so."""
    if "besteffort" in cgroup_parent:
        return Qos.BEST_EFFORT
    if "burstable" in cgroup_parent:
        return Qos.BURSTABLE
    return Qos.GUARANTEED if "kubepods" in cgroup_parent else None


def shares_of(request_m: int) -> int:
    """cpu.shares for a request, as kubelet computes them."""
    return max(MIN_SHARES, min(MAX_SHARES, request_m * 1024 // 1000))


def _estimate(
    record: CpuRecord, qos: Qos | None, own: ContainerSpec | None, pod_level: bool, faults: tuple[str, ...]
) -> Requested:
    role = own.role if own is not None else Role.REGULAR
    if record.shares < MIN_SHARES:
        source = UNREAD if record.unread else UNTOLD
        return Requested(0, 0, qos or Qos.BURSTABLE, role, source, False, pod_level, faults)
    request_m = 0 if record.shares == MIN_SHARES else _rounded(record.shares * 1000, 1024)
    is_limited = record.quota > 0 and record.period > 0
    limit_m, known = _rounded(record.quota * 1000, record.period) if is_limited else 0, qos is not None
    if qos is Qos.GUARANTEED and is_limited:
        # the quota is kubelet's alone; a policy may have set the shares to what is left beside whole CPUs
        part_m = limit_m % 1000
        known = abs(limit_m - request_m) <= 1 or (0 < part_m < limit_m and record.shares == shares_of(part_m))
        request_m = limit_m if known else request_m
    elif qos is Qos.GUARANTEED:
        limit_m = request_m
    return Requested(request_m, limit_m, qos or Qos.BURSTABLE, role, ESTIMATE, known, pod_level, faults)


def _rounded(above: int, below: int) -> int:
    """The quotient, a half rounded up."""
    return (2 * above + below) // (2 * below)


# ---- annotations -----------------------------------------------------------------------------------------------------


def _annotated(text: str, container: str) -> tuple[int, int, Role] | str | None:
    """Request, limit and role by a webhook's annotation; what is wrong with it; None where it says nothing of the
    container's CPUs."""
    if text == keys.TOO_LONG or len(text) > keys.MAX_VALUE:
        return f"is longer than {keys.MAX_VALUE} characters; {_REMEDY}"
    try:
        raw: object = json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError) as error:
        return f"is no JSON ({error.__class__.__name__}); {_REMEDY}"
    if not isinstance(raw, dict):
        return f"is no JSON object; {_REMEDY}"
    found: tuple[str, object, Role] | None = None
    for section, role in _SECTIONS:
        ones = raw.get(section)
        if ones is not None and not isinstance(ones, dict):
            return f"{section} is no object of containers; {_REMEDY}"
        if ones is not None and container in ones:
            if found is not None:
                return f"{container[:64]!r} is both an init container and a container; {_REMEDY}"
            found = f"{section}.{container[:64]}", ones[container], role
    return _amounts(*found) if found is not None else None


def _amounts(path: str, given: object, role: Role) -> tuple[int, int, Role] | str | None:
    amounts: dict[str, int] = {}
    for word in ("limits", "requests"):
        ones = given.get(word) if isinstance(given, dict) else given
        if ones is None and given is not None:
            continue
        if not isinstance(ones, dict):
            return f"{path} is no object of requests and limits; {_REMEDY}"
        if "cpu" in ones:
            amount = ones["cpu"]
            if not isinstance(amount, str):
                return f"{path}.{word}.cpu is neither a text nor a number; {CPU_EXAMPLE}"
            try:
                amounts[word] = milli_units(amount)
            except QuantityError as error:
                return f"{path}.{word}.cpu: {error}"
    limit_m = amounts.get("limits", 0)
    request_m = amounts.get("requests", limit_m)
    if 0 < limit_m < request_m:
        return f"{path} requests {request_m}m CPU, more than its limit of {limit_m}m; {_REMEDY}"
    return request_m, limit_m, role


def _contradicted(request_m: int, limit_m: int, qos: Qos | None, record: CpuRecord) -> str:
    """What kubelet asked the runtime for, where that is not what it computes of this request; else nothing. In a
    Guaranteed pod the quota counts: it is kubelet's alone, while a policy may have set the shares."""
    if record.shares < MIN_SHARES:
        return ""
    if qos is Qos.GUARANTEED and record.quota > 0 and record.period > 0:
        if record.quota == max(MIN_QUOTA, request_m * record.period // 1000):
            return ""
        asked = f"a quota of {record.quota} in {record.period} us"
    else:
        if record.shares == shares_of(request_m or limit_m):
            return ""
        asked = f"cpu.shares {record.shares}"
    return (
        f"says {request_m}m CPU, and kubelet asked the runtime for {asked}: somebody else wrote it, or the container "
        f"was resized; {_REMEDY}"
    )


class Scope(IntEnum):
    """The containers that an annotation is for; the higher the stronger."""

    BARE = 1
    POD = 2
    CONTAINER = 3


def scoped(annotations: Mapping[str, str], key: str, container: str) -> tuple[str, Scope] | None:
    """The value of `key` that holds for the container, and its scope; None where none is given."""
    if not annotations:
        return None
    places = ((f"{key}/container.{container}", Scope.CONTAINER), (f"{key}/pod", Scope.POD), (key, Scope.BARE))
    return next(((annotations[name], scope) for name, scope in places if name in annotations), None)


def flag(annotations: Mapping[str, str], key: str, container: str) -> bool | str | None:
    """The boolean of `key` that holds for the container, as Go's ParseBool reads it; what is wrong with it; None where
    none is given. A wrong one counts as none."""
    found = scoped(annotations, key, container)
    if found is None:
        return None
    text, _ = found
    is_on = parse_bool(text)
    return is_on if is_on is not None else f"annotation {key}: {text[:64]!r} is no boolean; write true or false"
