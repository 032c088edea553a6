"""Containers that are there get a place and what is theirs; those that have gone leave theirs."""

from collections.abc import Sequence
from dataclasses import replace

from nodeward.core.cpuset import CpuSet
from nodeward.core.decision import NOTHING, Decision
from nodeward.core.modes import Mode
from nodeward.core.tables import beside, without
from nodeward.core.workload import Container, ContainerId, Phase, PodUid, Sandbox
from nodeward.features.cpus import claims, recorded
from nodeward.features.cpus.ask import ask_of, is_resized, key_of, label_keys, named
from nodeward.features.cpus.place import Placed, all_placed
from nodeward.features.cpus.policies.table import policy_of
from nodeward.features.cpus.policy import Policy
from nodeward.features.cpus.requested import ESTIMATE, UNREAD
from nodeward.features.cpus.state import Cpus, Held
from nodeward.features.cpus.step.goals import goals_of, targets_of
from nodeward.features.cpus.values import Ask, Grant, Ground, Pools
from nodeward.features.pods.state import KnownContainer
from nodeward.features.root import State


def all_there(
    state: State, ids: Sequence[ContainerId], late: bool = False, listed: bool = False
) -> tuple[Cpus, Decision]:
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
            ask = ask_of(state, home, one, has, held.mems, resize=is_by_record(grant, one))
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
    goals = goals_of(replace(state, cpus=cpus), before_pools, (*new_held, *bare))
    return cpus, Decision(goals=goals) if goals else NOTHING


def _placed(state: State, ground: Ground, newcomers: Sequence[Ask], freed: Sequence[str]) -> Placed:
    """With these containers. Those of `freed` leave their place for it; who finds no other one keeps it."""
    pools = state.cpus.pools
    for key in freed:
        pools = policy_of(ground.rules.active).release(ground, pools, key)
    placed = all_placed(ground, pools, newcomers, kept_cpus(state))
    stay = [key for key in freed if key in placed.denied]
    if not stay:
        return placed
    return _placed(
        state,
        ground,
        [ask for ask in newcomers if ask.key not in stay],
        [key for key in freed if key not in stay],
    )


def kept_cpus(state: State) -> CpuSet:
    """The CPUs of containers that stay where they are, since nobody could read what they ask for."""
    kept = 0
    if state.cpus.unplaced:
        for container_id, held in state.cpus.held.items():
            known = state.pods.containers.get(container_id)
            if known is not None and known.container.cpu.unread and held.key in state.cpus.unplaced:
                kept |= held.has or known.container.cpu.cpus
    return kept


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


def is_by_record(grant: Grant | None, one: Container) -> bool:
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


def pruned(state: State) -> tuple[State, Decision]:
    """Without the containers and pods that are known no more, and what follows for others."""
    cpus, pods = state.cpus, state.pods
    gone = [one for one in cpus.held if pods.container(one) is None]
    held = without(cpus.held, gone)
    live = dict.fromkeys((*(one.key for one in held.values()), *recorded.awaited(state)))
    policy = policy_of(cpus.rules.active)
    ended = [
        key
        for key, grant in cpus.pools.grants.items()
        if key not in live and not (is_lasting(policy, grant) and _stands(state, key))
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
    forget = targets_of(cpus.held[one] for one in gone)
    new = replace(state, cpus=after)
    return new, Decision(goals=goals_of(new, cpus.pools), forget=forget)


def is_lasting(policy: Policy, grant: Grant) -> bool:
    """Whether the grant is kept for the next try of its container, until the pod ends."""
    return policy.keeps if grant.own else bool(grant.pool) and policy.keeps_pools


def _stands(state: State, key: str) -> bool:
    """Whether the container's pod still runs: its own CPUs are kept for the next try of the container."""
    uid = PodUid(key.rpartition("/")[0])
    spec = state.pods.specs.get(uid)
    return uid in state.pods.sandbox_of and not (spec is not None and spec.spec.terminal)
