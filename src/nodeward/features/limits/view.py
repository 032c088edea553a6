"""Makes the rows of limits from the state."""

import json
from collections.abc import Mapping

from nodeward.core.devices import SGX_NODES
from nodeward.core.events import MiscReading
from nodeward.core.modes import Mode
from nodeward.core.ports import Pace
from nodeward.core.refusal import Reason
from nodeward.core.times import rfc3339
from nodeward.core.workload import Amounts, PodUid, Source
from nodeward.features.limits import claims
from nodeward.features.limits.devices import is_given
from nodeward.features.limits.promise import EPC
from nodeward.features.limits.readings import FRESH_NS_PER_MS, REPAIR_WINDOW_NS, differs, standing
from nodeward.features.limits.rows import (
    CgroupRow,
    DeviceRow,
    EnclavesView,
    EpcClaimRow,
    EpcDeviceRow,
    ResourceRow,
    Standing,
)
from nodeward.features.limits.settings import GivenBy
from nodeward.features.limits.state import Devices, Wanted
from nodeward.features.limits.want import container_wanted, declared_of, faults_of
from nodeward.features.limits.words import rule_sentence
from nodeward.features.pods.found import name_of
from nodeward.features.root import State

ROWS_AT_ONCE = 16


def enclaves(state: State, _: int, __: Pace) -> EnclavesView | None:
    """What the node gives of SGX; None where the settings ask for nothing of it."""
    of, by_claim, given_by = state.limits.devices, state.limits.by_claim, state.settings.limits.devices
    sold, has_memory = claims.are_sold(state), bool(claims.sizes(state))
    if given_by is GivenBy.OFF and not (sold or by_claim.claims):
        return None
    devices = {one: path for one, path in SGX_NODES.items() if is_given(state, one)}
    values, promised = claims.values(state), by_claim.claims.values()
    memory = [
        EpcDeviceRow(name, size, values[name], sum([one.amounts.get(name, 0) for one in promised]))
        for name, size in claims.sizes(state).items()
    ]
    return EnclavesView(
        given_by.value,
        tuple(_device(of, resource, path, has_memory) for resource, path in devices.items()),
        tuple(memory) if sold else (),
        tuple(
            EpcClaimRow(one.title, str(one.uid), sum(one.amounts.values()), tuple(one.pods.values()), one.since_wall_ns)
            for one in promised
        ),
        (by_claim.driver is not None and by_claim.driver.registered) if sold else None,
        by_claim.fault or (by_claim.driver.why if by_claim.driver is not None else ""),
        state.limits.capacity.get(EPC, 0) > 0,
    )


def _device(of: Devices, resource: str, path: str, has_memory: bool) -> DeviceRow:
    there = of.seen is not None and any(one.path == path for one in of.seen.nodes)
    why = "" if there else of.seen.missing.get(path, "") if of.seen is not None else "not looked at yet"
    ids, told = json.loads(of.listed.get(resource, "[]")), of.plugins.get(resource)
    healthy = sum([is_healthy for _, is_healthy in ids])
    standing, plugin = (told.standing.value, told.why) if told is not None else ("", "")
    return DeviceRow(resource, path, there, why, healthy, standing, plugin, has_memory or resource in of.ever)


_FROM_API = (Source.API.value, Source.DISK.value)


def _elsewhere(state: State, now_ns: int) -> Amounts:
    """The root's usage beyond the pods'. A pod without a cgroup of its own is what its containers are."""
    limits = state.limits
    of_pods = dict.fromkeys(wanted.pod_uid for wanted in limits.wanted.values() if wanted.container_id is None)
    counted = [path for path, one in limits.wanted.items() if one.container_id is None or one.pod_uid not in of_pods]
    oldest_ns = now_ns - state.settings.period_ms * FRESH_NS_PER_MS
    if any(path not in limits.readings or limits.readings[path].at_ns < oldest_ns for path in counted):
        return {}
    inside = [limits.readings[path].reading.usage for path in counted]
    found: dict[str, int] = {}
    for name, used in limits.usage.items():
        amounts = [usage.get(name, 0) for usage in inside]
        if used >= 0 and all(amount >= 0 for amount in amounts):
            found[name] = max(0, used - sum(amounts))
    return found


