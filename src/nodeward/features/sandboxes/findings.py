"""Findings on what starts VMs: Kata's configuration against the RuntimeClasses, and what a pod's author may change.

Pure, as `people.doctor.findings` is. A handler is judged by the files of the runtime and of Kata; what these do not say
is not judged.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodeward.core.annotations import KATA_CONFIG, KATA_ONLY
from nodeward.core.finding import Finding, RuntimeClass, Severity, Unlisted, not_looked_at
from nodeward.core.modes import Mode
from nodeward.core.quantity import size_text
from nodeward.core.vms import Handler, Profile
from nodeward.features.sandboxes.headroom import USUAL
from nodeward.features.sandboxes.mode import handed_on, mode, of_crio
from nodeward.features.sandboxes.settings import SizingSettings
from nodeward.features.sandboxes.size import grows
from nodeward.features.sandboxes.sizing import why_not
from nodeward.features.sandboxes.values import DRAGONBALL, ModeSaid
from nodeward.features.sandboxes.ways import missing_defaults, no_queues, way
from nodeward.features.sandboxes.words import shown


@dataclass(frozen=True, slots=True)
class VmFacts:
    """What starts VMs on this node. `handlers` by the files of the runtime and of Kata, None where nobody looked;
    `classes` and `policies` as in ApiFacts, `where` is the API server. `version` of cgroups; 0 where not known."""

    handlers: tuple[Handler, ...] | None = None
    classes: tuple[RuntimeClass, ...] | Unlisted | None = None
    policies: tuple[str, ...] | None = None
    where: str = ""
    version: int = 0


OK, NOTE, WARNING, ERROR = Severity.OK, Severity.NOTE, Severity.WARNING, Severity.ERROR


def sizing(vms: VmFacts, rule: SizingSettings, held: tuple[str, ...] | None, relay: str) -> Iterator[Finding]:
    """Findings where sizes are to be given: on the relay, and one on each handler. `held`: what the relay at the socket
    `relay` holds calls for, None where it does not answer."""
    if rule.mode is Mode.OFF:
        return
    if held is None or "sizing" not in held:
        what = "no relay answers" if held is None else "the relay runs with sizing.mode off"
        remedy = "Start nodeward relay as kubelet's runtime endpoint, or restart it with these settings."
        yield Finding("sizing-no-relay", WARNING, f"sizing.mode is {rule.mode.value}, and {what}", relay, remedy)
    for handler in vms.handlers or ():
        if not rule.handlers or handler.name in rule.handlers:
            yield _way(handler, why_not(handler.name, handler, rule), rule.queues)
    for name in rule.handlers:
        if vms.handlers is not None and name not in [one.name for one in vms.handlers]:
            what = f"whether Kata obeys sizes of the handler {name} is unknown: no configuration here names it"
            yield Finding(
                "sizing-unknown", WARNING, what, "sizing.handlers", "Correct the name, or leave the list empty."
            )


def _way(handler: Handler, why: str, queues: bool) -> Finding:
    where = f"handler {shown(handler.name)}" + (f", {shown(handler.config)}" if handler.config else "")
    lacks, no_queue = missing_defaults(handler), no_queues(handler)
    annotated = f"annotations of a pod: {f'not obeyed, {lacks}' if lacks else 'obeyed'}"
    if queues:
        annotated = f"queues of devices: {f'not obeyed, {no_queue}' if no_queue else 'obeyed'}; {annotated}"
    if not why and handler.fault:
        why = "its configuration was not read whole, so this is unknown"
    if not why:
        what = f"VMs take their size from what the relay sends ({way(handler).value}); {annotated}"
        return Finding("sizing", OK, what, where)
    what = f"VMs do not take their size from what the relay sends: {shown(why)}; {annotated}"
    return Finding("sizing-not-obeyed", WARNING, what, where, _remedy(handler))


def _remedy(handler: Handler) -> str:
    if handler.fault:
        return "Correct the file that is named."
    return "Set static_sandbox_resource_mgmt = true in section [runtime], or leave the handler out of sizing.handlers."


OUR_POLICY = "nodeward-kata-annotations"
"""Of deploy/policies."""
_VMMS = {"clh": "cloud-hypervisor", "fc": "firecracker"}
"""What Kata calls a VMM in its configuration, and its own name."""
_UNASKED = {
    KATA_ONLY: "take the VMM out of the limits of the pod",
    KATA_CONFIG: "make Kata read another configuration file of the host",
}
"""The annotations that Kata obeys whatever `enable_annotations` says, and what a pod's author can do with each."""


def sandboxes(facts: VmFacts) -> Iterator[Finding]:
    """Findings on each handler that starts VMs; one that all is well, where it is."""
    if facts.handlers is None:
        return  # the probe's failure is a finding
    if not facts.handlers:
        yield Finding("kata", OK, "no runtime handler of this node starts VMs", "the runtime's configuration")
        return
    if isinstance(facts.classes, Unlisted):
        yield from not_looked_at(facts.where, (facts.classes,))
    found = [one for handler in facts.handlers for one in _handler(facts, handler)]
    yield from found
    if all(one.severity is NOTE for one in found):
        names = ", ".join(shown(one.name) for one in facts.handlers)
        yield Finding("kata", OK, "what starts VMs was read, and nothing in it is wrong", f"handlers {names}")


