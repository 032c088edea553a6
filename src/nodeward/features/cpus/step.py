"""How events change which CPUs containers have.

The answer to a create carries the container's own set. What changes for others is a goal: the cgroup is written and
read back. What the runtime remembers is put right with its next question about that container.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nodeward.core import annotations as keys
from nodeward.core import events as ev
from nodeward.core.cpuset import CpuSet, parse, text
from nodeward.core.decision import NOTHING, Adjustment, Decision, Fault, Final, Goal, SchedulingClass, Target
from nodeward.core.events import Question
from nodeward.core.feature import Hear
from nodeward.core.modes import NO_POLICY, Mode, OnError
from nodeward.core.refusal import Reason, Refusal, Refused
from nodeward.core.tables import beside, put, without
from nodeward.core.topology import Machine
from nodeward.core.workload import Container, ContainerId, Phase, PodUid, Qos, Sandbox
from nodeward.features.cpus import claims, memory, recorded
from nodeward.features.cpus.ask import ask_of, is_resized, key_of, label_keys, named
from nodeward.features.cpus.memory_zones import warmed
from nodeward.features.cpus.place import Placed, admitted, all_placed, is_kept, wanted
from nodeward.features.cpus.policies.claims import is_claim
from nodeward.features.cpus.policies.table import policy_of
from nodeward.features.cpus.policy import Policy
from nodeward.features.cpus.pools import apart, changed, set_of
from nodeward.features.cpus.requested import ESTIMATE, UNREAD, scoped
from nodeward.features.cpus.settings import PolicySettings
from nodeward.features.cpus.state import Cpus, Held
from nodeward.features.cpus.values import Ask, CpusRecalled, Denied, Grant, Ground, Pools
from nodeward.features.pods.fault import passed_or_refused
from nodeward.features.pods.state import KnownContainer
from nodeward.features.root import SettingsChanged, State

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


KIND = "cpuset"


def on_fault(state: State, question: Question, fault: Fault) -> Final | None:
    return passed_or_refused(state, question, fault, state.settings.cpus.on_error, state.settings.cpus.mode)


def is_active(cpus: Cpus) -> bool:
    """Whether a policy that pins is in force, or was before this one."""
    return bool(cpus.held) or cpus.rules.active not in NO_POLICY


def divides_by_use(cpus: Cpus) -> bool:
    """Whether the policy in force wants to know how much CPUs are used."""
    return bool(cpus.held) and policy_of(cpus.rules.active).rebalance is not None


def counts_memory(state: State) -> bool:
    """Whether memory is counted by nodes: a policy holds some container to a few of several."""
    is_off = state.settings.cpus.mode is Mode.OFF
    return not is_off and any(grant.zone for grant in state.cpus.pools.grants.values())


def is_unfit(cpus: Cpus) -> bool:
    """Whether nothing is pinned since the settings at the start do not fit the machine."""
    return bool(cpus.refused) and not cpus.in_force


# ---- a container comes, or changes


def _undecided(state: State, event: ev.Creating) -> Decision:
    """While no settings fit, `cpus.on_error` answers."""
    rule, home = state.settings.cpus, event.sandbox
    if rule.on_error is OnError.PASS or rule.mode is not Mode.ENFORCE:
        return NOTHING
    message = (
        f"{home.namespace}/{home.name}, container {event.container.name}: the policy {state.settings.policy.active} "
        f"does not fit this machine ({state.cpus.refused[0]}), and cpus.on_error is refuse; see nodeward doctor"
    )
    return Decision(Final(Refusal(message, Refused.FAULT), Reason("refused", (message,))))


def _creating(state: State, event: ev.Creating) -> tuple[Cpus, Decision]:
    ask = ask_of(state, event.sandbox, event.container)
    ask = replace(ask, hints=event.hints.found, unhinted=event.hints.faults)
    after = _admit(state, ask)
    if isinstance(after, Denied):
        return _denied(state, event.sandbox, event.container, after)
    classes, faults = classes_of(ask, after.grants[ask.key], state.cpus.rules)
    cpus, decision = _given(state, after, event, classes)
    notes = tuple(Reason("cpus-source", (_named(ask), fault)) for fault in (*ask.faults, *faults, *ask.unhinted))
    return cpus, replace(decision, notes=notes) if notes else decision


def _updating(state: State, event: ev.Updating) -> tuple[Cpus, Decision]:
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
    return admitted(Ground(machine, state.cpus.rules), state.cpus.pools, ask, _kept(state))


def _kept(state: State) -> CpuSet:
    """The CPUs of containers that stay where they are, since nobody could read what they ask for."""
    kept = 0
    if state.cpus.unplaced:
        for container_id, held in state.cpus.held.items():
            known = state.pods.containers.get(container_id)
            if known is not None and known.container.cpu.unread and held.key in state.cpus.unplaced:
                kept |= held.has or known.container.cpu.cpus
    return kept


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
    goals = _goals(replace(state, cpus=cpus), state.cpus.pools)
    return cpus, Decision(Final(answer, grant.reason), goals=goals)


# ---- containers that are there


def _there(state: State, ids: Sequence[ContainerId], late: bool = False, listed: bool = False) -> tuple[Cpus, Decision]:
    """Containers that exist: those that nobody asked about get a place, and all are to have what is theirs. `late`: the
    pod's spec has come; who was placed by less is placed by it. `listed`: the runtime has told its record of each; who
    was resized while it told nothing is placed by that."""
    newcomers = list[Ask]()
    new_held = dict[ContainerId, Held]()
    bare = list[ContainerId]()
    """They run, and neither an answer nor a goal has given them their set."""
    freed = list[str]()
    """They were placed before all of their labels were known."""
    cold = dict[str, int]()
    """When those that have begun without DRAM get it."""
    for container_id in ids:
        known = state.pods.containers.get(container_id)
        told = named(state, known) if known is not None else None
        if known is None or told is None:
            continue
        home, one = told
        before = state.cpus.held.get(container_id)
        held = _known(state, before, one, known)
        if held is not before:
            new_held[container_id] = held
        elif _is_bare(state, held, one):
            bare.append(container_id)
        grant = state.cpus.pools.grants.get(held.key)
        read_now = grant is not None and grant.source == UNREAD and not one.cpu.unread
        resized = listed and grant is not None and is_resized(state, home, one, grant.request_m)
        relabelled = grant is not None and grant.waits and _is_labelled(state, home, one)
        if relabelled:
            freed.append(held.key)
        if grant is not None and grant.cold_ns and one.phase is Phase.RUNNING and held.key not in state.cpus.cold:
            cold[held.key] = grant.warm_ns or state.at_ns + grant.cold_ns
        if (
            grant is None
            or claims.may_return(state.cpus.pools, grant)
            or read_now
            or resized
            or relabelled
            or (late and _says_more(state, grant.source, home.pod_uid))
        ):
            own, pool = recorded.had(state, held.key)
            has = own or held.has or one.cpu.cpus
            ask = ask_of(state, home, one, has, held.mems, resize=_is_by_record(grant, one))
            newcomers.append(replace(ask, own=recorded.own(state, held.key), was=pool) if own else ask)
    before_pools = state.cpus.pools
    cpus = state.cpus if not new_held else replace(state.cpus, held=beside(state.cpus.held, new_held))
    if cold:  # on record too: a daemon that begins anew goes on with the time that is left
        grants = {key: replace(cpus.pools.grants[key], warm_ns=due) for key, due in cold.items()}
        pools = Pools(cpus.pools.pools, beside(cpus.pools.grants, grants))
        cpus = replace(cpus, cold=beside(cpus.cold, cold), pools=pools)
    machine = cpus.machine
    if newcomers and machine is not None:
        placed = _placed(replace(state, cpus=cpus), Ground(machine, cpus.rules), newcomers, freed)
        denied = {key: why for key, why in placed.denied.items() if key not in placed.pools.grants}
        unplaced = beside(without(cpus.unplaced, [ask.key for ask in newcomers]), denied)
        cpus = replace(cpus, pools=placed.pools, unplaced=unplaced)
    if cpus is state.cpus and not bare:
        return cpus, NOTHING
    goals = _goals(replace(state, cpus=cpus), before_pools, (*new_held, *bare))
    return cpus, Decision(goals=goals) if goals else NOTHING


def _placed(state: State, ground: Ground, newcomers: Sequence[Ask], freed: Sequence[str]) -> Placed:
    """With these containers. Those of `freed` leave their place for it; who finds no other one keeps it."""
    pools = state.cpus.pools
    for key in freed:
        pools = policy_of(ground.rules.active).release(ground, pools, key)
    placed = all_placed(ground, pools, newcomers, _kept(state))
    stay = [key for key in freed if key in placed.denied]
    if not stay:
        return placed
    return _placed(
        state,
        ground,
        [ask for ask in newcomers if ask.key not in stay],
        [key for key in freed if key not in stay],
    )


def _is_labelled(state: State, home: Sandbox, one: Container) -> bool:
    """Whether all labels that the settings name were told of it."""
    return all(key in home.labels or key in one.labels for key in label_keys(state))


def _is_bare(state: State, held: Held, one: Container) -> bool:
    is_told = bool(held.has or held.asked)
    return state.settings.cpus.mode is Mode.ENFORCE and one.phase is Phase.RUNNING and not is_told


def _says_more(state: State, source: str, uid: PodUid) -> bool:
    """Whether a grant was decided by less than the spec that is known now."""
    known = state.pods.specs.get(uid)
    return known is not None and source != known.spec.source.value


def _is_by_record(grant: Grant | None, one: Container) -> bool:
    """Whether the runtime's record decided the grant, as at a resize: that is not taken back by a spec that the API
    server told late."""
    return grant is not None and grant.source == ESTIMATE and one.cpu.shares != grant.shares


def _known(state: State, before: Held | None, one: Container, known: KnownContainer) -> Held:
    """What is held of a container, with what is told of it now."""
    path = one.cgroups_path
    if before is None:
        key = key_of(known.pod_uid, one.name)
        made = _at_create(state, key)
        mems = made.mems_asked or recorded.mems_of(state, key) or one.cpu.mems
        held = Held(key, path, given=made.given, mems=mems, mems_asked=mems)
    elif path and path != before.path:
        held = replace(before, path=path)
    else:
        held = before
    if one.phase is Phase.RUNNING and not held.has and held.given and not held.seq:
        # its cgroup was made by the runtime's record; what was decided since is a goal that follows. Not once something
        # was read of it: a set that is lost since is not what the record says
        return replace(held, has=held.given, since_ns=state.at_ns, seq=state.seq)
    return held


def _at_create(state: State, key: str) -> Held:
    """What the answer to the container's create gave it, where it was known by another id then, as by CRI."""
    held = state.cpus.held
    return next((held[one] for one in state.pods.creating if one in held and held[one].key == key), Held(key))


