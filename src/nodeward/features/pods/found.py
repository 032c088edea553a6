"""Containers and pods that are known by their cgroups only, because the runtime has lost their events.

Such a container has no name until its pod's status tells its id; such a pod has a stand-in for its sandbox. Whatever
the runtime tells later takes their place. They end with their cgroups, since nothing else may ever tell of their end.
"""

from collections.abc import Mapping
from dataclasses import replace

from nodeward.core import events as ev
from nodeward.core.tables import copied, kept, put, without
from nodeward.core.workload import Container, ContainerId, Phase, PodUid, Role, Sandbox, SandboxId
from nodeward.features.pods.state import Ended, KnownContainer, KnownSandbox, Pods
from nodeward.features.root import State

ENDED = 256
"""So many ends are remembered, for lists that were requested before them."""


def with_ended(pods: Pods, which: str, seq: int, path: str = "") -> Pods:
    """Remembers that a container, a sandbox or a pod has ended."""
    ended = copied(pods.ended)
    before = ended.pop(which, None)
    ended[which] = Ended(seq, path or (before.path if before is not None else ""))
    if len(ended) > ENDED:
        del ended[next(iter(ended))]
    return replace(pods, ended=ended)


def is_known(pods: Pods, container_id: str) -> bool:
    """Whether a cgroup of this id belongs to a known container: a container, a sandbox (its pause container), or one
    that has ended."""
    tables = (pods.containers, pods.creating, pods.sandboxes, pods.ended)
    return any(container_id in table for table in tables)


def parents(pods: Pods) -> list[str]:
    """The cgroups of the known pods."""
    return [known.sandbox.cgroup_parent for known in pods.sandboxes.values() if known.sandbox.cgroup_parent]


@kept
def pod_cgroups(pods: Pods) -> Mapping[PodUid, str]:
    """The cgroup of each pod that has a sandbox."""
    return {uid: pods.sandboxes[sandbox_id].sandbox.cgroup_parent for uid, sandbox_id in pods.sandbox_of.items()}


def by_cgroups(pods: Pods) -> list[str]:
    """The cgroups that only the kernel reports: whoever looks whether they are there tells of their end."""
    homes = [known.sandbox.cgroup_parent for known in pods.sandboxes.values() if known.by_cgroup]
    homes += [known.sandbox.cgroup_parent for known in pods.lingering.values()]
    inside = [known.container.cgroups_path for known in pods.containers.values() if known.by_cgroup]
    return [path for path in (*homes, *inside) if path]


def homes(pods: Pods, event: ev.CgroupsFound) -> dict[str, PodUid]:
    """The pod of each found cgroup, by the cgroup's path: the one whose cgroup it lies in, else the one it names."""
    known = {path: uid for uid, path in pod_cgroups(pods).items()}
    found = {one.path: known.get(_above(one.path), one.pod_uid) for one in event.found}
    return {path: uid for path, uid in found.items() if uid}


def found(state: State, event: ev.CgroupsFound) -> Pods:
    """The slice with these containers, and with stand-ins for their unknown sandboxes."""
    pods = state.pods
    home = homes(pods, event)
    sandboxes, sandbox_of = dict(pods.sandboxes), dict(pods.sandbox_of)
    containers, by_pod = dict(pods.containers), dict(pods.by_pod)
    for one in event.found:
        if one.path not in home or is_known(pods, one.id):
            continue
        uid = home[one.path]
        if uid not in sandbox_of:
            stand_in = Sandbox(SandboxId(f"cgroup:{_above(one.path)}"), uid, "", "", cgroup_parent=_above(one.path))
            sandboxes[stand_in.id] = KnownSandbox(stand_in, event.seq, by_cgroup=True)
            sandbox_of[uid] = stand_in.id
        container = Container(one.id, sandbox_of[uid], "", Phase.RUNNING, one.path)
        containers[one.id] = KnownContainer(container, uid, event.seq, event.at_ns, by_cgroup=True)
        if one.id not in by_pod.get(uid, ()):
            by_pod[uid] = (*by_pod.get(uid, ()), one.id)
    return replace(pods, sandboxes=sandboxes, sandbox_of=sandbox_of, containers=containers, by_pod=by_pod)


def hooked(pods: Pods, event: ev.Hooked | ev.Creating, one: Container) -> Pods:
    """The slice with a container that the OCI hook reported; it ends with its cgroup."""
    before = pods.containers.get(one.id)
    if before is not None and not before.by_cgroup:
        return pods
    uid = event.sandbox.pod_uid
    known = KnownContainer(one, uid, event.seq, event.at_ns, by_cgroup=True)
    mates = [mate for mate in pods.by_pod.get(uid, ()) if mate != one.id]
    creating = without(pods.creating, (one.id,))
    by_pod = put(pods.by_pod, uid, (*mates, one.id))
    return replace(pods, containers=put(pods.containers, one.id, known), by_pod=by_pod, creating=creating)


def gone(pods: Pods, event: ev.Sampled) -> list[ContainerId]:
    """The containers that were known by cgroups which are gone."""
    left = dict.fromkeys(event.gone)
    return [
        container_id
        for container_id, known in pods.containers.items()
        if known.by_cgroup and known.container.cgroups_path in left and known.seq <= event.as_of
    ]


def stand_in_for(pods: Pods, sandbox: Sandbox) -> SandboxId | None:
    """The stand-in that this sandbox replaces."""
    sandbox_id = pods.sandbox_of.get(sandbox.pod_uid)
    if sandbox_id is None or sandbox_id == sandbox.id or not pods.sandboxes[sandbox_id].by_cgroup:
        return None
    return sandbox_id


def adopt(pods: Pods, stand_in: SandboxId, sandbox_id: SandboxId) -> Pods:
    """Moves the stand-in's containers to the sandbox that the runtime has reported at last."""
    containers = dict(pods.containers)
    for container_id in pods.by_pod.get(pods.sandboxes[stand_in].sandbox.pod_uid, ()):
        known = containers[container_id]
        if known.container.sandbox_id == stand_in:
            moved = replace(known.container, sandbox_id=sandbox_id)
            containers[container_id] = replace(known, container=moved)
    return replace(pods, containers=containers, sandboxes=without(pods.sandboxes, (stand_in,)))


def name_of(state: State, known: KnownContainer) -> str:
    """The container's name; of one known by its cgroup, what the pod's status says. Empty where nobody says it."""
    spec = state.pods.specs.get(known.pod_uid)
    if not known.by_cgroup or known.container.name or spec is None:
        return known.container.name
    ids = spec.spec.container_ids
    return next((name for name, container_id in ids.items() if container_id == known.container.id), "")


def is_pause(state: State, known: KnownContainer) -> bool:
    """Whether a nameless container is what holds the sandbox: all of the pod's running containers are known by others.

    A restarted container is not taken for it: the id in the status is then that of a container which is there no more.
    """
    spec = state.pods.specs.get(known.pod_uid)
    if spec is None:
        return False
    ids = spec.spec.container_ids
    lasting = [one.name for one in spec.spec.containers if one.role in (Role.REGULAR, Role.SIDECAR)]
    return all(name in ids and ids[name] in state.pods.containers for name in lasting)


def _above(path: str) -> str:
    return path.rpartition("/")[0]


def is_waited_for(state: State, event: ev.Question) -> bool:
    """Whether the question of this moment waits for its pod's spec (features.pods.step), and is asked again then."""
    return event.ask_id not in state.asks and event.at_ns in state.pods.waits_ns[-1:]
