"""Sentences about limits, and amounts of misc resources for people. Bytes are in binary units: a whole number of them
(`4Mi`) is exact, one with a point (`3.62Mi`) is cut; JSON has every byte."""

from nodeward.core.cgroup import Hierarchy
from nodeward.core.modes import Mode
from nodeward.core.quantity import binary_text
from nodeward.core.refusal import Reason
from nodeward.core.workload import SHORT_ID
from nodeward.features.limits.rows import (
    MAX_REPAIRS,
    CgroupRow,
    DeviceRow,
    EnclavesView,
    ResourceRow,
    Standing,
    pod_name,
)

_RULES = {
    "declared": "The container declares this limit.",
    "undeclared": "The pod declares the resource and this container does not: it gets 0, or it could use its "
    "neighbours' share.",
    "strict": "Neither pod nor container declares the resource, and limits.strict is on: it gets 0.",
    "nameless": "Only the container's cgroup is known: the runtime has told nothing of it. Its name comes with the "
    "pod's status; until then the pod's budget holds.",
    "pause": "Only the cgroup is known, and every container of the pod is known otherwise: it is the pod's own (pause) "
    "container.",
    "none-declared": "Nothing is declared, so nothing is limited.",
    "none-readable": "What is declared could not be read and counts as undeclared, so nothing is limited.",
    "pod-spec-unknown": "The pod's spec is not known yet, and until it is the pod's own cgroup is left alone.",
    "by-annotation": "Its containers have their limits by annotation. The pod's own cgroup is left alone until its "
    "spec is known, since an annotation does not tell the order of init containers.",
    "budget": "The pod's budget: the larger of the biggest init step and the sum of sidecars and containers, plus the "
    "RuntimeClass overhead (KEP-753).",
}


_STATES = {
    Standing.UNMANAGED: "Nodeward sets no limit on this cgroup.",
    Standing.COUNTED: "No limit is wanted of this cgroup. The pod's TEE keys are counted (nodeward keys).",
    Standing.UNKNOWN: "What is wanted is not known yet, because the pod or the container's name is not; it is mended "
    "when the API server tells of it.",
    Standing.UNSUPPORTED: "This kernel has no such resource (it is not in misc.capacity), so the limit cannot be "
    "enforced. The container runs and is shown as unenforced.",
    Standing.CONTROLLER_OFF: "The cgroup has no misc files: its parent does not pass the misc controller on. Nodeward "
    "enables it and tries again.",
    Standing.ENFORCED: "The kernel reads back the wanted limit.",
    Standing.DRIFT: f"The kernel's limit differs from the wanted one. It is repaired at most {MAX_REPAIRS} times in "
    "five minutes; if it stays, something else writes misc.max here.",
    Standing.PENDING: "What is wanted is decided, and the kernel has not been read since. This passes with the "
    "next reading.",
    Standing.OUTSIDE: "The kernel reads back the wanted limit, but it does not hold: the container's processes are not "
    "in this cgroup of the misc hierarchy (cgroup v1), since its runtime does not join it (runc does from 1.1.6 on).",
    Standing.STALE: "The cgroup has not been read for longer than two and a half periods.",
    Standing.RELAYED: "The runtime was given this limit through the relay when the container was created or updated. "
    "Its cgroup is not found yet, so that the kernel is not read back.",
}


_ONLY_SHOWN = "limits.mode is observe: Nodeward decides and shows, and writes nothing."


def rule_sentence(reason: Reason) -> str:
    """The rule behind a wanted value."""
    if reason.code == "pod-unknown":
        return f"Nobody knows this pod; limits.unknown_pod is {reason.values[0]}."
    return _RULES.get(reason.code, f"{reason.code} {' '.join(str(value) for value in reason.values)}".strip())


def tree_sentences(tree: Hierarchy) -> list[str]:
    """What the node's cgroup tree means for all its pods, where that matters."""
    if tree.fault:
        return [f"node: no limit can be counted or set: {tree.fault}."]
    if tree.version != 1:
        return []
    return [
        f"node: misc is mounted as cgroup v1 at {tree.root}. A runtime can set no misc limit there, so each limit is "
        "written at the container's start, by the daemon or by the OCI hook."
    ]


def row_sentences(row: CgroupRow, mode: str, version: int) -> list[str]:
    """All sentences on one cgroup. `version` is that of cgroups."""
    part = row.container or row.id[:SHORT_ID]
    name = pod_name(row) + (f"/{part}" if part else "")
    lines = [f"{row.level} {name}: {row.state}", *([f"  cgroup {row.cgroup}"] if row.cgroup else [])]
    for resource in row.resources:
        if resource.is_idle:
            continue
        lines += [f"  {sentence}" for sentence in _resource_sentences(resource, row, mode)]
    lines.append(f"  Rule: {row.rule}")
    lines += [f"  Fault: {fault}; it counts as undeclared." for fault in row.faults]
    stale = f", stale since {row.stale_since}: the API server does not answer" if row.stale_since else ""
    lines.append(f"  Source: {row.source}{stale}.")
    lines.append(f"  State: {_state_sentence(row, mode, version)}")
    if row.repairs:
        lines.append(f"  Repaired {row.repairs} time(s) in the last five minutes.")
    if row.last_error:
        lines.append(f"  The last write failed: {row.last_error}.")
    return lines


