"""How events change what is known of VM sandboxes, and which goals follow.

Nothing is moved and nothing is written but the limits of a pod that nobody else limits, in the mode enforce. What the
kernel has is known from the next reading only, so a wanted limit is given as a goal once, and again where it changes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from nodeward.core import events as ev
from nodeward.core.annotations import KATA_ONLY
from nodeward.core.decision import NOTHING, Decision, Goal
from nodeward.core.feature import Hear
from nodeward.core.modes import Mode
from nodeward.core.tables import copied, kept, put, without
from nodeward.core.vms import CgroupDriver, Handler, Need, Place, Profile, Task, VmReading
from nodeward.core.workload import NO_SHARE, Container, Phase, PodSpec, Sandbox, SandboxId
from nodeward.features.pods.found import pod_cgroups
from nodeward.features.pods.state import Pods
from nodeward.features.root import SettingsChanged, State
from nodeward.features.sandboxes import pod_limits
from nodeward.features.sandboxes.drift import Rules, drift
from nodeward.features.sandboxes.expected import Paths, expected, is_crios, of_pod, shims
from nodeward.features.sandboxes.headroom import headroom, lowest_limit, need
from nodeward.features.sandboxes.mode import mode, recognised
from nodeward.features.sandboxes.recommend import recommend, with_sample
from nodeward.features.sandboxes.size import size
from nodeward.features.sandboxes.state import Killed, Limited, Sandboxes, Vm
from nodeward.features.sandboxes.usage import usage
from nodeward.features.sandboxes.values import Drift, Expected, Measured, ModeSaid

MEASURED = "measured:"
"""In `Vm.since_ns`, with the name by which its overhead is counted: since when."""
MOST_CLASSES = 64
"""So many RuntimeClasses are measured."""
_NS_A_TICK = 10_000_000
_FRESH_NS = 20_000_000_000
"""What is younger was read soon after its start: processes are searched each ten seconds."""
NOT_MEASURED = Measured()
_recommended = kept(recommend)


# ---- what was read


def _read(state: State, event: ev.VmsRead) -> tuple[Sandboxes, Decision]:
    slice_ = replace(state.sandboxes, version=event.version, driver=event.driver)
    state = replace(state, sandboxes=slice_)
    vms, measured, goals = copied(slice_.vms), copied(slice_.measured), list[Goal]()
    in_pods = _in_pods(vms)
    misses, limited = slice_.misses, copied(slice_.limited)
    for seen in event.readings:
        before = vms.get(seen.sandbox)
        if before is not None and seen.at_ns <= before.reading.at_ns:
            continue
        reading = _own(state.pods, seen)
        pod = _pod(state, reading)
        beside = _beside(state, vms, in_pods, reading)
        vm = _with_kill(_vm(state, reading, before, pod, beside), before, event.wall_ns)
        vms[reading.sandbox] = vm = _sampled(measured, vm, pod.measured_as, state.settings.sandboxes.samples)
        more, misses = _limited(state, vm, before, pod, misses, limited)
        goals += more
    there = vms if event.there is None else dict.fromkeys(event.there)
    gone = {one: vm for one, vm in vms.items() if one not in there}
    slice_ = replace(slice_, vms=without(vms, gone), measured=measured, misses=misses, limited=limited)
    ended = [one for one in limited if one not in there]
    slice_, decision = _forgotten(slice_, ended)
    return slice_, replace(decision, goals=tuple(goals)) if goals or ended else NOTHING


def _own(pods: Pods, reading: VmReading) -> VmReading:
    """Without the cgroup that several pods share, as a runtime without kubelet has it: nothing there is this one's."""
    pod = reading.cgroup(Place.POD)
    if pod is None or pod.path not in _shared(pods):
        return reading
    return replace(reading, cgroups=tuple(one for one in reading.cgroups if one is not pod))