def _stale_since(state: State) -> str:
    since_ns = state.pods.stale_since_wall_ns
    if not since_ns or state.pods.api_up:
        return ""
    return rfc3339(since_ns)


def without_cgroup(state: State) -> list[tuple[str, Wanted]]:
    """Containers whose cgroup nobody has told or found, each with an empty path: CRI has no field for it."""
    known = state.pods.containers.values()
    return [("", container_wanted(state, one)) for one in known if not one.container.cgroups_path]


def _rule(wanted: Wanted, annotated: Mapping[PodUid, None], faults: tuple[str, ...]) -> str:
    code = wanted.reason.code
    if code == "pod-spec-unknown" and wanted.pod_uid in annotated:
        code = "by-annotation"
    elif code == "none-declared" and faults:
        code = "none-readable"
    else:
        return rule_sentence(wanted.reason)
    return rule_sentence(Reason(code, wanted.reason.values))


def _row(
    state: State,
    path: str,
    wanted: Wanted,
    now_ns: int,
    annotated: Mapping[PodUid, None],
    counted: Mapping[str, None],
) -> CgroupRow:
    pods = state.pods
    sandbox_id = pods.sandbox_of.get(wanted.pod_uid)
    known = pods.sandboxes[sandbox_id] if sandbox_id is not None else None
    spec = pods.specs.get(wanted.pod_uid) if known is not None and known.by_cgroup else None
    home = spec.spec if spec is not None else known.sandbox if known is not None else None
    container = pods.containers.get(wanted.container_id) if wanted.container_id is not None else None
    shown = standing(state, path, wanted, now_ns)
    is_counted = shown is Standing.UNMANAGED and not wanted.values and wanted.pod_uid in counted
    misses = list(state.limits.misses.get(path, {}).values())
    faults = faults_of(state, wanted)
    repairs = [at for at in state.limits.repairs_ns.get(path, ()) if at > now_ns - REPAIR_WINDOW_NS]
    return CgroupRow(
        level="pod" if wanted.container_id is None else "container",
        namespace=home.namespace if home is not None else "",
        pod=(home.name if home is not None else "") or str(wanted.pod_uid),
        container=name_of(state, container) if container is not None else "",
        id=str(wanted.container_id or ""),
        cgroup=path,
        state=(Standing.COUNTED if is_counted else shown).value,
        source=wanted.source,
        rule=_rule(wanted, annotated, faults),
        resources=tuple(_resources(state, path, wanted, shown)),
        last_error=misses[0] if misses and shown is not Standing.ENFORCED else "",
        repairs=len(repairs),
        stale_since=_stale_since(state) if wanted.source in _FROM_API else "",
        faults=faults,
        image=container.container.image if container is not None else "",
    )


def _resources(state: State, path: str, wanted: Wanted, shown: Standing) -> list[ResourceRow]:
    read = state.limits.readings.get(path)
    reading = read.reading if read is not None else MiscReading()
    names = dict.fromkeys((*state.settings.limits.resources.values(), *wanted.values, *reading.usage))
    unsure = shown is Standing.DRIFT or shown is Standing.PENDING
    wrong = differs(state, wanted, reading) if unsure and read is not None else ()
    declared = declared_of(state, wanted)
    off = state.settings.limits.mode is Mode.OFF
    return [
        ResourceRow(
            resource=name,
            wanted=None if off else wanted.values.get(name),
            limit=reading.limit.get(name),
            usage=reading.usage.get(name),
            peak=reading.peak.get(name),
            refusals=reading.refusals.get(name),
            refusals_here=reading.refusals_local.get(name),
            state=_of_one(state, wanted, name, shown, wrong).value,
            taken_back=name in wanted.released,
            declared=declared.get(name),
        )
        for name in names
    ]


def _of_one(state: State, wanted: Wanted, name: str, shown: Standing, wrong: tuple[str, ...]) -> Standing:
    """Where one resource stands in a cgroup that is shown as this."""
    if shown in (Standing.UNKNOWN, Standing.UNMANAGED):
        return shown
    if name not in wanted.values:
        return shown if name in wrong else Standing.UNMANAGED
    if state.limits.capacity.get(name, 0) <= 0:
        return Standing.UNSUPPORTED
    if wrong and name not in wrong:
        return Standing.ENFORCED
    return shown
