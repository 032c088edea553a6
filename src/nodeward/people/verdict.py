"""The node's verdict: one sentence that says what is wrong first.

`conditions` reads the picture of the node and is the one list of what is wrong (`core.conditions.CODES`). The headline
of `nodeward status`, the page and `kubectl nodeward` is made of it. Nothing that a pod gets depends on it.

What goes on is a condition while it goes on. What happened (`NodeView.lately`) is one for a quarter of an hour.
"""

from collections.abc import Iterable, Iterator, Sequence

from nodeward.core.conditions import CODES, Condition, HappenedRow, Level, Severity, Verdict
from nodeward.core.text import printable
from nodeward.core.times import rfc3339
from nodeward.features.cpus.rows import CpusView
from nodeward.features.keys.rows import KeyRow
from nodeward.features.keys.terms import ClaimState
from nodeward.features.limits.rows import CgroupRow, pod_name
from nodeward.features.sandboxes.rows import SandboxesView, SandboxRow
from nodeward.features.sandboxes.values import Fit
from nodeward.people.relay_view import RelayView
from nodeward.people.rows import NodeView

MOST_NAMED = 3
MOST_SAID = 4
"""So many conditions are in the headline; `-o json` has all."""
MOST_WHY = 200
NEAR = 0.9
FULL = 0.98
STALE_KEYS_MS = 30_000
SILENT_WATCH_MS = 600_000
_EPC = "sgx_epc"
_STATES = {
    "drift": ("drift", "changed by another program"),
    "outside": ("not-enforced", "outside of its pod's cgroup"),
    "stale": ("not-enforced", "not read for too long"),
    "controller-off": ("not-enforced", "without the misc controller"),
    "unsupported": ("unsupported", "not enforceable on this kernel"),
    "unknown": ("not-enforced", "started before its declaration was known"),
}
"""The states of a cgroup that are conditions, the worst first: the condition's code, and what is said."""
STATES = tuple(_STATES)
_URGENCY = {state: place for place, state in enumerate(STATES)}
_LEVELS = {Severity.CRITICAL: Level.BAD, Severity.WARNING: Level.ATTENTION}


def urgency(state: str) -> int:
    """Sorts the states of a cgroup: those that are conditions first, the worst of them 0."""
    return _URGENCY.get(state, len(_URGENCY))


MOST = 4
"""So many lines are kept on the screen."""
_GOOD = urgency("enforced")


def happened(before: NodeView | None, after: NodeView) -> list[str]:
    """New faults of cgroups and sources, those that are over, and charges that were refused since."""
    if before is None:
        return []
    known = {row.cgroup: row for row in before.rows}
    lines = [line for row in after.rows if (line := _of_row(known.get(row.cgroup), row))]
    ready = {one.name: one.ready for one in before.components}
    for one in after.components:
        if one.ready != ready.get(one.name, one.ready):
            lines.append(f"{one.name} is {'ready again' if one.ready else 'not ready'}: {one.detail}")
    return lines


def _of_row(before: CgroupRow | None, row: CgroupRow) -> str:
    name = pod_name(row) + (f"/{row.container}" if row.container else "")
    then = before.state if before is not None else ""
    if row.state != then and (urgency(row.state) < _GOOD or urgency(then) < _GOOD):
        return f"{name} is {row.state}" + (f", was {then}" if then else "")
    if before is not None:
        counted = {one.resource: one.refusals_here or 0 for one in before.resources}
        for one in row.resources:
            more = (one.refusals_here or 0) - counted.get(one.resource, 0)
            if more > 0:
                return f"{name} was refused {one.resource} {more} more time{'s' if more > 1 else ''}"
    return ""


def verdict(view: NodeView) -> Verdict:
    """What a person should know first, and all that is wrong."""
    found = tuple(sorted(conditions(view), key=lambda one: one.severity.rank))
    urgent = [one for one in found if one.severity in _LEVELS]
    if not urgent:
        return Verdict(Level.GOOD, _good(view), found)
    sentences = [one.sentence for one in urgent[:MOST_SAID]]
    if (more := len(urgent) - MOST_SAID) > 0:
        sentences.append(f"{more} more")
    return Verdict(_LEVELS[urgent[0].severity], f"{'; '.join(sentences)}.", found)


def away(why: str) -> Verdict:
    """The verdict on a node that does not answer."""
    one = _of("daemon-away", f"Nodeward does not answer: {_why(why)}")
    return Verdict(Level.BAD, f"{one.sentence}.", (one,))


