"""Judges the facts of doctor: findings, each with its remedy. Pure; the facts are `people.doctor.machine`'.

Each area yields at least one finding, `ok` where nothing is wrong, so that what was not looked at shows as missing.
What could not be found out is said as such and never counts as well.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from nodeward.core.cgroup import Hierarchy
from nodeward.core.feature import Feature
from nodeward.core.finding import Finding, Severity, not_looked_at
from nodeward.features.all import FEATURES
from nodeward.features.cpus import findings as doctor_cpus
from nodeward.features.keys.findings import keys
from nodeward.features.limits.findings import CgroupFacts, Layout
from nodeward.features.limits.rows import LinesRow
from nodeward.features.podapi.findings import cold_plug
from nodeward.features.root import State
from nodeward.features.sandboxes.findings import sandboxes, sizing
from nodeward.people.doctor import cluster_findings
from nodeward.people.doctor.facts import ApiFacts, DaemonFacts, Facts, HookFacts, ProcessFacts, RuntimeFacts
from nodeward.people.doctor.relay_findings import relay
from nodeward.people.rows import NodeView

OK, NOTE, WARNING, ERROR = Severity.OK, Severity.NOTE, Severity.WARNING, Severity.ERROR
SKEW_S = 5.0
"""Tokens and certificates bear a few seconds; more is a clock that nobody sets."""
_CAP_DAC_OVERRIDE = 1 << 1
MULTI_LINE = {"runc": (1, 2), "crun": (1, 18)}
"""Since when an OCI runtime writes `misc.max` line by line, as the kernel wants it."""
_AT_ONCE = "cannot write several resources in one misc.max"
_NO_OCI = "neither runc nor crun was found in the usual folders"
_NRI_SINCE = {"containerd": (1, 7), "crio": (1, 26)}
_CDI_ON = (2,)
"""From which version containerd obeys CDI unless its settings say otherwise."""
_NEIGHBOURS = {
    "sgx-epc": (
        ERROR,
        "nri-plugins' sgx-epc sets misc.max too: NRI refuses a container for which two plugins do",
        "Remove it (helm uninstall, or its file in /opt/nri/plugins); Nodeward reads its annotations.",
    ),
    "intel-sgx-webhook": (
        WARNING,
        "Intel's SGX webhook changes pods with EPC; beside Nodeward's both change the same fields",
        "Keep one: delete its MutatingWebhookConfiguration once nodeward webhook is installed.",
    ),
    "intel-sgx-plugin": (NOTE, "Intel's SGX device plugin gives out the enclave devices; Nodeward works beside it", ""),
    "nri-policy": (NOTE, "a resource policy of nri-plugins gives containers CPUs, which Nodeward leaves alone", ""),
    "dra-driver-cpu": (NOTE, "dra-driver-cpu gives containers CPUs by claim, which Nodeward leaves alone", ""),
    "cri-rm": (
        WARNING,
        "CRI Resource Manager stands between kubelet and runtime; its updates can set container resources anew",
        "See that misc.max stays as written (nodeward status shows drift), or remove CRI Resource Manager.",
    ),
}


_MOUNT_MISC = (
    "Mount it with mount -t cgroup -o misc none {}/misc, or boot with systemd.unified_cgroup_hierarchy=1, so that pods "
    "are in the cgroup v2 tree."
)
_NO_MISC = "Boot a kernel with CONFIG_CGROUP_MISC=y: this one does not name the controller in /proc/cgroups."
_BY_HOOK = "do without NRI: set nri.enabled to false and install the OCI hook (docs/relay.md)"
_JOINS_MISC = (1, 1, 6)
"""runc of this version and newer puts a container's processes into the misc hierarchy of cgroup v1."""


