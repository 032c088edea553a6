"""Makes rows of the containers that the relay decides.

The relay knows no cgroup (CRI's lists have none) and reads no kernel: a row has what is wanted and why, and nothing of
limit and use.
"""

from nodeward.features.limits.readings import standing
from nodeward.features.limits.rows import CgroupRow, ResourceRow, Standing
from nodeward.features.limits.want import container_wanted, declared_of, faults_of
from nodeward.features.limits.words import rule_sentence
from nodeward.features.pods.state import KnownContainer
from nodeward.features.root import State


def relayed_rows(state: State) -> tuple[CgroupRow, ...]:
    """The rows, sorted by namespace, pod and container."""
    rows = [_row(state, known) for known in state.pods.containers.values()]
    return tuple(sorted(rows, key=lambda row: (row.namespace, row.pod, row.container, row.id)))


def _row(state: State, known: KnownContainer) -> CgroupRow:
    wanted = container_wanted(state, known)
    home = state.pods.sandboxes.get(known.container.sandbox_id)
    shown = standing(state, "", wanted, 0)
    word = (Standing.RELAYED if shown is Standing.PENDING else shown).value
    names = dict.fromkeys(state.settings.limits.resources.values()) | dict.fromkeys(wanted.values)
    declared = declared_of(state, wanted)
    return CgroupRow(
        level="container",
        namespace=home.sandbox.namespace if home is not None else "",
        pod=(home.sandbox.name if home is not None else "") or str(known.pod_uid),
        container=known.container.name,
        id=str(known.container.id),
        cgroup="",
        state=word,
        source=wanted.source,
        rule=rule_sentence(wanted.reason),
        resources=tuple(
            ResourceRow(name, wanted.values.get(name), state=word, declared=declared.get(name)) for name in names
        ),
        faults=faults_of(state, wanted),
    )