# ---- a container, or a pod, goes


def _pruned(state: State) -> tuple[State, Decision]:
    """Without the containers and pods that are known no more, and what follows for others."""
    cpus, pods = state.cpus, state.pods
    gone = [one for one in cpus.held if pods.container(one) is None]
    held = without(cpus.held, gone)
    live = dict.fromkeys((*(one.key for one in held.values()), *recorded.awaited(state)))
    policy = policy_of(cpus.rules.active)
    ended = [
        key
        for key, grant in cpus.pools.grants.items()
        if key not in live and not (_is_lasting(policy, grant) and _stands(state, key))
    ]
    if not gone and not ended:
        return state, NOTHING
    pools = cpus.pools
    machine = cpus.machine
    if machine is not None:
        for key in ended:
            pools = policy.release(Ground(machine, cpus.rules), pools, key)
    pools = claims.tidied(replace(state, cpus=replace(cpus, pools=pools)))
    after = replace(
        cpus,
        held=held,
        pools=pools,
        misses=without(cpus.misses, gone),
        memory_misses=without(cpus.memory_misses, gone),
        memory_used=without(cpus.memory_used, gone),
        unplaced=without(cpus.unplaced, [key for key in cpus.unplaced if key not in live]),
        cold=without(cpus.cold, ended),
    )
    after = claims.as_placed(after)
    forget = _targets(cpus.held[one] for one in gone)
    new = replace(state, cpus=after)
    return new, Decision(goals=_goals(new, cpus.pools), forget=forget)