def findings(facts: Facts) -> tuple[Finding, ...]:
    """All findings, in the order of the areas."""
    return tuple(
        finding
        for area in (
            _settings(facts.settings_faults),
            _cgroups(facts.cgroups, facts.resources, facts.kernel),
            _runtime(facts.runtime, len(facts.resources), facts.daemon.joins),
            _joins(facts.runtime, facts.cgroups.tree),
            _hook(facts.hook),
            cluster_findings.api(facts.api),
            cluster_findings.classes(facts.api),
            cluster_findings.claims(facts.api),
            _process(facts.process),
            _clock(facts.synchronised, facts.api),
            _others(facts),
            _daemon(facts.daemon),
            *(_of_rows(feature, facts.view) for feature in FEATURES),
            keys(facts.keys),
            relay(facts.relay),
            sandboxes(facts.vms),
            sizing(facts.vms, facts.relay.sizing, facts.relay.wanted, facts.relay.where),
            cold_plug(facts.vms, facts.cold_plug),
            (
                Finding("probe-failed", WARNING, f"{name} could not be looked at: {why}", name, "See what holds it up.")
                for name, why in facts.failed.items()
            ),
        )
        for finding in area
    )


def _of_rows(feature: Feature[State], view: NodeView | None) -> Iterable[Finding]:
    """What the feature finds in its own rows of the daemon's picture."""
    rows = getattr(view, feature.shown, None)
    return () if feature.findings is None or rows is None else feature.findings(rows)


def worst(found: Iterable[Finding]) -> Severity:
    """The severity of the worst finding; OK for none."""
    return max((finding.severity for finding in found), key=lambda severity: severity.rank, default=OK)


def _settings(faults: tuple[str, ...]) -> Iterator[Finding]:
    if faults:
        yield Finding(
            "settings-faults",
            ERROR,
            f"the settings have faults, so the defaults were used here: {'; '.join(faults)}",
            "settings",
            "Mend what is named; nodeward config check FILE prints the same of a file.",
        )


def _cgroups(facts: CgroupFacts, resources: tuple[str, ...], kernel: str) -> Iterator[Finding]:
    bad = _layout(facts)
    if facts.tree.version == 1:
        yield from _v1(facts, resources)
        return
    if bad is not None:
        yield bad
        return
    if facts.controllers is None:
        return  # the probe's failure is a finding
    if "misc" not in facts.controllers:
        yield Finding(
            "no-misc-controller",
            ERROR,
            f"the misc controller is not there (kernel {kernel or 'unknown'}): no limit can be enforced",
            f"{facts.root}/cgroup.controllers",
            "Boot a kernel with CONFIG_CGROUP_MISC=y, and without cgroup_disable=misc or misc mounted as cgroup v1.",
        )
        return
    if facts.read_only:
        yield _read_only(facts.root)
    yield from _capacity(facts, resources)
    yield _delegation(facts)


def _layout(facts: CgroupFacts) -> Finding | None:
    """Why this tree cannot be used at all."""
    match facts.layout:
        case Layout.UNKNOWN if facts.controllers is None:
            return None
        case Layout.NONE:
            but = f", but cgroup v2 at {facts.v2_at}" if facts.v2_at else ""
            what = f"no cgroup tree is mounted there{but}: no limit can be read or enforced"
            remedy = "Set cgroups.root to where the cgroup trees are mounted, or mount cgroup2 there."
        case Layout.V1:
            what = "the node has cgroup v1 only, and misc is in none of its trees"
            remedy = _MOUNT_MISC.format(facts.root) if facts.tree.fault else _NO_MISC
        case Layout.HYBRID:
            what = (
                f"the node is hybrid: cgroup v1 at {facts.root}, and cgroup v2 at {facts.v2_at}, "
                "and misc is in none of its trees"
            )
            remedy = _MOUNT_MISC.format(facts.root) if facts.tree.fault else _NO_MISC
        case _ if not facts.is_real_root:
            what = "this is not the host's cgroup root but a cgroup below it (a private cgroup namespace)"
            remedy = "Run on the host, or mount the host's /sys/fs/cgroup into the pod."
            return Finding("cgroup-namespace", ERROR, what, facts.root, remedy)
        case _:
            return None
    return Finding(f"cgroup-{facts.layout.value}", ERROR, what, facts.root, remedy)