@kept
def _shared(pods: Pods) -> Mapping[str, int]:
    """The cgroups that are said to be those of more than one pod."""
    counts = dict[str, int]()
    for path in pod_cgroups(pods).values():
        counts[path] = counts.get(path, 0) + 1
    return {path: count for path, count in counts.items() if count > 1}


def _again(state: State) -> dict[SandboxId, Vm]:
    """Every sandbox by the readings that are there, where something else is known now."""
    vms = state.sandboxes.vms
    in_pods = _in_pods(vms)
    return {
        one: _vm(state, vm.reading, vm, _pod(state, vm.reading), _beside(state, vms, in_pods, vm.reading))
        for one, vm in vms.items()
    }


def _in_pods(vms: Mapping[SandboxId, Vm]) -> dict[str, dict[SandboxId, None]]:
    """The sandboxes by the cgroups of their pods."""
    found = dict[str, dict[SandboxId, None]]()
    for one, vm in vms.items():
        if (pod := vm.reading.cgroup(Place.POD)) is not None:
            found.setdefault(pod.path, {})[one] = None
    return found


def _beside(
    state: State,
    vms: Mapping[SandboxId, Vm],
    in_pods: dict[str, dict[SandboxId, None]],
    reading: VmReading,
) -> tuple[Need, ...]:
    """The other VMs in its pod's cgroup: the pod's limit holds them all. Counts this one among them from now on."""
    pod = reading.cgroup(Place.POD)
    if pod is None:
        return ()
    there = in_pods.setdefault(pod.path, {})
    there[reading.sandbox] = None
    others = [vms[one] for one in there if one != reading.sandbox]
    needs = [need(vm.reading, vm.size, _declared(state, vm.reading)) for vm in others]
    return tuple(one for one in needs if one is not None)


def _apart(reading: VmReading, beside: tuple[Need, ...]) -> VmReading:
    """Without the pod's cgroup where another VM is charged to it too; its own cgroup tells what this one costs."""
    if not beside or reading.cgroup(Place.SANDBOX) is None:
        return reading
    return replace(reading, cgroups=tuple(one for one in reading.cgroups if one.place is not Place.POD))


def _declared(state: State, reading: VmReading) -> int:
    pod = _pod(state, reading)
    return pod_limits.declared(pod.spec, pod.sandbox).memory


@dataclass(frozen=True, slots=True)
class _Pod:
    """What else is known of a sandbox's pod."""

    sandbox: Sandbox | None
    spec: PodSpec | None
    containers: tuple[Container, ...]
    """Those that have not ended."""
    handler: Handler | None
    handler_name: str

    @property
    def measured_as(self) -> str:
        """The name under which its overhead is measured; empty where there is none, and for a sandbox of which no
        runtime told: anybody can name a process like a shim."""
        if self.sandbox is None:
            return ""
        return self.spec.runtime_class if self.spec is not None and self.spec.runtime_class else self.handler_name

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.sandbox.annotations if self.sandbox is not None else {}


def _pod(state: State, reading: VmReading) -> _Pod:
    pods, handlers = state.pods, state.sandboxes.handlers
    known = pods.sandboxes.get(reading.sandbox)
    if known is None:
        return _Pod(None, None, (), *_only_one(handlers))
    sandbox = known.sandbox
    spec = pods.specs.get(sandbox.pod_uid)
    every = [pods.containers[one].container for one in pods.by_pod.get(sandbox.pod_uid, ())]
    there = tuple(one for one in every if one.sandbox_id == sandbox.id and one.phase is not Phase.STOPPED)
    name = sandbox.handler
    if not name and spec is not None and spec.spec.runtime_class in handlers:
        name = spec.spec.runtime_class  # most are called like their handler
    named = (handlers.get(name), name) if name else _only_one(handlers)
    return _Pod(sandbox, spec.spec if spec is not None else None, there, *named)


def _only_one(handlers: Mapping[str, Handler]) -> tuple[Handler | None, str]:
    """The handler of a sandbox of which nobody tells it: the only one that there is."""
    if len(handlers) != 1:
        return None, ""
    name, handler = next(iter(handlers.items()))
    return handler, name


