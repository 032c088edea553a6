"""The Pod API's `ComputeSize`: how large a pod's VM is to be, each term with its source. Pure.

Makes no sum of its own: `features.sandboxes.sizing` says what the relay sends, `features.sandboxes.size` what Kata
makes of it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from nodeward.core.vms import NOT_TOLD, Allocatable, Handler, Profile, VmReading, Way
from nodeward.core.workload import NO_SHARE, CpuRecord, HostShare, PodSpec, SandboxId
from nodeward.features.podapi.rows import ComputeSizeRequest, ComputeSizeResponse, KataSize, SizeSent, SizeTerm
from nodeward.features.podapi.view import NO_SPEC, Subject, sums
from nodeward.features.sandboxes import sizing
from nodeward.features.sandboxes.settings import SizingSettings
from nodeward.features.sandboxes.size import CPU_M, SHARES_OF_A_CPU, cpu_limit_m, size

_changed: Callable[..., SizingSettings] = replace


def computed(
    asked: ComputeSizeRequest,
    one: Subject,
    handlers: Mapping[str, Handler],
    settings: SizingSettings,
    cpus: int,
    memory: int,
    node: Allocatable = NOT_TOLD,
) -> ComputeSizeResponse:
    """The size. `handlers`: those that start VMs by the runtime's configuration; `cpus`, `memory`: what the machine
    has, 0 for not known; `node`: what is allocatable by the Node object."""
    overrides = {
        "unlimited": asked.unlimited or None, "keep_cpus": asked.keep_cpus, "keep_memory_mib": asked.keep_memory_mib
    }  # fmt: skip
    rule = _changed(settings, **{name: value for name, value in overrides.items() if value is not None})
    spec = one.known.spec if one.known is not None else None
    name = asked.handler or (one.sandbox.handler if one.sandbox is not None else "")
    handler, most = handlers.get(name), sizing.room(rule, cpus, memory, node)
    share, by = _share(one, spec)
    no_way, no_spec = sizing.why_not(name, handler, rule), "" if spec is not None else NO_SPEC
    own = one.sandbox.annotations if one.sandbox is not None else {}
    wanted = sizing.sized(share, spec, None, rule, most, no_spec)
    cpu_m = cpu_limit_m(CpuRecord(quota=wanted.cpu_quota, period=wanted.cpu_period)) or 0
    terms = (
        SizeTerm("kubelet_cpu_m", cpu_limit_m(share.cpu) or 0, by),
        SizeTerm("kubelet_memory", share.memory, by),
        SizeTerm("cpu_m", cpu_m, wanted.cpu_why),
        SizeTerm("memory", wanted.memory_limit, wanted.memory_why),
        SizeTerm("most_cpu_m", most.cpu_m, most.cpu_by),
        SizeTerm("most_memory", most.memory, most.memory_by),
        *_own(handler),
    )
    if no_way:
        sent = SizeSent(Way.NONE.value, share.cpu.period, share.cpu.quota, share.memory, {}, False, no_way)
    else:
        found = sizing.sized(share, spec, handler, rule, most, no_spec, own)
        limits, why = (found.cpu_period, found.cpu_quota, found.memory_limit), f"{found.cpu_why}; {found.memory_why}"
        sent = SizeSent(found.way.value, *limits, found.annotations, found.changes, why)
    given = HostShare(replace(share.cpu, quota=sent.cpu_quota, period=sent.cpu_period), sent.memory_limit)
    kata = _kata(handler, given, {**own, **sent.annotations}, no_way)
    return ComputeSizeResponse(name, cpu_m, -(-cpu_m // CPU_M), wanted.memory_limit, terms, sent, kata)


def _share(one: Subject, spec: PodSpec | None) -> tuple[HostShare, str]:
    """What kubelet sends of the whole pod: as the runtime was told, else as kubelet makes it of the spec."""
    if one.sandbox is not None and one.sandbox.asked != NO_SHARE:
        return one.sandbox.asked, "what the runtime was told in RunPodSandbox"
    if spec is None:
        return NO_SHARE, NO_SPEC
    found = sums(spec)
    request_m = found.cpu_request_m or 0
    shares = max(sizing.NO_REQUEST_SHARES, min(request_m * SHARES_OF_A_CPU // CPU_M, sizing.MOST_SHARES))
    quota = found.cpu_limit_m * sizing.PERIOD // CPU_M
    return HostShare(
        CpuRecord(shares, quota, sizing.PERIOD), found.memory_limit
    ), "the limits of the spec, as kubelet sums them"


def _own(handler: Handler | None) -> Iterator[SizeTerm]:
    """What Kata adds of its own."""
    if handler is None or handler.profile is Profile.DOCUMENT:
        return
    where = handler.config or "the handler's configuration"
    rows = (
        ("kata_default_cpu_m", handler.default_vcpus_m, "default_vcpus"),
        ("kata_default_memory", handler.default_memory, "default_memory"),
        ("kata_overhead_cpu_m", handler.overhead_vcpus_m, "overhead_vcpus"),
        ("kata_overhead_memory", handler.overhead_memory, "overhead_memory"),
    )
    for what, amount, option in rows[: 4 if handler.profile is Profile.KATA_RS else 2]:
        yield SizeTerm(what, amount, f"{option} of {where}")


def _kata(handler: Handler | None, given: HostShare, annotations: Mapping[str, str], no_way: str) -> KataSize:
    if handler is None or handler.profile is None:
        return KataSize(None, None, no_way or "no configuration of this handler is known")
    found = size(VmReading(SandboxId(""), 0), handler, handler.profile, annotations, given)
    why = f"by {found.source}, as {handler.profile.value} sums them" if found.source else "its configuration says none"
    return KataSize(found.vcpus, found.memory, f"{why}; {no_way}" if no_way else why)