def _v1(facts: CgroupFacts, resources: tuple[str, ...]) -> Iterator[Finding]:
    """Findings of a node whose misc controller is a hierarchy of cgroup v1."""
    yield Finding(
        "misc-v1",
        NOTE,
        "misc is mounted as cgroup v1: a runtime can set no limit there, so the daemon writes limits at the start",
        facts.tree.root,
        "Where it must hold while the daemon is away, use the OCI hook, or cgroup v2 "
        "(systemd.unified_cgroup_hierarchy=1).",
    )
    if facts.read_only:
        yield _read_only(facts.tree.root)
    yield from _capacity(facts, resources)


def _read_only(where: str) -> Finding:
    remedy = "Mount it writable (systemd: ReadWritePaths=/sys/fs/cgroup, ProtectControlGroups=no)."
    return Finding("cgroups-read-only", ERROR, "the cgroup tree is mounted read-only here", where, remedy)


def _capacity(facts: CgroupFacts, resources: tuple[str, ...]) -> Iterator[Finding]:
    where = f"{facts.tree.root or facts.root}/misc.capacity"
    if facts.capacity is None:
        yield Finding("capacity-unread", WARNING, "the kernel's capacity cannot be read", where, "Run doctor as root.")
        return
    for name in resources:
        amount = facts.capacity.get(name, 0)
        if amount > 0:
            yield Finding("resource", OK, f"the kernel limits {name}, and has {amount} of it", where)
            continue
        there = ", ".join(facts.capacity) or "none"
        yield Finding(
            "no-resource",
            WARNING,
            f"the kernel has no {name} to give (misc resources here: {there}): it cannot be limited",
            where,
            "Boot a kernel that has it, on hardware that has it; sgx_epc is in no mainline kernel.",
        )


def _delegation(facts: CgroupFacts) -> Finding:
    lacking = [
        path
        for path, controllers in ((facts.root, facts.handed_down), (facts.kubepods, facts.kubepods_controllers))
        if path and controllers is not None and "misc" not in controllers
    ]
    if not lacking:
        below = facts.kubepods or "no pod's cgroup yet"
        return Finding("misc-delegated", OK, f"the misc controller is handed down ({below})", facts.root)
    return Finding(
        "misc-not-delegated",
        NOTE,
        "the misc controller is not handed down to pods",
        ", ".join(lacking),
        "Nothing to do where Nodeward enforces: it writes +misc to cgroup.subtree_control from the root down.",
    )


def version(text: str) -> tuple[int, ...]:
    """The first version number in what a program says of itself; empty for none."""
    found = re.search(r"(?<![\w.])v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?", text)
    return tuple(int(part) for part in found.groups() if part) if found else ()


def kind_of(place: str, text: str) -> str:
    """Which program this is, by its name, or by what it says where it goes by a path; empty for none that is known."""
    said = place if "/" not in place else text.partition(" version ")[0]
    return said if said in MULTI_LINE or said in _NRI_SINCE else ""


def lines(versions: Mapping[str, str]) -> LinesRow:
    """What becomes of `nri.multi_line: true` where OCI runtimes say this of themselves. Each that is there has to be
    new enough; where none is seen the operator's word holds."""
    oci = [(kind, version(text)) for place, text in versions.items() if (kind := kind_of(place, text)) in MULTI_LINE]
    known = [(f"{kind} {_dotted(found)}", found >= MULTI_LINE[kind]) for kind, found in oci if found]
    if old := [name for name, is_new in known if not is_new]:
        return LinesRow("held", f"{', '.join(old)} {_AT_ONCE}")
    nothing = [place for place, text in versions.items() if "/" in place and not text]
    if silent := [*(kind for kind, found in oci if not found), *nothing]:
        return LinesRow("held", f"{', '.join(silent)} does not tell its version")
    if not oci:
        return LinesRow("unverified", _NO_OCI)
    return LinesRow("on", ", ".join(name for name, _ in known))


