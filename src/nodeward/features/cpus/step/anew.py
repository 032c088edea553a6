"""The machine or the settings change: everything is decided anew by them, or by those before where they do not fit."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from nodeward.core.cpuset import text
from nodeward.core.decision import NOTHING, Decision
from nodeward.core.modes import Mode
from nodeward.core.refusal import Reason
from nodeward.core.topology import Machine
from nodeward.core.workload import Container, ContainerId, PodUid, Qos
from nodeward.features.cpus import claims, recorded
from nodeward.features.cpus.ask import ask_of, key_of, label_keys, named, title_of
from nodeward.features.cpus.place import Placed, all_placed
from nodeward.features.cpus.policies.claims import is_claim
from nodeward.features.cpus.policies.table import policy_of
from nodeward.features.cpus.pools import apart, set_of
from nodeward.features.cpus.state import Cpus, Held, latest
from nodeward.features.cpus.step.goals import both, goals_of, targets_of
from nodeward.features.cpus.step.there import is_by_record, is_lasting
from nodeward.features.cpus.values import Ask, CpusRecalled, Denied, Ground, Pools
from nodeward.features.root import State


def on_topology(state: State, machine: Machine) -> tuple[Cpus, Decision]:
    """The machine was read; another one than before is decided for anew."""
    if machine == latest(state.cpus):
        return state.cpus, NOTHING
    return _anew(state, machine)


def on_recalled(state: State, event: CpusRecalled) -> tuple[Cpus, Decision]:
    """What was recorded counts until the runtime has told which containers are left of it."""
    why = event.fault or (recorded.fault(event.recorded) if event.recorded is not None else "")
    if why or event.recorded is None:
        return state.cpus, Decision(notes=(Reason("cpus-record-void", (why,)),)) if why else NOTHING
    cpus = replace(state.cpus, recorded=event.recorded)
    if cpus.machine is None:
        return cpus, NOTHING
    return _anew(replace(state, cpus=cpus), latest(cpus))


def on_settings(state: State) -> tuple[Cpus, Decision]:
    """There are settings: other ones are decided by anew, and with the mode `off` nothing is held any more."""
    cpus, mode = state.cpus, state.settings.cpus.mode
    if mode is Mode.OFF:
        forget = targets_of(cpus.held.values())
        return Cpus(latest(cpus), drifts=cpus.drifts, late=cpus.late, by_claim=cpus.by_claim), Decision(forget=forget)
    if state.settings.policy == cpus.rules and cpus.pools.pools:
        cpus = replace(cpus, held=_unasked(cpus.held))
        goals = goals_of(replace(state, cpus=cpus), cpus.pools, tuple(cpus.held))  # the mode may be another
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
            return replace(after, refused=cpus.refused), both(refusal, decision)
    notes = () if machine == cpus.newer else (Reason("cpus-machine-kept", found),)
    return replace(cpus, newer=machine), both(refusal, Decision(notes=notes))


def _by_record(state: State, machine: Machine, why: tuple[str, ...]) -> tuple[Cpus, Decision]:
    """At a start where the settings do not fit (`why`): those that were in force before, on the machine as it was."""
    known = state.cpus.recorded
    found = _fitted(state, Ground(known.machine, known.rules)) if known is not None else why
    if known is None or not isinstance(found, Placed):
        return _refused(replace(state.cpus, machine=machine), why)
    after, decision = _taken(state, Ground(known.machine, known.rules), found)
    after, refusal = _refused(replace(after, newer=machine if machine != known.machine else None), why)
    return after, both(decision, refusal)


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
        return tuple(f"{title_of(ask)}: {placed.denied[ask.key]}" for ask in lost)
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
    goals = goals_of(replace(state, cpus=after), cpus.pools, tuple(held))
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
        ask = ask_of(state, home, one, has, mems, resize=is_by_record(grant, one))
        alone = grant.own if grant is not None else recorded.own(state, ask.key)
        asks[ask.key] = replace(ask, own=alone, was=grant.pool if grant is not None else pool)
    for key, grant in cpus.pools.grants.items():
        sandbox_id = state.pods.sandbox_of.get(PodUid(key.rpartition("/")[0]))
        if key not in asks and is_lasting(policy_of(cpus.rules.active), grant) and sandbox_id is not None:
            home = state.pods.sandboxes[sandbox_id].sandbox
            one = Container(ContainerId(""), home.id, key.rpartition("/")[2])
            ask = ask_of(state, home, one, grant.own or set_of(cpus.pools, grant))
            asks[key] = ask if ask.known else replace(ask, request_m=grant.request_m, qos=Qos.GUARANTEED, known=True)
    return list(asks.values())
