"""Decides for whom a container's program must wait before it starts.

Read from what the kernel was read back to say (`Held.has`) and what writes under way may make of it (`Held.may`), never
from what was only decided.
"""

from nodeward.core.modes import Mode
from nodeward.core.workload import ContainerId, Phase
from nodeward.features.cpus.place import wanted
from nodeward.features.cpus.pools import apart, set_of
from nodeward.features.root import State


def in_the_way(state: State, container_id: ContainerId) -> tuple[ContainerId, ...]:
    """The running containers that may still run on this one's own CPUs, since their new set was not read back yet; the
    container itself while its own set is not there. Empty: its program may begin."""
    cpus = state.cpus
    held = cpus.held.get(container_id)
    if held is None or state.settings.cpus.mode is not Mode.ENFORCE:
        return ()
    grant = cpus.pools.grants.get(held.key)
    own = apart(cpus.pools, grant) if grant is not None else 0
    mine = wanted(cpus.pools, held.key)
    waits = (
        [container_id]
        if mine and held.path and (held.has not in (0, mine) or (not held.has and held.asked) or held.may & ~mine)
        else []
    )
    if not own:
        return tuple(waits)
    for one, other in cpus.held.items():
        if one == container_id or other.key in cpus.unplaced or (other.has and not (other.has | other.may) & own):
            continue
        known, theirs = state.pods.containers.get(one), cpus.pools.grants.get(other.key)
        if theirs is not None and not theirs.own and not set_of(cpus.pools, theirs):
            continue  # nobody holds it to any CPUs
        if known is not None and known.container.phase is Phase.RUNNING and wanted(cpus.pools, other.key) & own == 0:
            waits.append(one)
    return tuple(waits)