def _is_lasting(policy: Policy, grant: Grant) -> bool:
    """Whether the grant is kept for the next try of its container, until the pod ends."""
    return policy.keeps if grant.own else bool(grant.pool) and policy.keeps_pools


def _stands(state: State, key: str) -> bool:
    """Whether the container's pod still runs: its own CPUs are kept for the next try of the container."""
    uid = PodUid(key.rpartition("/")[0])
    spec = state.pods.specs.get(uid)
    return uid in state.pods.sandbox_of and not (spec is not None and spec.spec.terminal)


# ---- the machine, the settings


def _topology(state: State, machine: Machine) -> tuple[Cpus, Decision]:
    if machine == latest(state.cpus):
        return state.cpus, NOTHING
    return _anew(state, machine)


def _recalled(state: State, event: CpusRecalled) -> tuple[Cpus, Decision]:
    """What was recorded counts until the runtime has told which containers are left of it."""
    why = event.fault or (recorded.fault(event.recorded) if event.recorded is not None else "")
    if why or event.recorded is None:
        return state.cpus, Decision(notes=(Reason("cpus-record-void", (why,)),)) if why else NOTHING
    cpus = replace(state.cpus, recorded=event.recorded)
    if cpus.machine is None:
        return cpus, NOTHING
    return _anew(replace(state, cpus=cpus), latest(cpus))


