"""What can be wrong with a node: a list of conditions with codes that do not change.

The headline of `status`, the page and `kubectl nodeward` is made of it, and each alert in `deploy` names one of
its codes. A condition is decided nowhere but in `people.verdict`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from nodeward.core.shown import Label, Metric, Rows, shown, shows


@dataclass(frozen=True, slots=True)
class HappenedRow:
    """Something that happened `count` times to a pod (empty for the node) and may be over. Times are RFC 3339."""

    code: str
    pod: str
    count: int
    since: str
    last: str
    why: str = ""


class Severity(Enum):
    """How urgent a condition is, the most urgent first. `info` is no reason for a headline."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 for the most urgent."""
        return _ORDER[self]


_ORDER = {severity: place for place, severity in enumerate(Severity)}


class Level(Enum):
    """The headline's colour: that of the most urgent condition."""

    GOOD = "good"
    ATTENTION = "attention"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that is wrong. `since` is RFC 3339, empty where that is not known; `pods` are those it is about."""

    code: str
    severity: Severity
    sentence: str
    since: str = ""
    remedy: str = ""
    pods: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CodeRow:
    """One code, whether or not the condition is there."""

    code: str = field(metadata=shown(Label()))
    severity: Severity = field(metadata=shown(Label()))
    is_there: bool = field(
        metadata=shown(
            Metric("nodeward_condition", "1 while this condition is on the node, else 0; info is in no headline.")
        )
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """The headline, and the conditions it comes from, the most urgent first."""

    level: Level
    sentence: str
    conditions: tuple[Condition, ...] = ()

    @property
    @shows(Rows(most=1024))
    def codes(self) -> tuple[CodeRow, ...]:
        """Every code."""
        found = dict.fromkeys(one.code for one in self.conditions)
        return tuple(CodeRow(code, severity, code in found) for code, (severity, _) in CODES.items())

    @property
    def pods(self) -> Mapping[str, tuple[Condition, ...]]:
        """What is wrong with each pod, keyed by NAMESPACE/POD; the pod with the most urgent condition first."""
        found = dict[str, tuple[Condition, ...]]()
        for one in self.conditions:
            if one.severity is not Severity.INFO:
                for pod in one.pods:
                    found[pod] = (*found.get(pod, ()), one)
        return found


_CRITICAL, _WARNING, _INFO = Severity

CODES: Mapping[str, tuple[Severity, str]] = {
    # who answers, and what can be read
    "daemon-away": (_CRITICAL, "Start `nodeward node`; new containers get no limit meanwhile."),
    "cannot-read": (_CRITICAL, "See `nodeward doctor` for what the cgroup tree lacks."),
    "not-synchronised": (_WARNING, "See `nodeward status --ready` and the log of the source that is named."),
    "watch-silent": (_WARNING, "Look at the API server and at the daemon's way to it."),
    "relay-away": (_CRITICAL, "Start `nodeward relay`; kubelet starts no container without it."),
    "runtime-away": (_CRITICAL, "Start the container runtime behind the relay."),
    "relay-undecided": (_CRITICAL, "Give relay and daemon one version and the same settings; see the relay's log."),
    "relay-troubled": (_WARNING, "See the relay's log."),
    "file-call-hangs": (_WARNING, "The log names the cgroup whose file hangs in the kernel."),
    "faults": (_WARNING, "Report the daemon's log: a decision failed by a fault of Nodeward."),
    "second-daemon": (_WARNING, "Let one node group or unit select this node; nodeward doctor says more."),
    "settings-refused": (_WARNING, "Mend the settings that are named; the older ones hold meanwhile."),
    "unwritten": (_WARNING, "Make room in state_dir and run_dir, or mend their disk; the log names each file."),
    "events-refused": (_INFO, "See the log for why the API server does not take Events."),
    # pods
    "vm-killed": (_CRITICAL, "Give the pod a larger memory limit, or its VM less memory (nodeward vms)."),
    "refused": (_WARNING, "The sentence has the reason; nodeward explain POD has the numbers."),
    "gate-shut": (_WARNING, "nodeward explain POD says what its gate waits for."),
    # limits
    "drift": (_WARNING, "Find out which other program writes these cgroups."),
    "not-enforced": (_WARNING, "nodeward explain POD says why."),
    "unsupported": (_WARNING, "Boot a kernel that can limit the resource, or accept pods without limits."),
    "charges-refused": (_WARNING, "Raise the limit of the pod, or let it ask for less."),
    "near-limit": (_INFO, "Raise the limit before the container is slowed by paging."),
    "node-full": (_WARNING, "Move pods to other nodes."),
    "orphaned-charge": (_INFO, "Find out which program outside of pods uses the resource."),
    "counter-untrusted": (_WARNING, "Restart the machine: the kernel's counter went below zero."),
    # keys
    "keys-sold-out": (_WARNING, "End VMs with keys, or move them; nodeward keys says who holds them."),
    "keys-oversold": (_WARNING, "nodeward doctor says which setting prevents it."),
    "keys-foreign": (_INFO, "nodeward keys says who uses keys outside of pods."),
    "keys-orphaned": (_WARNING, "End the VM whose cgroup was removed, or restart the machine."),
    "keys-stale": (_WARNING, "See the log for why the counters are not read."),
    "keys-refused": (_WARNING, "nodeward keys has the reason by which kubelet was refused."),
    "keys-withheld": (_WARNING, "nodeward keys has the reason; running VMs keep their keys."),
    "keys-not-served": (_WARNING, "nodeward keys says why kubelet does not read our list."),
    "keys-journal": (_CRITICAL, "Mend the folder run_dir: grants cannot be put on record."),
    "keys-journal-lost": (_WARNING, "Find out what removes files in run_dir."),
    "keys-quotes": (_WARNING, "Start the quote service; VMs cannot be attested meanwhile."),
    "keys-claims-wait": (_WARNING, "nodeward keys says what each claim waits for."),
    "keys-claims-away": (_WARNING, "nodeward keys says why; pods with claims of keys do not start meanwhile."),
    "keys-nfd": (_WARNING, "See nodeward keys for why our NodeFeature object is not as it should be."),
    # CPUs
    "cpus-claims-away": (_WARNING, "nodeward cpus says why; pods with claims of CPUs do not start meanwhile."),
    "cpus-not-held": (_WARNING, "nodeward cpus names the containers and says why."),
    "cpus-machine": (_WARNING, "Bring the CPUs back online, or change the settings of the policy."),
    "late-starts": (
        _WARNING,
        "nodeward cpus shows who is where; cpus.on_late: refuse keeps such programs from starting.",
    ),
    # VM sandboxes
    "vm-too-big": (_WARNING, "Raise the pod's memory limit or podFixed (nodeward vms shows the sum)."),
    "vm-tight": (_INFO, "nodeward vms shows the sum."),
    "vm-drift": (_WARNING, "nodeward vms names the processes and where they should be."),
    "vm-outside": (_WARNING, "Set sandbox_cgroup_only to true; deploy/policies forbids the annotation."),
    "vm-unread": (_WARNING, "nodeward vms says what could not be read; nodeward doctor names the file."),
    "vm-limit-missed": (_WARNING, "nodeward vms says why the limit could not be set."),
    "vm-overhead": (_INFO, "Set podFixed to the recommended overhead (nodeward vms --classes)."),
    "vm-unaccounted": (_INFO, "Raise kubelet's system-reserved as nodeward vms says."),
    # seen by the API server only
    "webhook-away": (_CRITICAL, "Look at the Deployment of the webhook and its certificate."),
    "webhook-passed-by": (_WARNING, "Look at the Deployment of the webhook and its certificate."),
}
"""Every code: how urgent it is, and what to do. The node's verdict has all but the last two."""