def _runtime(facts: RuntimeFacts, resources: int, joins: bool) -> Iterator[Finding]:
    yield from _nri(facts)
    yield from _cdi(facts)
    for place, text in (facts.versions or {}).items():
        program, found = kind_of(place, text), version(text)
        needed = MULTI_LINE.get(program) or _NRI_SINCE.get(program)
        if needed is None:
            continue
        least = _dotted(needed)
        if not found:
            yield Finding("version-unknown", NOTE, f"{program} does not tell its version", place, "")
        elif found >= needed:
            yield Finding("version", OK, f"{program} {_dotted(found)}", place)
        elif program in _NRI_SINCE:
            what = f"{program} {_dotted(found)} has no NRI (from {least} on)"
            remedy = f"Install {program} {least} or newer, or {_BY_HOOK}."
            yield Finding("runtime-without-nri", _grave(facts), what, place, remedy)
        else:
            newer = f"{program} {least}"
            yield _old(place, f"{program} {_dotted(found)}", newer, facts.multi_line, joins, resources)
    if facts.versions is None:
        return
    would = lines(facts.versions)
    if would.why == _NO_OCI:
        yield Finding("no-oci-runtime", NOTE, _NO_OCI, "programs", "")
    elif resources > 1 and not facts.multi_line and would.state == "on":
        yield Finding(
            "multi-line-off",
            NOTE,
            "the runtime is given the first limit only, and the others are written at a container's start",
            "nri.multi_line",
            "Set it to true if no RuntimeClass leads to an older runc or crun than those found here.",
        )


def _old(place: str, found: str, least: str, multi_line: bool, joins: bool, resources: int) -> Finding:
    """An OCI runtime that writes `misc.max` at once, which the kernel refuses where it has several lines. `joins`: the
    daemon does not see it, and lets it write several."""
    if resources < 2:
        remedy = "Nothing to do while limits.resources names one resource."
        return Finding("runtime-old", NOTE, f"{found} {_AT_ONCE} (from {least} on)", place, remedy)
    remedy = f"Set nri.multi_line to false, or install {least} or newer."
    if multi_line and joins:
        what = f"{found} {_AT_ONCE}, and the daemon, which did not see it, has it do so: two limits fail a container"
        return Finding("multi-line-refused", ERROR, what, place, remedy)
    if multi_line:
        what = f"{found} {_AT_ONCE}, so nri.multi_line is not followed: all but the first limit are written directly"
        return Finding("multi-line-held", WARNING, what, place, remedy)
    remedy = f"Leave nri.multi_line false, or install {least} or newer."
    return Finding("runtime-old", WARNING, f"{found} {_AT_ONCE} (from {least} on)", place, remedy)


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in numbers)


def _joins(facts: RuntimeFacts, tree: Hierarchy) -> Iterator[Finding]:
    found = version((facts.versions or {}).get("runc", ""))
    if tree.version == 1 and found and found < _JOINS_MISC:
        shown, least = ".".join(map(str, found)), ".".join(map(str, _JOINS_MISC))
        what = f"runc {shown} does not join the misc hierarchy (from {least} on): limits hold none of its processes"
        yield Finding("runtime-outside-misc", ERROR, what, "runc", f"Install runc {least} or newer, or use cgroup v2.")


def _cdi(facts: RuntimeFacts) -> Iterator[Finding]:
    found = version((facts.versions or {}).get("containerd", ""))
    if not facts.cdi_wanted or facts.cdi or (facts.cdi is None and not (found and found < _CDI_ON)):
        return
    what = "containerd does not obey CDI by its settings: a container with a claim is not given its device, or not made"
    remedy = "Set enable_cdi to true in the section of the CRI plugin in containerd's settings, and restart it."
    yield Finding("cdi-off", ERROR, what, f"containerd {_dotted(found)}".strip(), remedy)