def _state_sentence(row: CgroupRow, mode: str, version: int) -> str:
    """Where the cgroup stands, of several resources each by its name."""
    state = Standing(row.state)
    if state is Standing.UNMANAGED and mode == Mode.OBSERVE.value:
        return _ONLY_SHOWN
    if state is Standing.CONTROLLER_OFF and version == 1:
        return "The cgroup is not in the misc hierarchy (cgroup v1) yet. Nodeward makes it there and tries again."
    lacking = [one.resource for one in row.resources if one.state == Standing.UNSUPPORTED.value]
    if state is Standing.ENFORCED and lacking:
        held = [one.resource for one in row.resources if one.state == Standing.ENFORCED.value]
        return f"The kernel reads back the wanted limit of {', '.join(held)}, and not of {', '.join(lacking)}."
    return _STATES[state]


def _standing_sentences(one: ResourceRow, row: CgroupRow, mode: str) -> list[str]:
    """Where one resource stands, if that is not what is said of the whole cgroup."""
    if one.state == Standing.UNSUPPORTED.value != row.state:
        return [f"{one.resource}: {one.state}. {_STATES[Standing.UNSUPPORTED]}"]
    if one.state != Standing.UNMANAGED.value or one.limit is None:
        return []
    observed = mode == Mode.OBSERVE.value
    if one.taken_back:
        then = "and it stays, since limits.mode is observe" if observed else "and it is taken back"
        return [f"{one.resource}: {one.state} (last written by us). Nothing is wanted any more, {then}."]
    if observed and one.limit == one.wanted:
        return [f"{one.resource}: {one.state} (last written by us, or by another that wants the same). It stays."]
    if one.wanted is None:
        return [
            f"{one.resource}: {one.state} (last written by us in an earlier life of the daemon, or by another). "
            "Nothing is wanted, and nothing proves whose it is: it stays. nodeward uninstall lifts what is on its list."
        ]
    return []


def _resource_sentences(row: ResourceRow, of: CgroupRow, mode: str) -> list[str]:
    wanted = "no limit is wanted" if row.wanted is None else f"{row.wanted} is wanted"
    if row.declared != row.wanted:
        wanted = f"{'nothing' if row.declared is None else row.declared} is declared, {wanted}"
    if not of.cgroup:
        return [f"{row.resource}: {wanted}; the kernel is not read here."]
    limit = "the kernel has no limit" if row.limit is None else f"the kernel's limit is {row.limit}"
    lines = [f"{row.resource}: {wanted}, {limit}, {_shown(row.usage)} in use, peak {_shown(row.peak)}."]
    if row.refusals:
        here = row.refusals_here or 0
        lines.append(
            f"{row.resource}: {row.refusals} charge(s) refused here or below, {here} by this level's own limit."
        )
    return lines + _standing_sentences(row, of, mode)


def _shown(value: int | None) -> str:
    if value is None:
        return "an unknown amount"
    return str(value) if value >= 0 else f"{value} (the kernel's counter went below zero)"


def enclave_sentences(view: EnclavesView) -> list[str]:
    """What the node gives of SGX, a line for each device node and each device of memory."""
    lines = [_device_sentence(one, view.given_by) for one in view.devices]
    if view.registered is not None:
        driver = "registered with kubelet" if view.registered else f"not registered with kubelet ({view.driver})"
        held = "" if view.enforced else "; this kernel can hold no limit of it"
        lines.append(f"EPC by claim: {len(view.claims)} claims, our driver is {driver}{held}")
    for one in view.memory:
        published, size, promised = (amount(_EPC, value) for value in (one.published, one.size, one.promised))
        lines.append(f"EPC device {one.device}: claims may have {published} of {size}, and have {promised}")
    return lines


def _device_sentence(one: DeviceRow, given_by: str) -> str:
    there = "is there" if one.there else f"is missing ({one.why})"
    if given_by == "nri" and not one.standing and not one.ids and one.resource.endswith("/enclave"):
        return f"SGX device {one.path} {there}; NRI gives it"
    why = f": {one.plugin}" if one.plugin else ""
    return f"SGX device {one.path} {there}; {one.ids} ids of {one.resource}, plugin {one.standing or 'not begun'}{why}"


_EPC = "sgx_epc"
_BYTES = (_EPC,)


def amount(resource: str, value: int | None) -> str:
    """A value for people: `-` where it is not known, bytes in binary units."""
    if value is None:
        return "-"
    if resource not in _BYTES or value < 1024:
        return str(value)
    exact = binary_text(value)
    if not exact.isdigit() and len(exact) <= len("1023Mi"):
        return exact
    size, unit = 1024, "Ki"
    for bigger in ("Mi", "Gi", "Ti"):
        if value >= size * 1024:
            size, unit = size * 1024, bigger
    places = 2 if value < 100 * size else 1
    return f"{value * 10**places // size / 10**places:.{places}f}{unit}"