def _handler(facts: VmFacts, handler: Handler) -> Iterator[Finding]:
    if handler.fault:
        yield _fault(handler)
    if handler.profile is Profile.DOCUMENT:
        return  # no Kata, so no configuration and no annotations of it
    yield from _annotations(facts, handler)
    said = mode(handler, None, handler.profile)
    if said is not None and not said.only:
        yield _outside(facts.version, handler, said)
    if isinstance(facts.classes, tuple):
        yield from _classes(facts, handler, said, facts.classes)


def _where(handler: Handler) -> str:
    return f"handler {shown(handler.name)}" + (f", {shown(handler.config)}" if handler.config else "")


def _fault(handler: Handler) -> Finding:
    what, _, remedy = handler.fault.rpartition("; ")
    return Finding(
        "kata-config-unread",
        WARNING,
        f"Kata's configuration was not read whole: {shown(what or handler.fault)}",
        _where(handler),
        shown(f"{remedy[0].upper()}{remedy[1:]}.") if what and remedy else "Correct the file that is named.",
    )


def _annotations(facts: VmFacts, handler: Handler) -> Iterator[Finding]:
    """What reaches Kata though no list of Kata's can forbid it."""
    is_forced = handler.hypervisor == DRAGONBALL
    keys = [key for key in _UNASKED if handed_on(handler, key) and not (is_forced and key == KATA_ONLY)]
    if not keys:
        return
    is_bound = OUR_POLICY in (facts.policies or ())
    crio = of_crio(handler)
    always = crio or handler.serves
    who = "CRI-O" if crio else "containerd" if always else "pod_annotations"
    can = " and ".join(_UNASKED[key] for key in keys)
    but = f"; the policy {OUR_POLICY} refuses such pods, but not static ones" if is_bound else ""
    less = "No setting keeps them back" if always else "List in pod_annotations only what pods need, without these"
    apply = "" if is_bound else "; apply deploy/policies/kata-annotations.yaml (docs/webhook.md)"
    yield Finding(
        "kata-annotation-passes",
        NOTE if is_bound else WARNING,
        f"{who} hands on {' and '.join(keys)}, which Kata obeys whatever enable_annotations says: a pod's author "
        f"can {can}{but}",
        _where(handler),
        f"{less}{apply}.",
    )


def _outside(version: int, handler: Handler, said: ModeSaid) -> Finding:
    source = "which nobody has set" if said.source == "default" else f"by {shown(said.source)}"
    remedy = "Set sandbox_cgroup_only = true in section [runtime], with room for the VMM in overhead.podFixed."
    if version == 2:
        what = (
            f"sandbox_cgroup_only is false ({source}) on cgroup v2, where no thread can be split off: Kata moves the "
            "whole VMM into the pod after its start, and memory it was charged with before stays outside"
        )
        return Finding("kata-mode-false", WARNING, what, _where(handler), remedy)
    what = (
        f"sandbox_cgroup_only is false ({source}): what runs outside of the pods is charged to none of them, and no "
        "limit holds it"
    )
    remedy += " Or keep as much in kubelet's system-reserved (nodeward vms says how much)."
    return Finding("kata-mode-false", NOTE, what, _where(handler), remedy)


def _classes(
    facts: VmFacts, handler: Handler, said: ModeSaid | None, classes: tuple[RuntimeClass, ...]
) -> Iterator[Finding]:
    ours = [one for one in classes if one.handler == handler.name]
    if not ours:
        what = "no RuntimeClass has this handler, so no pod can ask for it"
        remedy = "Create one with its overhead.podFixed, or remove the handler."
        yield Finding("kata-no-class", NOTE, what, _where(handler), remedy)
    usual = USUAL.get(_VMMS.get(handler.hypervisor, handler.hypervisor))
    more, option = _on_top(handler)
    is_charged = said is None or said.only or facts.version == 2
    for one in ours:
        where = f"RuntimeClass {shown(one.name)}, {_where(handler)}"
        if not one.memory:
            yield _undeclared(where, None if usual is None or more is None else usual + more)
        elif is_charged and more is not None and usual is not None and one.memory < more + usual:
            yield _too_small(where, one.memory, more, option, usual)


def _on_top(handler: Handler) -> tuple[int | None, str]:
    """What Kata gives a VM beside what its pod's containers are limited to, and by which option. None where the
    configuration does not say."""
    if handler.profile is Profile.KATA_RS and not grows(handler):
        return handler.overhead_memory, "overhead_memory"
    return handler.default_memory, "default_memory"


def _undeclared(where: str, needed: int | None) -> Finding:
    amount = "see nodeward vms --classes" if needed is None else f"at least {size_text(needed)} by its options"
    return Finding(
        "kata-no-overhead",
        WARNING,
        "it declares no overhead of memory (overhead.podFixed): neither scheduler nor the pod's limit knows of the VMM",
        where,
        f"Declare overhead.podFixed.memory, {amount}.",
    )


def _too_small(where: str, declared: int, more: int, option: str, usual: int) -> Finding:
    """A limited pod has `limits + declared`, its VM has `limits + more`, and VMM and shim need `usual` besides."""
    room = declared - more
    arithmetic = (
        f"podFixed {size_text(declared)} - {option} {size_text(more)} = {size_text(room)} for VMM, shim and virtiofsd, "
        f"which usually take {size_text(usual)}"
    )
    lower = f", or lower {option}" if more else ""
    return Finding(
        "kata-overhead-small",
        ERROR if room < 0 else WARNING,
        f"{arithmetic}: a pod whose containers all have memory limits is killed once its guest has filled up",
        where,
        f"Declare overhead.podFixed.memory of {size_text(more + usual)} or more{lower}.",
    )
