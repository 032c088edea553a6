"""Findings on the sizes of VMs: which of two ways Kata obeys for each runtime handler, and what is missing. Pure.

The ways: resources of RunPodSandbox, which the relay sends and a VM of a fixed size takes at its start; annotations of
the pod (`default_vcpus`, `default_memory`), which must be handed on and allowed, and which nobody but the pod's author
sends today.
"""

from collections.abc import Iterator

from nodeward.engine.sandboxes.mode import handed_on
from nodeward.engine.sandboxes.size import allowed, obeyed
from nodeward.engine.sandboxes.sizing import OF_CONTAINERD, why_not
from nodeward.engine.show.sandbox_words import shown
from nodeward.model.annotations import KATA_SIZES
from nodeward.model.doctor import Finding, RelayFacts, Severity, VmFacts
from nodeward.model.limits_rule import Mode
from nodeward.model.sandboxes import Handler

OK, WARNING = Severity.OK, Severity.WARNING


def sizing(vms: VmFacts, relay: RelayFacts) -> Iterator[Finding]:
    """Findings where sizes are to be given: on the relay, and one on each handler."""
    rule = relay.sizing
    if rule.mode is Mode.OFF:
        return
    said = relay.view.sizing.mode if relay.view is not None else ""
    if said != rule.mode.value:
        what = "no relay answers" if relay.view is None else f"the relay runs with sizing.mode {said}"
        remedy = "Start nodeward relay as kubelet's runtime endpoint, or restart it with these settings."
        yield Finding("sizing-no-relay", WARNING, f"sizing.mode is {rule.mode.value}, and {what}", relay.where, remedy)
    for handler in vms.handlers or ():
        if not rule.handlers or handler.name in rule.handlers:
            yield _way(handler, why_not(handler.name, handler, rule))
    for name in rule.handlers:
        if vms.handlers is not None and name not in [one.name for one in vms.handlers]:
            what = f"whether Kata obeys sizes of the handler {name} is unknown: no configuration here names it"
            yield Finding(
                "sizing-unknown", WARNING, what, "sizing.handlers", "Correct the name, or leave the list empty."
            )


def _way(handler: Handler, why: str) -> Finding:
    where = f"handler {shown(handler.name)}" + (f", {shown(handler.config)}" if handler.config else "")
    annotated = f"annotations of a pod: {_annotations(handler)}"
    if not why and handler.fault:
        why = "its configuration was not read whole, so this is unknown"
    if not why:
        what = f"VMs take their size from what the relay sends (resources); {annotated}"
        return Finding("sizing", OK, what, where)
    what = f"VMs do not take their size from what the relay sends (resources): {shown(why)}; {annotated}"
    return Finding("sizing-not-obeyed", WARNING, what, where, _remedy(handler))


def _remedy(handler: Handler) -> str:
    if not handler.runtime_type.startswith(OF_CONTAINERD):
        return "Name only handlers of containerd in sizing.handlers."
    if handler.fault:
        return "Correct the file that is named."
    return "Set static_sandbox_resource_mgmt = true in section [runtime], or leave the handler out of sizing.handlers."


def _annotations(handler: Handler) -> str:
    """What of `default_vcpus` and `default_memory` is obeyed, and what is missing."""
    names = {key: key.rpartition(".")[2] for key in KATA_SIZES}
    obeys = [name for key, name in names.items() if obeyed(handler, key)]
    if len(obeys) == len(names):
        return "obeyed"
    option = "pod_annotations" if handler.runtime_type.startswith(OF_CONTAINERD) else "allowed_annotations"
    missing = [] if all(handed_on(handler, key) for key in names) else [f"{option} does not hand them on"]
    refused = [name for key, name in names.items() if not allowed(handler, key)]
    missing += [f"enable_annotations lacks {' and '.join(refused)}"] if refused else []
    return f"not obeyed, {'; '.join(missing)}"