def _nri(facts: RuntimeFacts) -> Iterator[Finding]:
    if facts.nri_off_in:
        yield Finding(
            "nri-off",
            _grave(facts),
            "NRI is switched off in the runtime's settings",
            facts.nri_off_in,
            f"Switch it on (nodeward setup runtime --dry-run shows how), or {_BY_HOOK}.",
        )
    elif facts.nri_there is False:
        yield Finding(
            "nri-no-socket",
            ERROR,
            "the runtime's NRI socket is not there: limits come late, by cgroups alone",
            facts.nri_socket,
            f"Start the runtime, switch NRI on in it (nodeward setup runtime), correct nri.socket, or {_BY_HOOK}.",
        )
    elif facts.nri_there:
        yield Finding("nri", OK, "the runtime's NRI socket is there", facts.nri_socket)


def _grave(facts: RuntimeFacts) -> Severity:
    """What the lack of NRI is: nothing to mend where the settings do not want it (nri.enabled is false)."""
    return NOTE if facts.nri_there is None else ERROR


def _hook(facts: HookFacts) -> Iterator[Finding]:
    """The OCI hook: wanted by the settings, or left behind by somebody who no longer wants it."""
    where = ", ".join(facts.installed_in)
    if facts.missing:
        what = f"the OCI hook is to be called, and is not there: {', '.join(facts.missing)}; no container starts so"
        yield Finding("hook-program", ERROR, what, where, "Install it there, or take it out of these files.")
    if facts.wanted and not where and facts.unread_in:
        what = "hook.enabled is true, but the OCI hook is in a folder of hooks.d into which no runtime here looks"
        remedy = (
            "Move it to a folder that hooks_dir names in crio.conf (to /usr/share/containers/oci/hooks.d if it names "
            "none), or name its folder there; one that the runtime's command line names is not seen."
        )
        yield Finding("hook-not-read", WARNING, what, ", ".join(facts.unread_in), remedy)
    elif facts.wanted and not where:
        what = "hook.enabled is true, but the OCI hook is in no file of hooks.d, CDI or containerd's base specs"
        yield Finding("hook-not-installed", WARNING, what, "hook.enabled", "Install it as docs/relay.md says.")
    if facts.wanted and not facts.socket_there:
        what = "the socket that the OCI hook asks is not there: it goes by what the daemon left, and annotations"
        remedy = "Start nodeward node with hook.enabled, or correct hook.folder."
        yield Finding("hook-no-socket", WARNING, what, facts.socket, remedy)
    if facts.wanted and where and facts.socket_there and not facts.missing:
        yield Finding("hook", OK, "the OCI hook is installed, and its socket is there", where)
    if facts.wanted is False and not where:
        yield Finding("hook", OK, "the OCI hook is neither wanted nor installed", "hook.enabled")
    if facts.wanted is False and where:
        what = "the OCI hook is installed, but hook.enabled is false: it knows only annotations and what was left"
        yield Finding("hook-off", NOTE, what, where, "Set hook.enabled to true, or remove the hook.")


def _process(facts: ProcessFacts) -> Iterator[Finding]:
    if facts.uid is None:
        return
    where = f"user {facts.uid}"
    may_write = bool((facts.capabilities or 0) & _CAP_DAC_OVERRIDE)
    if facts.host_root is False:
        what = "this process is in a user namespace: the host's files are not its own"
        yield Finding("user-namespace", ERROR, what, where, "Run without one (hostUsers: true in a pod).")
    elif facts.uid != 0 and not may_write:
        what = "not root: limits belong to root, and much of this cannot be looked at"
        yield Finding("not-root", ERROR, what, where, "Run doctor, and the daemon, as root.")
    else:
        yield Finding("privileges", OK, "may write root's files; no further capability is needed", where)