def latest(cpus: Cpus) -> Machine | None:
    """The machine as it was read last."""
    return cpus.newer or cpus.machine


def _settings(state: State) -> tuple[Cpus, Decision]:
    cpus, mode = state.cpus, state.settings.cpus.mode
    if mode is Mode.OFF:
        forget = _targets(cpus.held.values())
        return Cpus(latest(cpus), drifts=cpus.drifts, late=cpus.late, by_claim=cpus.by_claim), Decision(forget=forget)
    if state.settings.policy == cpus.rules and cpus.pools.pools:
        cpus = replace(cpus, held=_unasked(cpus.held))
        goals = _goals(replace(state, cpus=cpus), cpus.pools, tuple(cpus.held))  # the mode may be another
        return (replace(cpus, refused=()) if cpus.refused else cpus), Decision(goals=goals)
    return _anew(state, latest(cpus))


def _anew(state: State, machine: Machine | None) -> tuple[Cpus, Decision]:
    """Everything by the settings as they are now on this machine, if they fit; else by those in force; if these do not
    fit it either, as before on the machine as it was."""
    cpus, rules = state.cpus, state.settings.policy
    if machine is None or state.settings.cpus.mode is Mode.OFF:
        return replace(cpus, machine=machine, newer=None), NOTHING
    found = _fitted(state, Ground(machine, rules))
    if isinstance(found, Placed):
        return _taken(state, Ground(machine, rules), found)
    if not cpus.in_force:
        return _by_record(state, machine, found)
    refusal = NOTHING
    if rules != cpus.rules:
        cpus, refusal = _refused(cpus, found)
        if machine is cpus.machine:
            return cpus, refusal
        found = _fitted(state, Ground(machine, cpus.rules))
        if isinstance(found, Placed):
            after, decision = _taken(state, Ground(machine, cpus.rules), found)
            return replace(after, refused=cpus.refused), _both(refusal, decision)
    notes = () if machine == cpus.newer else (Reason("cpus-machine-kept", found),)
    return replace(cpus, newer=machine), _both(refusal, Decision(notes=notes))


def _by_record(state: State, machine: Machine, why: tuple[str, ...]) -> tuple[Cpus, Decision]:
    """At a start where the settings do not fit (`why`): those that were in force before, on the machine as it was."""
    known = state.cpus.recorded
    found = _fitted(state, Ground(known.machine, known.rules)) if known is not None else why
    if known is None or not isinstance(found, Placed):
        return _refused(replace(state.cpus, machine=machine), why)
    after, decision = _taken(state, Ground(known.machine, known.rules), found)
    after, refusal = _refused(replace(after, newer=machine if machine != known.machine else None), why)
    return after, _both(decision, refusal)


def _fitted(state: State, ground: Ground) -> Placed | tuple[str, ...]:
    """Where all containers are by these settings on this machine; why these settings do not fit."""
    pools = recorded.begun_with(state, ground)
    if isinstance(pools, Denied):
        return (pools.why,)
    if why := claims.unfit(state, ground):
        return (why,)
    pools = claims.with_pools(state, ground, pools)
    cpus, asks = state.cpus, _asks_of_all(state)
    placed = all_placed(ground, pools, asks)
    lost = [ask for ask in asks if ask.key in placed.denied and ask.key not in cpus.unplaced and not ask.unclaimed]
    if lost and ground.rules != cpus.rules:
        return tuple(f"{_named(ask)}: {placed.denied[ask.key]}" for ask in lost)
    return placed


