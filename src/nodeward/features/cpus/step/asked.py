"""A runtime asks about a container that comes or changes, and waits for the answer."""

import re
from collections.abc import Sequence
from dataclasses import replace

from nodeward.core import annotations as keys
from nodeward.core import events as ev
from nodeward.core.cpuset import text
from nodeward.core.decision import NOTHING, Adjustment, Decision, Fault, Final, SchedulingClass
from nodeward.core.events import Question
from nodeward.core.modes import Mode, OnError
from nodeward.core.refusal import Reason, Refusal, Refused
from nodeward.core.tables import put, without
from nodeward.core.workload import Container, Sandbox
from nodeward.features.cpus import memory
from nodeward.features.cpus.ask import ask_of, key_of, title_of
from nodeward.features.cpus.place import admitted, is_kept, wanted
from nodeward.features.cpus.policies.table import policy_of
from nodeward.features.cpus.requested import scoped
from nodeward.features.cpus.settings import PolicySettings
from nodeward.features.cpus.state import Cpus, Held
from nodeward.features.cpus.step.goals import goals_of
from nodeward.features.cpus.step.there import kept_cpus
from nodeward.features.cpus.values import Ask, Denied, Grant, Ground, Pools
from nodeward.features.pods.fault import passed_or_refused
from nodeward.features.root import State

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", re.ASCII)
"""Without a slash: of an RDT class the runtime makes the path of a group of resctrl."""


def classes_of(ask: Ask, grant: Grant, rules: PolicySettings) -> tuple[Adjustment, tuple[str, ...]]:
    """The classes for a container with this grant, and in sentences what is wrong with those that its pod's annotations
    name. A wrong one counts as none. The runtime refuses a container whose class it does not know."""
    found, faults = dict[str, str](), list[str]()
    for kind, spellings in (("rdt", keys.RDT_CLASSES), ("blockio", keys.BLOCKIO_CLASSES)):
        given = ((key, scoped(ask.annotations, key, ask.container)) for key in spellings)
        key, said = next(((key, said[0]) for key, said in given if said is not None), ("", ""))
        if _NAME.fullmatch(said):
            found[kind] = said
        elif key:
            remedy = "write 1 to 63 letters, digits and any of _ . -"
            faults.append(f"annotation {key}: {said[:64]!r} is no name of a class; {remedy}")
    policy = policy_of(rules.active)
    scheduling, fault = None, ""
    if policy.scheduling is not None and grant.pool:
        scheduling, fault = _scheduling(ask, *policy.scheduling(rules, ask, grant))
    faults += [*policy.faults(ask), *([fault] if fault else [])]
    rdt, blockio = found.get("rdt", ""), found.get("blockio", "")
    return Adjustment(rdt_class=rdt, blockio_class=blockio, scheduling=scheduling), tuple(faults)


def _scheduling(ask: Ask, known: Sequence[SchedulingClass], name: str) -> tuple[SchedulingClass | None, str]:
    """By the annotation; else the one of this name."""
    classes = {one.name: one for one in known}
    fault = ""
    given = ((key, scoped(ask.annotations, key, ask.container)) for key in keys.OF_TREE["scheduling-class"])
    key, said = next(((key, said) for key, said in given if said is not None), ("", None))
    if said is not None:
        if said[0] in classes:
            return classes[said[0]], ""
        every = ", ".join(classes) or "none"
        fault = f"annotation {key}: {said[0][:64]!r} is no scheduling class; classes are {every}"
    return classes.get(name), fault


def on_fault(state: State, question: Question, fault: Fault) -> Final | None:
    """The answer by `cpus.on_error` where a decision failed."""
    return passed_or_refused(state, question, fault, state.settings.cpus.on_error, state.settings.cpus.mode)


def undecided(state: State, event: ev.Creating) -> Decision:
    """While no settings fit, `cpus.on_error` answers."""
    rule, home = state.settings.cpus, event.sandbox
    if rule.on_error is OnError.PASS or rule.mode is not Mode.ENFORCE:
        return NOTHING
    message = (
        f"{home.namespace}/{home.name}, container {event.container.name}: the policy {state.settings.policy.active} "
        f"does not fit this machine ({state.cpus.refused[0]}), and cpus.on_error is refuse; see nodeward doctor"
    )
    return Decision(Final(Refusal(message, Refused.FAULT), Reason("refused", (message,))))