def conditions(view: NodeView) -> Iterator[Condition]:
    """All that is wrong, in no order of urgency."""
    yield from _sources(view)
    killed = [row.name for row in view.sandboxes.rows if _is_killed(row)] if view.sandboxes is not None else []
    happened = (*view.lately, *(view.relay.lately if view.relay is not None else ()))
    yield from _happened([row for row in happened if row.code != "vm-killed" or row.pod not in killed])
    yield from _limits(view)
    for kind in view.keys:
        yield from _keys(kind)
    if view.cpus is not None:
        yield from _cpus(view.cpus)
    yield from _settings(view)
    if view.sandboxes is not None:
        yield from _vms(view.sandboxes)
    if view.gates is not None:
        shut = [f"{row.namespace}/{row.pod}" for row in view.gates.rows if row.why]
        if shut:
            yield _of("gate-shut", f"{_pods(shut)} waiting at a gate", shut)
        if view.gates.fault:
            yield _of("gate-shut", f"Verdicts of before are lost: {_why(view.gates.fault)}")
    if view.relay is not None:
        yield from _relay(view.relay)
    if view.relay_missing:
        yield _of("relay-away", "No relay answers, though one should")
    elif view.relay_fault:
        yield _of("relay-away", _why(view.relay_fault))


def _of(code: str, sentence: str, pods: Iterable[str] = (), since: str = "") -> Condition:
    severity, remedy = CODES[code]
    return Condition(code, severity, sentence, since, remedy, tuple(dict.fromkeys(pods)))


# ---- who answers


def _sources(view: NodeView) -> Iterator[Condition]:
    if view.alone:
        yield _of("daemon-away", f"Only the relay answers: {view.alone}")
    for component in view.components:
        if component.needed and not component.ready:
            detail = f": {_why(component.detail)}" if component.detail else ""
            since = rfc3339(component.since_wall_ns)
            yield _of("not-synchronised", f"Nodeward is not synchronised with {component.name}{detail}", (), since)
    if view.api == "stale":
        since = view.api_stale_since
        yield _of("not-synchronised", f"The API server does not answer{f' since {since}' if since else ''}", (), since)
    if view.tree.fault:
        yield _of("cannot-read", f"Nothing can be counted or limited: {_why(view.tree.fault)}")
    health = view.health
    if view.api == "answers" and health.get("watch_age_ms", 0) > SILENT_WATCH_MS:
        yield _of("watch-silent", "The API server has said nothing about pods for over ten minutes")
    hung = sum(count for name, count in health.items() if name.startswith("lane_") and name.endswith("_hung"))
    if hung:
        yield _of("file-call-hangs", f"{hung} file call(s) hang in the kernel")
    if unwritten := health.get("files_unwritten", 0):
        yield _of("unwritten", f"{unwritten} file(s) of Nodeward's own could not be written")
    if view.waiting:
        yield _of("second-daemon", f"A second daemon waits on this node: {view.waiting}")
    untold = health.get("kube_events_failed", 0) + health.get("kube_events_dropped", 0)
    if untold:
        yield _of("events-refused", f"{untold} Kubernetes Event(s) did not reach the API server")


def _settings(view: NodeView) -> Iterator[Condition]:
    if view.cpus is not None and view.cpus.refused:
        which = "Newer settings" if view.cpus.in_force else "The settings"
        yield _of("settings-refused", f"{which} of the CPU policy were refused")
    if view.settings.faults:
        yield _of("settings-refused", "Newer settings were refused, older ones hold")
    if view.settings.policy_object_faults:
        yield _of("settings-refused", "A policy object was refused")


def _relay(relay: RelayView) -> Iterator[Condition]:
    for door in relay.doors:
        if door.present is False:
            yield _of("runtime-away", f"The runtime {door.runtime} behind the relay does not answer")
    if relay.settings_faults:
        yield _of("settings-refused", "Settings of the relay were refused")
    if relay.daemon.wants and not relay.daemon.process:
        yield _of("relay-undecided", f"Calls are held and nobody decides them: {_why(relay.daemon.why)}")


# ---- what happened


def _happened(rows: Sequence[HappenedRow]) -> Iterator[Condition]:
    """One condition a code."""
    by_code = dict[str, list[HappenedRow]]()
    for row in rows:
        by_code.setdefault(row.code, []).append(row)
    for code, of_code in by_code.items():
        if code in _WORDS:
            last = max(of_code, key=lambda row: row.last)
            since = min((row.since for row in of_code), default="")
            pods = [row.pod for row in reversed(of_code) if row.pod]
            named = f" ({_named(pods)})" if pods else ""
            sentence = _WORDS[code].format(count=sum(row.count for row in of_code), pods=named, last=last.last)
            why = f", the last: {_why(last.why)}" if last.why and code not in _PLAIN else ""
            yield _of(code, f"{sentence}{why}", pods, since)