def _taken(state: State, ground: Ground, placed: Placed) -> tuple[Cpus, Decision]:
    """These settings are in force on this machine, and all containers are to be where they are placed."""
    cpus = state.cpus
    held = _unasked(cpus.held)
    for container_id, known in state.pods.containers.items():
        told = named(state, known)
        if container_id not in held and told is not None:
            held[container_id] = Held(key_of(known.pod_uid, told[1].name), known.container.cgroups_path)
    after = replace(
        cpus,
        machine=ground.machine,
        rules=ground.rules,
        pools=placed.pools,
        held=held,
        refused=(),
        unplaced=placed.denied,
        in_force=True,
        newer=None,
    )
    after = claims.as_placed(after)
    goals = _goals(replace(state, cpus=after), cpus.pools, tuple(held))
    if not after.pools.pools and not any(one.has or one.given for one in held.values()):
        after = replace(after, held={}, pools=Pools())  # nothing was pinned, and nothing is
    waiting = sum(grant.waits for grant in after.pools.grants.values())
    names = ", ".join(sorted(label_keys(replace(state, cpus=after))))
    notes = (Reason("cpus-labels-unread", (waiting, names)),) if waiting else ()
    return after, Decision(goals=goals, notes=(*notes, *list(_short(after.pools))[:10]))


def _short(at: Pools) -> Iterator[Reason]:
    """Pools with fewer CPUs than their containers request, where that is nothing usual."""
    for name, pool in at.pools.items():
        requested_m = sum(at.grants[key].part_m for key in pool.members)
        if pool.apart and not is_claim(name) and requested_m > 1000 * pool.cpus.bit_count():
            yield Reason("cpus-short", (name, text(pool.cpus), requested_m))


def _unasked(held: Mapping[ContainerId, Held]) -> dict[ContainerId, Held]:
    """Every goal that was not reached yet is to be given again."""
    return {one: replace(of, asked=0) if of.asked else of for one, of in held.items()}


def _refused(cpus: Cpus, why: tuple[str, ...]) -> tuple[Cpus, Decision]:
    notes = () if cpus.refused == why else tuple(Reason("policy-refused", (one,)) for one in why[:10])
    return replace(cpus, refused=why), Decision(notes=notes)


def _asks_of_all(state: State) -> list[Ask]:
    """What every container asks that is there, in the order in which they came, with the CPUs that are its own now; and
    those that are kept for a container that is about to be tried again."""
    cpus = state.cpus
    asks = dict[str, Ask]()
    for container_id, known in state.pods.containers.items():
        told = named(state, known)
        if told is None:
            continue
        home, one = told
        held, grant = cpus.held.get(container_id), cpus.pools.grants.get(key_of(home.pod_uid, one.name))
        own, pool = recorded.had(state, key_of(home.pod_uid, one.name))
        has = own or (held.has if held is not None else 0) or one.cpu.cpus
        if grant is not None and apart(cpus.pools, grant):
            has = grant.own or set_of(cpus.pools, grant)  # also while that is not read back yet
        mems = held.mems if held is not None else one.cpu.mems
        ask = ask_of(state, home, one, has, mems, resize=_is_by_record(grant, one))
        alone = grant.own if grant is not None else recorded.own(state, ask.key)
        asks[ask.key] = replace(ask, own=alone, was=grant.pool if grant is not None else pool)
    for key, grant in cpus.pools.grants.items():
        sandbox_id = state.pods.sandbox_of.get(PodUid(key.rpartition("/")[0]))
        if key not in asks and _is_lasting(policy_of(cpus.rules.active), grant) and sandbox_id is not None:
            home = state.pods.sandboxes[sandbox_id].sandbox
            one = Container(ContainerId(""), home.id, key.rpartition("/")[2])
            ask = ask_of(state, home, one, grant.own or set_of(cpus.pools, grant))
            asks[key] = ask if ask.known else replace(ask, request_m=grant.request_m, qos=Qos.GUARANTEED, known=True)
    return list(asks.values())


def _named(ask: Ask) -> str:
    return f"{ask.namespace}/{ask.pod}, container {ask.container}"


# ---- goals and what becomes of them