def _vm(state: State, reading: VmReading, before: Vm | None, pod: _Pod, beside: tuple[Need, ...]) -> Vm:
    slice_, settings = state.sandboxes, state.settings.sandboxes
    profile = recognised(pod.handler_name, settings.profiles, pod.handler, reading)
    said = mode(pod.handler, pod.annotations.get(KATA_ONLY), profile)
    by = _placed(slice_, reading, pod, profile, said)
    place = None if by is None else _expected(by)
    same = before is not None and _is_as_before(reading, before.reading)
    drifts = _drifts(reading, before if same else None, by, place)
    overhead = pod_limits.declared(pod.spec, pod.sandbox)
    asked = NO_SHARE if pod.sandbox is None else pod.sandbox.asked
    found = size(reading, pod.handler, profile, pod.annotations, asked, pod.containers)
    more = overhead
    if overhead == pod_limits.NOTHING_DECLARED and not pod_limits.is_kubelets(reading, pod.sandbox):
        measured = slice_.measured.get(pod.measured_as, NOT_MEASURED)
        more = pod_limits.assumed(reading, _recommended(measured, settings))
    then = None if before is None else before.reading
    return Vm(
        reading,
        profile,
        said,
        place,
        drifts,
        found,
        headroom(reading, found, overhead.memory, settings.tight_percent, beside),
        usage(then, _apart(reading, beside), None if before is None else before.usage),
        _since(reading, before, same, drifts),
        pod_limits.limits(pod.spec, pod.containers, more),
        None if before is None else before.killed,
        beside,
    )


def _with_kill(vm: Vm, before: Vm | None, wall_ns: int) -> Vm:
    """With what the kernel's counters of OOM kills say. A pod's counts what is below it, the sandbox's too."""
    now, then = _kills(vm.reading), {} if before is None else _kills(before.reading)
    more = max((count - then.get(path, 0) for path, count in now.items()), default=0)
    if more <= 0:
        return vm
    if before is None:
        return replace(vm, killed=Killed(0, more))
    holder = lowest_limit(before.reading) or lowest_limit(vm.reading)
    limit, path = (holder.memory_limit, holder.path) if holder is not None else (None, "")
    return replace(vm, killed=Killed(wall_ns, more, limit, path))


def _kills(reading: VmReading) -> dict[str, int]:
    return {one.path: one.oom_kills for one in reading.cgroups if one.oom_kills is not None}


@dataclass(frozen=True, slots=True)
class _Placed:
    """By which rules a sandbox is placed: all that decides where its tasks should be."""

    profile: Profile
    only: bool
    version: int
    driver: CgroupDriver
    paths: Paths

    @property
    def shims(self) -> tuple[str, ...]:
        """More places for shims: the document has one for each container."""
        return tuple(_shims(self.paths).values()) if self.profile is Profile.DOCUMENT else ()

    def rules(self) -> Rules:
        """The rules of the judgement."""
        return Rules(self.profile, self.version, self.paths.pod, self.shims)


def _placed(
    slice_: Sandboxes, reading: VmReading, pod: _Pod, profile: Profile | None, said: ModeSaid | None
) -> _Placed | None:
    """None while a part of what decides where everything should be is not known."""
    if profile is None or said is None or slice_.driver is None:
        return None
    if pod.sandbox is not None:
        paths = of_pod(pod.sandbox, pod.containers)
    else:
        above = reading.cgroup(Place.POD)
        paths = Paths(reading.sandbox, pod=above.path if above is not None else "", no_pod=above is None)
    if paths.cgroups_path is None and is_crios(reading):
        paths = replace(paths, is_crio=True)
    return _Placed(profile, said.only, slice_.version, slice_.driver, paths)


@lru_cache(1024)
def _expected(by: _Placed) -> Expected:
    return expected(by.profile, by.only, by.version, by.driver, by.paths)


_shims = lru_cache(1024)(shims)