_WORDS = {
    "vm-killed": "The kernel killed {count} process(es) of VM sandboxes for memory{pods}, the last at {last}",
    "refused": "{count} create(s) or update(s) of containers were refused{pods}",
    "keys-refused": "Kubelet was refused keys {count} time(s){pods}",
    "late-starts": "{count} start(s) were late or refused: other containers were still on their CPUs{pods}",
    "drift": "Another program changed what Nodeward had set {count} time(s){pods}; the last at {last}",
    "charges-refused": "The kernel refused {count} charge(s){pods}",
    "relay-troubled": "The relay could not decide calls, or met faults of its own, {count} time(s) since its start",
    "faults": "{count} decision(s) failed by a fault of Nodeward",
}
_PLAIN = ("charges-refused", "drift")


# ---- limits


def _limits(view: NodeView) -> Iterator[Condition]:
    by_state = dict[str, list[str]]()
    for row in view.rows:
        by_state.setdefault(row.state, []).append(pod_name(row))
    for state, (code, words) in _STATES.items():
        if names := list(dict.fromkeys(by_state.get(state, ()))):
            which = f"The limits of {_named(names)} are" if state == "unsupported" else _pods(names)
            yield _of(code, f"{which} {words}", names)
    failed = [pod_name(row) for row in view.rows if row.state == "pending" and row.last_error]
    if failed:
        yield _of("not-enforced", f"The limits of {_named(failed)} could not be written", failed)
    unread = [pod_name(row) for row in view.rows if row.faults]
    if unread:
        named = _named(unread)
        yield _of("not-enforced", f"Declarations of {named} cannot be read and count as none", unread)
    near = [pod_name(row) for row in view.rows if _is_near(row)]
    if near:
        yield _of("near-limit", f"{_pods(near)} near the limit of enclave memory", near)
    size, used = view.capacity.get(_EPC, 0), view.usage.get(_EPC, 0)
    if size and used > size * FULL:
        yield _of("node-full", "The node's enclave memory is used up")
    for name, held in view.elsewhere.items():
        if held and not any(kind.key == name for kind in view.keys):
            yield _of("orphaned-charge", f"A part of {name} is charged outside of every known pod")
    wrapped = [name for name, used in view.usage.items() if used < 0]
    for name in wrapped:
        if not any(kind.key == name for kind in view.keys):
            yield _of("counter-untrusted", f"The kernel's counter of {name} cannot be trusted")


def _is_near(row: CgroupRow) -> bool:
    return row.level == "container" and any(
        one.resource == _EPC and one.limit and one.usage is not None and one.usage > one.limit * NEAR
        for one in row.resources
    )


# ---- keys


def _keys(kind: KeyRow) -> Iterator[Condition]:
    key, offer, sharing = kind.key, kind.offer, kind.sharing
    if kind.blind or kind.wrapped:
        yield _of("counter-untrusted", f"The kernel's counters of {key} cannot be trusted")
    elif kind.capacity and kind.free == 0:
        yield _of("keys-sold-out", f"No {key} key is free of {kind.capacity}")
    if kind.capacity and (kind.entitled or 0) > kind.capacity:
        yield _of("keys-oversold", f"{kind.entitled} {key} keys were promised, and there are {kind.capacity}")
    if kind.foreign:
        yield _of("keys-foreign", f"{kind.foreign} {key} key(s) are in use outside of the known pods")
    if kind.leaked:
        yield _of("keys-orphaned", f"{kind.leaked} {key} key(s) are held by cgroups that were removed")
    if kind.age_ms is not None and kind.age_ms > STALE_KEYS_MS:
        yield _of("keys-stale", f"The counters of {key} were last read {kind.age_ms // 1000} s ago")
    if offer is not None:
        if offer.withheld:
            yield _of("keys-withheld", f"No {key} key is offered to new pods ({offer.withheld})")
        if offer.standing not in ("", "serving"):
            yield _of("keys-not-served", f"Kubelet does not read our list of {key} keys ({_why(kind.plugin)})")
        if offer.journal_fault:
            yield _of("keys-journal", f"Grants of {key} keys cannot be put on record: {_why(offer.journal_fault)}")
        if offer.journal_lost:
            yield _of("keys-journal-lost", f"The record of {key} keys was lost: {_why(offer.journal_lost)}")
        if offer.quotes is False:
            yield _of("keys-quotes", f"The quote service for {key} does not answer")
    if kind.claims is not None:
        waits = [pod for one in kind.claims.rows if one.state == ClaimState.WAITING.value for pod in one.pods]
        if waits:
            yield _of("keys-claims-wait", f"{len(waits)} pod(s) with a claim wait for a {key} key", waits)
        away = kind.claims.fault or (kind.claims.driver if kind.claims.registered is False else "")
        if away:
            yield _of("keys-claims-away", f"Claims of {key} keys are not served: {_why(away)}")
    if sharing is not None and sharing.total is not None and sharing.written != sharing.total:
        yield _of("keys-nfd", f"NFD's number of {key} keys is not as it should be")