def _goals(state: State, before: Pools, touched: Iterable[ContainerId] = ()) -> tuple[Goal, ...]:
    """A goal for each set that has changed since `before`, with every cgroup that is to have it, and for the containers
    that something was just told of (`touched`) where they do not have theirs. Sets that shrink come first."""
    cpus = state.cpus
    keys = dict.fromkeys(changed(before, cpus.pools)) if before is not cpus.pools else {}
    ids = [one for one, held in cpus.held.items() if held.key in keys]
    ids += [one for one in touched if one in cpus.held and cpus.held[one].key not in keys]
    places = dict[CpuSet, list[str]]()
    shrinks = dict[CpuSet, bool]()
    for one in ids:
        held, known = cpus.held[one], state.pods.containers.get(one)
        to = wanted(cpus.pools, held.key)
        if not held.path or known is None or known.container.phase is not Phase.RUNNING:
            continue
        if not to and (held.has or held.given) and cpus.machine is not None and held.key not in cpus.unplaced:
            to = cpus.machine.online  # pinned by an earlier policy, and by nobody now
        if to and to != (held.asked or held.has):
            places.setdefault(to, []).append(held.path)
            shrinks[to] = shrinks.get(to, False) or bool(held.has & ~to) or not held.has
    perform = state.settings.cpus.mode is Mode.ENFORCE
    order = sorted(places, key=lambda to: not shrinks[to])
    return tuple(
        Goal(Target(KIND, paths[0], "cpus"), text(to), Reason("cpus-changed"), perform=perform, also=tuple(paths[1:]))
        for to, paths in ((to, places[to]) for to in order)
    )


def _outcome(state: State, event: ev.Reached | ev.Missed) -> tuple[Cpus, Decision]:
    cpus = state.cpus
    at = {held.path: one for one, held in cpus.held.items() if held.path}
    if isinstance(event, ev.Missed):
        missed, short = dict[ContainerId, str](), dict[ContainerId, str]()
        for target, why in event.why:
            if target.where in at:
                (missed if target.kind == KIND else short)[at[target.where]] = why
        misses, memory_misses = beside(cpus.misses, missed), beside(cpus.memory_misses, short)
        return replace(cpus, misses=misses, memory_misses=memory_misses), NOTHING
    mended = [at[target.where] for target in event.targets if target.kind == memory.KIND and target.where in at]
    cpus = replace(cpus, memory_misses=without(cpus.memory_misses, mended)) if cpus.memory_misses else cpus
    ids = [at[target.where] for target in event.targets if target.kind == KIND and target.where in at]
    new = dict[ContainerId, Held]()
    for one in ids:
        held = cpus.held[one]
        to = wanted(cpus.pools, held.key)
        if held.has != to or held.asked:
            new[one] = held.read_back(to, event.at_ns, event.seq)
    return replace(cpus, held=beside(cpus.held, new), misses=without(cpus.misses, ids)), NOTHING


def _read(state: State, event: ev.CpusetsRead) -> tuple[Cpus, Decision]:
    """Somebody else has written, or taken away, a set that we had read back: it is written again."""
    cpus = state.cpus
    new = dict[ContainerId, Held]()
    for one, held in cpus.held.items():
        to, known = wanted(cpus.pools, held.key), held.has | held.may
        if not to or held.seq > event.as_of or not held.has or not (held.asked or held.has == to):
            continue
        has = 0 if held.path in event.lost else event.sets.get(held.path, held.has)
        if has == held.has or (held.asked and has and not has & ~known):
            continue  # as it was, or as a write that is under way makes it
        nodes = held.mems_asked if has else 0  # who takes the controller takes the memory nodes too
        new[one] = replace(held, has=has, mems_asked=nodes, since_ns=event.at_ns, seq=event.seq)
    if not new:
        return cpus, NOTHING
    drifts = cpus.drifts + (0 if event.hangs else len(new))
    after = replace(cpus, held=beside(cpus.held, new), drifts=drifts)
    goals = _goals(replace(state, cpus=after), after.pools, tuple(new))
    notes = tuple(
        Reason("cpus-drift", (held.path, text(held.has)))
        if held.path not in event.lost
        else Reason("cpus-lost", (held.path, event.lost[held.path]))
        for held in list(new.values())[:10]
    )
    return after, Decision(goals=goals, notes=notes)


def _used(state: State, event: ev.CpusUsed) -> tuple[Cpus, Decision]:
    cpus = state.cpus
    rebalance = policy_of(cpus.rules.active).rebalance
    if rebalance is None or cpus.machine is None:
        return cpus, NOTHING
    pools = rebalance(Ground(cpus.machine, cpus.rules), cpus.pools, event.used)
    after = replace(cpus, pools=pools)
    return after, Decision(goals=_goals(replace(state, cpus=after), cpus.pools))


def _memory_used(state: State, event: ev.MemoryUsed) -> tuple[Cpus, Decision]:
    cpus = state.cpus
    now = beside(cpus.memory_used, event.used)
    return replace(cpus, memory_used={one: used for one in cpus.held if (used := now.get(one))}), NOTHING


