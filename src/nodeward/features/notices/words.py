"""What a Kubernetes Event says: resource, container, value, rule, remedy. A pure function of the call."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from nodeward.core.decision import PodEvent
from nodeward.features.keys.refusals import REMEDIES
from nodeward.features.limits.promise import EPC

Value = str | int
UNITS = {EPC: " bytes"}


class Told(NamedTuple):
    """The words of an Event."""

    reason: str
    """One word in camel case, by which people and rules choose Events."""
    is_warning: bool
    note: str


def told(call: PodEvent) -> Told:
    """The words for a call."""
    of = f"container {call.container}" if call.container else "the pod as a whole" if call.pod else "this node"
    reason, is_warning, sentence = _SENTENCES[call.reason.code]
    return Told(reason, is_warning, sentence(of, *call.reason.values))


def _amount(resource: Value, value: Value) -> str:
    return f"{value}{UNITS.get(str(resource), '') if isinstance(value, int) else ''}"


def _charge_refused(of: str, resource: Value, name: Value, limit: Value, usage: Value, source: Value) -> str:
    amounts = f"is {_amount(resource, limit)} and {usage} are in use"
    if resource == EPC:  # whose counter tells how often the limit was met, and not what came of it
        happened = (
            f"The limit of {resource} of {of} was reached: it {amounts}. The kernel pages enclaves out to make room, "
            "which slows them, or refuses."
        )
    else:
        happened = f"The kernel refused {of} more {resource}: its limit {amounts}."
    return f"{happened} The limit is from {source}. Raise {name} in the pod's spec, or use less."


def _restored(of: str, resource: Value, _: Value, limit: Value, found: Value, source: Value) -> str:
    return (
        f"Something else had changed the limit of {resource} of {of} to {_amount(resource, found)}. Nodeward wrote "
        f"{_amount(resource, limit)} back, which is from {source}. Find out what else writes misc.max on this node; "
        "nodeward doctor names those it knows."
    )


def _set_late(of: str, resource: Value, _: Value, limit: Value, usage: Value, source: Value) -> str:
    return (
        f"Nodeward did not see the start of {of}, which ran without its limit of {resource}. Since now it is "
        f"{_amount(resource, limit)}, from {source}; what was charged before, {usage}, stays charged until it is freed."
    )


def _unsupported(of: str, resource: Value, name: Value, limit: Value, source: Value) -> str:
    return (
        f"The limit of {resource} of {of}, {_amount(resource, limit)} from {source}, is not enforced: this node's "
        f"kernel has no misc resource {resource}. Run the pod on a node whose kernel has it, or set "
        f"limits.unsupported to refuse, so that pods with {name} do not start here."
    )


def _controller_off(of: str, resource: Value, _: Value, limit: Value, source: Value) -> str:
    return (
        f"The limit of {resource} of {of}, {_amount(resource, limit)} from {source}, is not enforced: the misc "
        "controller is off in its cgroup. Nodeward tries to switch it on; nodeward doctor says what stands in the way."
    )


def _write_failed(of: str, resource: Value, _: Value, limit: Value, source: Value, why: Value) -> str:
    return (
        f"The limit of {resource} of {of}, {_amount(resource, limit)} from {source}, is not enforced: misc.max could "
        f"not be written ({why}). Nodeward goes on trying; nodeward explain has the details."
    )


def _drift_stays(of: str, resource: Value, _: Value, limit: Value, source: Value, found: Value) -> str:
    return (
        f"The limit of {resource} of {of} is {_amount(resource, found)} in the kernel and not "
        f"{_amount(resource, limit)}, which is from {source}: something else keeps writing misc.max, and Nodeward has "
        "repaired it three times in five minutes. End what writes it; nodeward doctor names those it knows."
    )


def _outside(of: str, resource: Value, _: Value, limit: Value, source: Value) -> str:
    return (
        f"The limit of {resource} of {of}, {_amount(resource, limit)} from {source}, is in the kernel and does not "
        "hold: the processes are not in this cgroup of the misc hierarchy (cgroup v1), since the OCI runtime does not "
        "join it. Install one that does (runc from 1.1.6 on) on this node and start the container anew, or use cgroup "
        "v2."
    )


def _uncounted(of: str, key: Value, resource: Value, code: Value, why: Value) -> str:
    return (
        f"No TEE key of kind {key} ({resource}) is given out on {of}: {why}. Pods that were given one keep it. Remedy: "
        f"{REMEDIES[str(code)]}."
    )


def _oversold(of: str, _: Value, what: Value, remedy: Value) -> str:
    return f"On {of} {what}. Remedy: {remedy}."


def _journal_refused(of: str, _: Value, why: Value) -> str:
    return (
        f"No TEE key is given out on {of}, since grants cannot be put on record: {why}. Pods that were given one keep "
        f"it. Remedy: {REMEDIES['journal']}."
    )


def _journal_lost(of: str, _: Value) -> str:
    return (
        f"The record of which TEE keys pods on {of} were given, grants.journal, was removed since the machine has "
        "started. Nodeward takes what kubelet names for given out, and gives out no more until kubelet has told of all "
        "of it. Find out what removes files in the folder run_dir of the daemon's settings."
    )


_SENTENCES: Mapping[str, tuple[str, bool, Callable[..., str]]] = {
    "charge-refused": ("ChargeRefused", True, _charge_refused),
    "limit-restored": ("LimitRestored", True, _restored),
    "limit-set-late": ("LimitSetLate", False, _set_late),
    "not-supported": ("LimitNotEnforced", True, _unsupported),
    "controller-off": ("LimitNotEnforced", True, _controller_off),
    "write-failed": ("LimitNotEnforced", True, _write_failed),
    "processes-outside": ("LimitNotEnforced", True, _outside),
    "drift-stays": ("LimitNotEnforced", True, _drift_stays),
    "keys-uncounted": ("KeysNotCounted", True, _uncounted),
    "keys-oversold": ("KeysOversold", True, _oversold),
    "journal-refused": ("KeysNotRecorded", True, _journal_refused),
    "journal-lost": ("KeysRecordLost", True, _journal_lost),
}