def _clock(synchronised: bool | None, api: ApiFacts) -> Iterator[Finding]:
    remedy = "Run a time service such as chronyd or systemd-timesyncd."
    if synchronised is False:
        what = "the kernel's clock is not synchronised"
        yield Finding("clock-unsynchronised", WARNING, what, "clock", remedy)
    elif synchronised:
        yield Finding("clock", OK, "the kernel's clock is synchronised", "clock")
    if api.behind_s is not None and abs(api.behind_s) > SKEW_S:
        way = "behind" if api.behind_s > 0 else "ahead of"
        what = f"this clock is {abs(api.behind_s):.0f} s {way} the API server's"
        yield Finding("clock-skew", WARNING, what, api.where, remedy)


def _others(facts: Facts) -> Iterator[Finding]:
    for neighbour in dict.fromkeys((*facts.neighbours, *cluster_findings.neighbours(facts.api))):
        if doctor_cpus.is_left(neighbour):
            yield from doctor_cpus.left(facts.cpus, neighbour)
        elif (owner := doctor_cpus.owner(facts.cpus, neighbour)) is not None:
            yield owner
        else:
            severity, what, remedy = _NEIGHBOURS[neighbour.name]
            yield Finding(neighbour.name, severity, what, neighbour.seen_at, remedy)
    yield from cluster_findings.ours(facts.api)
    yield from doctor_cpus.cpus(facts.cpus)
    yield from not_looked_at(facts.api.where, facts.api.unlisted)


def _daemon(facts: DaemonFacts) -> Iterator[Finding]:
    if facts.answers is None:
        return
    if not facts.answers:
        what = "nodeward node does not answer on this machine"
        yield Finding(
            "daemon-away", NOTE, what, facts.where, "Start it, or name the nodeward.sock of its run_dir by --socket."
        )
        return
    if not facts.not_ready and not facts.settings_faults:
        yield Finding("daemon", OK, "nodeward node runs and is ready", facts.where)
    if facts.not_ready:
        what = f"nodeward node is not ready: {', '.join(facts.not_ready)}"
        yield Finding("daemon-not-ready", WARNING, what, facts.where, "See nodeward status --ready.")
    if facts.second:
        what = f"a second daemon waits on this node, and decides nothing until this one ends: {facts.second}"
        remedy = "Two nodeGroups of the chart, or a unit and a DaemonSet, select this node: change one nodeSelector."
        yield Finding("daemon-second", WARNING, what, facts.where, remedy)
    if facts.no_metrics:
        what = f"nodeward node serves no metrics: {facts.no_metrics}"
        remedy = "The daemon tries that address again by itself; it takes another metrics.listen at its next start."
        yield Finding("daemon-metrics", WARNING, what, facts.where, remedy)
    if facts.settings_faults:
        what = f"nodeward node refused newer settings, with faults at {', '.join(facts.settings_faults)}"
        yield Finding("daemon-settings", WARNING, what, facts.where, "Mend them and reload the daemon.")
    if facts.object_faults:
        what = f"nodeward node refused the policy object of this node, with faults at {', '.join(facts.object_faults)}"
        remedy = "Mend the object; nodeward status and the object's own status have the reasons."
        yield Finding("daemon-policy-object", WARNING, what, facts.where, remedy)
    if facts.no_zones:
        what = f"this node's NodeResourceTopology object is not as it should be: {facts.no_zones}"
        remedy = (
            "Let nodeward alone write it: run neither NFD's topology updater nor an nri-plugins policy on the node."
        )
        yield Finding("daemon-topology-object", WARNING, what, facts.where, remedy)
    if facts.no_epc:
        what = f"sgx.intel.com/epc in this node's status is not what there is: {facts.no_epc}"
        remedy = "See docs/claims.md: deploy/node/node-epc.yaml has the rights, and one program alone writes it."
        yield Finding("daemon-node-epc", WARNING, what, facts.where, remedy)