def _late(state: State, event: ev.StartLate) -> Reason:
    held = state.cpus.held.get(event.container_id)
    paths = [other.path for one in event.others if (other := state.cpus.held.get(one)) is not None]
    return Reason("cpus-late", (held.key if held else str(event.container_id), event.refused, *paths[:5]))


def _targets(of: Iterable[Held]) -> tuple[Target, ...]:
    """Every target of these containers that there may be a goal for."""
    paths = [held.path for held in of if held.path]
    kinds = ((KIND, "cpus"), (memory.KIND, "memory"))
    return tuple(Target(kind, path, resource) for kind, resource in kinds for path in paths)


def _both(one: Decision, two: Decision) -> Decision:
    return replace(two, goals=one.goals + two.goals, forget=one.forget + two.forget, notes=one.notes + two.notes)


def _there_now(state: State, event: ev.Created | ev.Started | ev.Updated) -> tuple[Cpus, Decision]:
    return _there(state, (event.container.id,))


def _listed(state: State, event: ev.Listed | ev.CgroupsFound | ev.PodsListed) -> tuple[Cpus, Decision]:
    state, ended = _pruned(state)
    after, decision = _there(state, tuple(state.pods.containers), listed=isinstance(event, ev.Listed))
    return after, _both(ended, decision)


def _pod_seen(state: State, event: ev.PodSeen) -> tuple[Cpus, Decision]:
    uid = PodUid(event.pod.config_hash or event.pod.uid)
    state, ended = _pruned(state) if event.pod.terminal else (state, NOTHING)
    after, decision = _there(state, state.pods.by_pod.get(uid, ()), late=True)
    return after, _both(ended, decision)


def _started_late(state: State, event: ev.StartLate) -> tuple[Cpus, Decision]:
    return replace(state.cpus, late=state.cpus.late + 1), Decision(notes=(_late(state, event),))


def _abandoned(state: State, event: ev.Abandoned) -> tuple[Cpus, Decision]:
    ask = state.asks.get(event.ask_id)
    return (state.cpus, NOTHING) if ask is None or ask.creating is None else _may_have_ended(state, event)


def _may_have_ended(state: State, _: ev.Event) -> tuple[Cpus, Decision]:
    """A container or a pod may be known no more."""
    state, decision = _pruned(state)
    return state.cpus, decision


def next_wake(state: State) -> int | None:
    """When the next container gets its DRAM."""
    return min(state.cpus.cold.values(), default=None)


def _tick(state: State, event: ev.Tick) -> tuple[Cpus, Decision]:
    """Containers may have ended, and those get DRAM whose time without it is over."""
    state, decision = _pruned(state)
    cpus, machine = state.cpus, state.cpus.machine
    due = [key for key, at_ns in cpus.cold.items() if at_ns <= event.at_ns]
    if not due or machine is None:
        return cpus, decision
    there = [key for key in due if key in cpus.pools.grants]
    pools = warmed(Ground(machine, cpus.rules), cpus.pools, there)
    return replace(cpus, pools=pools, cold=without(cpus.cold, due)), decision


def _unless_idle(hear: Hear[State]) -> Hear[State]:
    """Nothing is decided without a machine and a policy that pins; a create is passed or refused meanwhile."""

    def heard(state: State, event: ev.Event) -> tuple[object, Decision]:
        cpus = state.cpus
        if is_unfit(cpus) and isinstance(event, ev.Creating):
            return cpus, _undecided(state, event)
        return (cpus, NOTHING) if _is_idle(state) else hear(state, event)

    return heard


def _is_idle(state: State) -> bool:
    return state.cpus.machine is None or state.settings.cpus.mode is Mode.OFF or not is_active(state.cpus)


def _followed(hear: Hear[State]) -> Hear[State]:
    """With what follows for memory nodes, and with what the cpusets are asked to be."""

    def heard(state: State, event: ev.Event) -> tuple[object, Decision]:
        if isinstance(event, ev.Listed) and event.complete and not state.cpus.listed:
            state = replace(state, cpus=replace(state.cpus, listed=True))
        cpus, decision = hear(state, event)
        assert isinstance(cpus, Cpus)
        if cpus.recorded is not None and cpus.listed and cpus.in_force and cpus.machine is not None:
            cpus = replace(cpus, recorded=None)  # who is left of it has its CPUs again
        cpus, decision = memory.followed(state, cpus, decision)
        asked = dict[str, CpuSet]()
        for goal in decision.goals:
            if goal.perform and goal.target.kind == KIND:
                asked.update(dict.fromkeys((goal.target.where, *goal.also), parse(str(goal.value))))
        if not asked:
            return cpus, decision
        new = {one: held.told(to) for one, held in cpus.held.items() if held.path and (to := asked.get(held.path, 0))}
        return replace(cpus, held=beside(cpus.held, new)), decision

    return heard