def on_creating(state: State, event: ev.Creating) -> tuple[Cpus, Decision]:
    """A new container: it gets its place, or is refused."""
    ask = ask_of(state, event.sandbox, event.container)
    ask = replace(ask, hints=event.hints.found, unhinted=event.hints.faults)
    after = _admit(state, ask)
    if isinstance(after, Denied):
        return _denied(state, event.sandbox, event.container, after)
    classes, faults = classes_of(ask, after.grants[ask.key], state.cpus.rules)
    cpus, decision = _given(state, after, event, classes)
    notes = tuple(Reason("cpus-source", (title_of(ask), fault)) for fault in (*ask.faults, *faults, *ask.unhinted))
    return cpus, replace(decision, notes=notes) if notes else decision


def on_updating(state: State, event: ev.Updating) -> tuple[Cpus, Decision]:
    """A resize: the place that fits what it asks for now, or a refusal; who keeps what it has stays."""
    held = state.cpus.held.get(event.container.id)
    now = held.has if held is not None else 0
    if held is None or held.key in state.cpus.unplaced:
        now = now or event.container.cpu.cpus
    mems = held.mems if held is not None else event.container.cpu.mems
    ask = ask_of(state, event.sandbox, event.container, now, mems, resize=True)
    if is_kept(ask):
        return state.cpus, Decision(Final(Adjustment(), Reason("cpus-none")))
    after = _admit(state, ask)
    if isinstance(after, Denied):
        return _denied(state, event.sandbox, event.container, after)
    return _given(state, after, event, Adjustment())


def _admit(state: State, ask: Ask) -> Pools | Denied:
    machine = state.cpus.machine
    if machine is None:
        return Denied("the machine's CPUs are not known yet")
    return admitted(Ground(machine, state.cpus.rules), state.cpus.pools, ask, kept_cpus(state))


def _denied(state: State, home: Sandbox, one: Container, why: Denied) -> tuple[Cpus, Decision]:
    if state.settings.cpus.mode is Mode.ENFORCE:
        message = f"{home.namespace}/{home.name}, container {one.name}: {why.why}"
        return state.cpus, Decision(Final(Refusal(message, Refused.NO_CAPACITY), Reason("refused", (message,))))
    key = key_of(home.pod_uid, one.name)
    unplaced = put(state.cpus.unplaced, key, why.why)
    return replace(state.cpus, unplaced=unplaced), Decision(Final(Adjustment(), Reason("cpus-none")))


def _given(state: State, after: Pools, event: ev.Asked, classes: Adjustment) -> tuple[Cpus, Decision]:
    """The answer to a runtime that waits, with these `classes`, and what follows for others."""
    one = event.container
    key = key_of(event.sandbox.pod_uid, one.name)
    grant, before = after.grants[key], state.cpus.held.get(one.id)
    mine = wanted(after, key)
    held = before or Held(key, one.cgroups_path)
    if state.settings.cpus.mode is not Mode.ENFORCE:
        answer = Adjustment()
    else:
        machine = state.cpus.machine
        free = machine.online if before is not None and not mine and machine is not None else 0
        if isinstance(event, ev.Creating):
            mems = memory.at_creation(state, one, after, grant)
        else:
            mems = memory.widened(machine, held.mems, after, key)
        # what the record has is given anew, or its older sets came back
        answer = Adjustment(cpus=text(mine or free), memory_nodes=text(mems), cpu_shares=grant.shares).beside(classes)
        held = replace(held, given=mine, mems=mems, mems_asked=mems)
    cpus = replace(
        state.cpus,
        pools=after,
        held=put(state.cpus.held, one.id, held),
        unplaced=without(state.cpus.unplaced, (key,)),
    )
    goals = goals_of(replace(state, cpus=cpus), state.cpus.pools)
    return cpus, Decision(Final(answer, grant.reason), goals=goals)