def _drifts(reading: VmReading, before: Vm | None, by: _Placed | None, place: Expected | None) -> tuple[Drift, ...]:
    """What is elsewhere. `before`: where everything is as it was then."""
    if by is None or place is None:
        return ()
    if before is not None and before.expected == place and before.profile is by.profile and not by.shims:
        return before.drifts
    return drift(reading, place, _expected(replace(by, only=not by.only)), by.rules())


def _is_as_before(now: VmReading, then: VmReading) -> bool:
    """Whether every task and every limit that decides about drifts is what and where it was."""
    return (
        len(now.tasks) == len(then.tasks)
        and len(now.cgroups) == len(then.cgroups)
        and all(
            one.tid == old.tid
            and one.cgroup == old.cgroup
            and one.cpu_cgroup == old.cpu_cgroup
            and one.start == old.start
            and one.role is old.role
            for one, old in zip(now.tasks, then.tasks, strict=True)
        )
        and all(
            (one.path, one.memory_limit, one.cpu_limit_m, one.place)
            == (old.path, old.memory_limit, old.cpu_limit_m, old.place)
            for one, old in zip(now.cgroups, then.cgroups, strict=True)
        )
    )


def _since(reading: VmReading, before: Vm | None, same: bool, drifts: tuple[Drift, ...]) -> Mapping[str, int]:
    """Since when each role is where it is, and each drift is seen. `same`: nothing has moved. Nothing is said of what
    was there long before its first reading, as after a start of the daemon."""
    if before is not None and same and before.drifts is drifts:
        return before.since_ns
    then = {} if before is None else before.since_ns
    old = {} if before is None else _places(before.reading)
    now = _places(reading)
    if before is None and any(_is_old(task, reading.at_ns) for task in reading.tasks):
        return {}
    known = {} if before is None else {one.code: None for one in before.drifts}
    stay = [role for role, at in now.items() if old.get(role) == at] + [one.code for one in drifts if one.code in known]
    since = {key: reading.at_ns for key in (*now, *(one.code for one in drifts)) if key not in stay}
    since.update((key, at_ns) for key, at_ns in then.items() if key in stay or key.startswith(MEASURED))
    return since


def _is_old(task: Task, at_ns: int) -> bool:
    """Whether it may have been there, and moved, long before it was read."""
    return at_ns - task.start * _NS_A_TICK > _FRESH_NS


def _places(reading: VmReading) -> dict[str, dict[tuple[str, str], None]]:
    """By role, in which cgroups its tasks are."""
    found = dict[str, dict[tuple[str, str], None]]()
    for task in reading.tasks:
        found.setdefault(task.role.value, {})[task.cgroup, task.cpu_cgroup] = None
    return found


def _sampled(measured: dict[str, Measured], vm: Vm, name: str, needed: int) -> Vm:
    """Counts one sample of the sandbox's overhead in `measured`."""
    if not name or vm.usage is None or (name not in measured and len(measured) >= MOST_CLASSES):
        return vm
    is_new = MEASURED + name not in vm.since_ns
    known = measured.get(name, NOT_MEASURED)
    after = with_sample(known, vm.usage, is_new, needed)
    if after is known:
        return vm
    measured[name] = after
    return replace(vm, since_ns=put(vm.since_ns, MEASURED + name, vm.reading.at_ns)) if is_new else vm


# ---- limits