def _preparing(state: State, event: ev.Preparing) -> tuple[Cpus, Decision]:
    if event.driver != state.settings.cpus.dra.driver or not claims.are_sold(state):
        return state.cpus, NOTHING
    cpus, final = claims.preparing(state, event)
    return cpus, Decision(final, goals=_goals(replace(state, cpus=cpus), state.cpus.pools))


def _of_ours(change: Callable[[State, Any], Cpus]) -> Hear[State]:
    """What an event about our driver changes, for the pools and containers of the claims too."""

    def heard(state: State, event: Any) -> tuple[Cpus, Decision]:
        if event.driver != state.settings.cpus.dra.driver:
            return state.cpus, NOTHING
        before, cpus = state.cpus, change(state, event)
        machine = cpus.machine
        if cpus.by_claim.claims is before.by_claim.claims and cpus.by_claim.recalled is before.by_claim.recalled:
            return cpus, NOTHING
        state = replace(state, cpus=cpus)
        if machine is not None and cpus.in_force:
            pools = claims.with_pools(state, Ground(machine, cpus.rules), claims.tidied(state))
            state = replace(state, cpus=claims.as_placed(replace(cpus, pools=pools)))
        goals = _goals(state, before.pools)
        after, decision = (state.cpus, NOTHING) if _is_idle(state) else _there(state, tuple(state.pods.containers))
        return after, replace(decision, goals=(*goals, *decision.goals))

    return heard


def _selling(hear: Hear[State]) -> Hear[State]:
    """What is published by claim follows from what the event has changed."""

    def heard(state: State, event: ev.Event) -> tuple[object, Decision]:
        cpus, decision = hear(state, event)
        if state.settings.cpus.dra.mode is Mode.OFF and not state.cpus.by_claim.slices:
            return cpus, decision
        assert isinstance(cpus, Cpus)
        before = state.cpus
        is_same = cpus.pools is before.pools and cpus.by_claim is before.by_claim and cpus.machine is before.machine
        if is_same and cpus.listed is before.listed and not isinstance(event, SettingsChanged):
            return cpus, decision
        cpus, news = claims.published(state, cpus)
        return cpus, replace(decision, goals=(*decision.goals, *news.goals)) if news.goals else decision

    return heard


_BY_CLAIM: Mapping[type[ev.Event], Hear[State]] = {
    ev.Preparing: _preparing,
    ev.Unprepared: _of_ours(claims.unprepared),
    ev.ClaimsRecalled: _of_ours(claims.recalled),
    ev.DriverTold: _of_ours(claims.told),
}
_WITH_A_POLICY: Mapping[type[ev.Event], Hear[State]] = {
    ev.Creating: _creating,
    ev.Updating: _updating,
    ev.Created: _there_now,
    ev.Started: _there_now,
    ev.Updated: _there_now,
    ev.Listed: _listed,
    ev.CgroupsFound: _listed,
    ev.PodsListed: _listed,
    ev.PodSeen: _pod_seen,
    ev.Reached: _outcome,
    ev.Missed: _outcome,
    ev.CpusetsRead: _read,
    ev.CpusUsed: _used,
    ev.MemoryUsed: _memory_used,
    ev.StartLate: _started_late,
    ev.Abandoned: _abandoned,
    ev.SandboxStopped: _may_have_ended,
    ev.SandboxRemoved: _may_have_ended,
    ev.Stopped: _may_have_ended,
    ev.Removed: _may_have_ended,
    ev.CreateFailed: _may_have_ended,
    ev.Tick: _tick,
    ev.PodGone: _may_have_ended,
}
HEARS: Mapping[type[ev.Event], Hear[State]] = {
    ev.TopologyRead: _selling(_followed(lambda state, event: _topology(state, event.machine))),
    SettingsChanged: _selling(_followed(lambda state, _: _settings(state))),
    CpusRecalled: _followed(_recalled),
    **{kind: _selling(_followed(_unless_idle(hear))) for kind, hear in _WITH_A_POLICY.items()},
    **{kind: _selling(_followed(hear)) for kind, hear in _BY_CLAIM.items()},
}
