"""Findings on the sizes of VMs: by which way Kata obeys for each runtime handler, and what is missing. Pure.

`features.sandboxes.ways` knows the ways. The annotations `default_vcpus` and `default_memory` are told of in any case,
since a pod's author may write them too.
"""

from collections.abc import Iterator

from nodeward.core.finding import Finding, Severity
from nodeward.core.modes import Mode
from nodeward.core.vms import Handler
from nodeward.features.sandboxes.findings import VmFacts
from nodeward.features.sandboxes.settings import SizingSettings
from nodeward.features.sandboxes.sizing import why_not
from nodeward.features.sandboxes.ways import missing_defaults, no_queues, way
from nodeward.features.sandboxes.words import shown

OK, WARNING = Severity.OK, Severity.WARNING


def sizing(vms: VmFacts, rule: SizingSettings, said: str | None, relay: str) -> Iterator[Finding]:
    """Findings where sizes are to be given: on the relay, and one on each handler. `said` is the mode that the relay at
    the socket `relay` runs with, None where it does not answer."""
    if rule.mode is Mode.OFF:
        return
    if said != rule.mode.value:
        what = "no relay answers" if said is None else f"the relay runs with sizing.mode {said}"
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