def _limited(
    state: State,
    vm: Vm,
    before: Vm | None,
    pod: _Pod,
    misses: Mapping[str, str],
    limited: dict[SandboxId, Limited],
) -> tuple[tuple[Goal, ...], Mapping[str, str]]:
    """The goals for a sandbox's limits where these are others than before, and why others could not be reached. Those
    that are to be performed are noted in `limited`."""
    cgroup = pod_limits.own_cgroup(vm, pod.sandbox)
    if cgroup is None:
        return (), misses
    sandbox = vm.reading.sandbox
    ours = limited.get(sandbox)
    one = pod_limits.wish(vm, cgroup, ours)
    perform = state.settings.sandboxes.mode is Mode.ENFORCE
    if one.why_not and perform:
        misses = put(misses, one.path, one.why_not)
    elif not one.values:
        misses = without(misses, (one.path,))
    if not one.values:
        return (), misses
    asked = pod_limits.noted(ours, one, cgroup) if perform else ours
    was = None if before is None else pod_limits.own_cgroup(before, pod.sandbox)
    if was is not None and before is not None and pod_limits.wish(before, was, ours) == one and asked == ours:
        return (), misses
    if asked is not None:
        limited[sandbox] = asked
    return pod_limits.goals(one, str(sandbox), perform), misses


def _settings(state: State) -> tuple[Sandboxes, Decision]:
    """Everything by the settings as they are now."""
    vms = _again(state)
    slice_ = replace(state.sandboxes, vms=vms)
    if state.settings.sandboxes.mode is not Mode.ENFORCE:
        return _forgotten(replace(slice_, misses={}), slice_.limited)
    goals, misses, limited = list[Goal](), slice_.misses, copied(slice_.limited)
    for vm in vms.values():
        more, misses = _limited(state, vm, None, _pod(state, vm.reading), misses, limited)
        goals += more
    slice_ = replace(slice_, misses=misses, limited=limited)
    return slice_, Decision(goals=tuple(goals)) if goals else NOTHING


def _reached(slice_: Sandboxes, event: ev.Reached) -> Sandboxes:
    written = copied(slice_.written)
    for target in event.written:
        written[target.where] = written.get(target.where, 0) + 1
    return replace(slice_, written=written, misses=without(slice_.misses, [one.where for one in event.targets]))


def _forgotten(slice_: Sandboxes, ended: Iterable[SandboxId]) -> tuple[Sandboxes, Decision]:
    """No limit of these is a goal any more."""
    paths = [slice_.limited[one].path for one in ended]
    if not paths:
        return slice_, NOTHING
    targets = tuple(target for path in paths for target in pod_limits.targets(path))
    slice_ = replace(slice_, limited=without(slice_.limited, ended))
    slice_ = replace(slice_, misses=without(slice_.misses, paths), written=without(slice_.written, paths))
    return slice_, Decision(forget=targets)


def _handlers(state: State, event: ev.HandlersRead) -> tuple[Sandboxes, Decision]:
    handlers = {one.name: one for one in event.handlers}
    if handlers == state.sandboxes.handlers:
        return state.sandboxes, NOTHING
    return _settings(replace(state, sandboxes=replace(state.sandboxes, handlers=handlers)))


def _missed(state: State, event: ev.Missed) -> tuple[Sandboxes, Decision]:
    missed = {target.where: f"{target.resource}: {why}" for target, why in event.why}
    return replace(state.sandboxes, misses={**state.sandboxes.misses, **missed}), NOTHING


def _unless_off(hear: Hear[State]) -> Hear[State]:
    """Switched off, the slice is given up at the next event that it hears."""

    def heard(state: State, event: ev.Event) -> tuple[object, Decision]:
        slice_ = state.sandboxes
        if state.settings.sandboxes.mode is not Mode.OFF:
            return hear(state, event)
        if not (slice_.vms or slice_.measured or slice_.version):
            return slice_, NOTHING
        # handlers are told only when they change, so they stay for when it is switched on again
        return Sandboxes(slice_.handlers), _forgotten(slice_, slice_.limited)[1]

    return heard


_WITH_A_MODE: Mapping[type[ev.Event], Hear[State]] = {
    ev.VmsRead: _read,
    ev.HandlersRead: _handlers,
    SettingsChanged: lambda state, _: _settings(state),
    ev.Reached: lambda state, event: (_reached(state.sandboxes, event), NOTHING),
    ev.Missed: _missed,
}
HEARS = {kind: _unless_off(hear) for kind, hear in _WITH_A_MODE.items()}