# ---- CPUs


def _cpus(view: CpusView) -> Iterator[Condition]:
    failed = [row for row in view.holders if row.error or row.memory_error or row.kind == "unplaced"]
    if failed:
        pods = [f"{row.namespace}/{row.pod}" if row.namespace else row.pod for row in failed]
        names = list(dict.fromkeys(pods))
        yield _of("cpus-not-held", f"{_pods(names)} not on the CPUs that the policy gives", pods)
    for note in view.notes:
        yield _of("cpus-machine", _why(note))
    if view.claims is not None:
        away = view.claims.fault or (view.claims.driver if view.claims.registered is False else "")
        if away:
            yield _of("cpus-claims-away", f"Claims of CPUs are not served: {_why(away)}")


# ---- VM sandboxes


def _vms(view: SandboxesView) -> Iterator[Condition]:
    for row in view.rows:
        if _is_killed(row):
            sentence = f"The VM of {printable(row.name)} was {row.fit.sentence}"
            yield _of("vm-killed", sentence, (row.name,), row.fit.killed_since)
    for fit, code, words in (
        (Fit.KILLED, "vm-too-big", "too large for the memory limit"),
        (Fit.OUTSIDE, "vm-outside", "not charged to a pod, so no limit holds"),
        (Fit.TIGHT, "vm-tight", "close to the memory limit"),
    ):
        if rows := [row.name for row in view.rows if row.fit.fit == fit.value]:
            yield _of(code, f"The VM{'s' if len(dict.fromkeys(rows)) > 1 else ''} of {_pods(rows)} {words}", rows)
    strayed = [row.name for row in view.rows if any(drift.is_fault for drift in row.drifts)]
    if strayed:
        yield _of("vm-drift", f"Processes of {_named(strayed)} are in another cgroup than they should be", strayed)
    unread = [row.name for row in view.rows if row.faults and not _is_killed(row)]
    if unread:
        yield _of("vm-unread", f"A part of {_named(unread)} cannot be read", unread)
    for handler in view.handlers:
        if handler.fault:
            yield _of("vm-unread", f"Runtime handler {printable(handler.name)}: {_why(handler.fault)}")
    if view.misses:
        cgroup, why = next(iter(view.misses.items()))
        pods = [row.name for row in view.rows if row.pod_cgroup in view.misses]
        yield _of("vm-limit-missed", f"The limit of {printable(cgroup)} could not be set: {_why(why)}", pods)
    for one in view.classes:
        advised, declared = one.recommended_memory, one.declared_memory
        if advised is not None and declared is not None and advised > declared:
            yield _of("vm-overhead", f"RuntimeClass {printable(one.name)} declares less overhead than was measured")
    if view.unaccounted_memory:
        yield _of("vm-unaccounted", "VM sandboxes use memory that no pod is charged with")


def _is_killed(row: SandboxRow) -> bool:
    return row.fit.fit == Fit.WAS_KILLED.value


# ---- words


def _good(view: NodeView) -> str:
    pods = sum(row.level == "pod" and row.state == "enforced" for row in view.rows)
    if view.mode == "off":
        parts = ["Limits are off"]
    elif view.mode == "observe":
        parts = ["Limits are observed, not enforced"]
    elif not view.controller:
        parts = ["This kernel has no misc controller, so no enclave memory or keys can be limited"]
    else:
        held = "1 pod is held to its limits" if pods == 1 else f"{pods} pods are held to their limits"
        parts = [f"All is well: {held}"]
    parts += [f"{kind.free} of {kind.capacity} {kind.key} keys are free" for kind in view.keys if kind.free is not None]
    return f"{', '.join(parts)}."


def _pods(names: Iterable[str]) -> str:
    each = dict.fromkeys(names)
    return f"{_named(each)} {'is' if len(each) == 1 else 'are'}"


def _named(several: Iterable[str]) -> str:
    """Each once: a pod may have two VMs."""
    names = list(dict.fromkeys(several))
    more = len(names) - MOST_NAMED
    shown = ", ".join(printable(name) for name in names[:MOST_NAMED])
    return shown + (f" and {more} more" if more > 0 else "")


def _why(text: str) -> str:
    said = printable(text)
    if len(said) > MOST_WHY:
        return said[:MOST_WHY].rpartition("; ")[0] or f"{said[:MOST_WHY]}..."
    return said.rstrip(".")
