"""A container's request to the policy, made from what is known of the container."""

from dataclasses import replace

from nodeward.core.cpuset import CpuSet
from nodeward.core.workload import Container, CpuRecord, PodSpec, Qos, Sandbox
from nodeward.features.cpus.affinity import is_wished, weight, wishes
from nodeward.features.cpus.claims import of_container
from nodeward.features.cpus.match import labels_of
from nodeward.features.cpus.requested import ESTIMATE, MIN_QUOTA, Requested, qos_of, requested, shares_of
from nodeward.features.cpus.values import Ask
from nodeward.features.pods.found import name_of
from nodeward.features.pods.state import KnownContainer
from nodeward.features.root import State


def key_of(pod_uid: str, name: str) -> str:
    """The key of a container's grant, its pod and name: both outlive a restart."""
    return f"{pod_uid}/{name}"


def ask_of(
    state: State,
    home: Sandbox,
    one: Container,
    has: CpuSet = 0,
    mems: CpuSet | None = None,
    *,
    resize: bool = False,
) -> Ask:
    """What the container asks: what kubelet has allocated, by the spec, or by the runtime's record where that says
    another limit of a Guaranteed container. `has` and `mems` are what it has, where it is there already. `resize`: the
    runtime is updating it, and the record counts for each."""
    known = state.pods.specs.get(home.pod_uid)
    spec = known.spec if known is not None else None
    key = key_of(home.pod_uid, one.name)

    def is_placed(source: str, request_m: int) -> bool:
        grant = state.cpus.pools.grants.get(key)
        if grant is not None:
            return (grant.source, grant.request_m) == (source, request_m)
        return _runs_by(state, one, request_m)

    found = requested(spec, home.annotations, one.name, one.cpu, home.cgroup_parent, is_placed)
    if resize and one.cpu.shares and shares_of(found.request_m) != one.cpu.shares:
        found = _as_allocated(found, home, one, spec)
    elif found.qos is Qos.GUARANTEED and not found.pod_level and _differs(found.request_m, one.cpu):
        # the spec is told late, or is of a resize that waits; a policy may have set the shares, the quota is kubelet's
        limit_m = _limit_of(one.cpu)
        found = replace(found, request_m=limit_m, limit_m=limit_m, source=ESTIMATE, known=True)
    memory_request, memory_limit = _memory_of(spec, one, found.qos)
    claims, unclaimed = of_container(state, home.pod_uid, one.name)
    ask = Ask(
        key=key,
        pod_uid=home.pod_uid,
        namespace=home.namespace,
        pod=home.name,
        container=one.name,
        qos=found.qos,
        request_m=found.request_m,
        limit_m=found.limit_m,
        role=found.role,
        source=found.source,
        known=found.known,
        annotations=home.annotations,
        labels={**home.labels, **one.labels},
        has=has,
        mems=mems,
        memory_request=memory_request,
        memory_limit=memory_limit,
        pod_level=found.pod_level,
        faults=found.faults,
        resizes=resize,
        claims=claims,
        unclaimed=unclaimed,
    )
    return ask if has or not is_wished(ask) else replace(ask, kin=_kin(state, ask))


def _kin(state: State, ask: Ask) -> dict[str, int]:
    """By key, the weights of the containers that are there, for one that comes."""
    given, _ = wishes(ask)
    others = (_other(state, known) for known in state.pods.containers.values()) if given else ()
    return {one.key: found for one in others if one.key != ask.key and (found := weight(given, ask, one))}


def _other(state: State, known: KnownContainer) -> Ask:
    """What an expression may ask of a container."""
    home = state.pods.sandboxes.get(known.container.sandbox_id)
    told, spec = named(state, known), state.pods.specs.get(known.pod_uid)
    if home is None or told is None:
        return Ask("", "", "", "", "", Qos.BEST_EFFORT, 0)
    pod, one = told
    qos = (spec.spec.qos if spec is not None else None) or qos_of(pod.cgroup_parent) or Qos.GUARANTEED
    labels = {**pod.labels, **one.labels}
    return Ask(key_of(pod.pod_uid, one.name), pod.pod_uid, pod.namespace, pod.name, one.name, qos, 0, labels=labels)


def _memory_of(spec: PodSpec | None, one: Container, qos: Qos) -> tuple[int, int]:
    """Request and limit in bytes: by the spec, else by the runtime's record. A Guaranteed container's are alike."""
    own = next((each for each in spec.containers if each.name == one.name), None) if spec is not None else None
    if own is not None and own.memory_request is not None:
        return own.memory_request, own.memory_limit
    return one.memory if qos is Qos.GUARANTEED else 0, one.memory


def label_keys(state: State) -> tuple[str, ...]:
    """The labels that an edge copies: those of the policy in force, and of newer settings."""
    return tuple(dict.fromkeys((*labels_of(state.cpus.rules), *labels_of(state.settings.policy))))


def _runs_by(state: State, one: Container, request_m: int) -> bool:
    """Whether a container that was there before us has whole CPUs alone, and shares for the rest, as static-plus gives
    them for this request."""
    full, part = divmod(request_m, 1000)
    if not full or not part or one.cpu.shares != shares_of(part):
        return False
    alone = one.cpu.cpus
    for other, known in state.pods.containers.items():
        if other != one.id:
            alone &= ~known.container.cpu.cpus
    return alone.bit_count() >= full


def is_resized(state: State, home: Sandbox, one: Container, request_m: int) -> bool:
    """Whether the runtime's record gives a Guaranteed container another limit than it was granted."""
    if not _differs(request_m, one.cpu):
        return False
    known = state.pods.specs.get(home.pod_uid)
    qos = (known.spec.qos if known is not None else None) or qos_of(home.cgroup_parent)
    return qos is Qos.GUARANTEED and not (known is not None and known.spec.pod_level)


def _differs(limit_m: int, record: CpuRecord) -> bool:
    return record.quota > MIN_QUOTA and record.period > 0 and abs(_limit_of(record) - limit_m) > 1


def _limit_of(record: CpuRecord) -> int:
    return (record.quota * 1000 + record.period // 2) // record.period


def _as_allocated(found: Requested, home: Sandbox, one: Container, spec: PodSpec | None) -> Requested:
    by_record = requested(None, {}, one.name, one.cpu, home.cgroup_parent)
    if spec is None:
        return by_record
    amounts = replace(by_record, qos=found.qos, role=found.role, pod_level=found.pod_level)
    return replace(amounts, known=True)  # the class and the role are by the spec


def named(state: State, known: KnownContainer) -> tuple[Sandbox, Container] | None:
    """The container with its name, and its sandbox; None while nobody has told its name."""
    home = state.pods.sandboxes.get(known.container.sandbox_id)
    name = known.container.name or name_of(state, known)
    if home is None or not name:
        return None
    one = known.container
    if one.name != name:
        one = Container(one.id, one.sandbox_id, name, one.phase, one.cgroups_path, one.recorded, one.image, one.cpu)
        one = replace(one, memory=known.container.memory, labels=known.container.labels)
    return home.sandbox, one


def title_of(ask: Ask) -> str:
    """For people."""
    return f"{ask.namespace}/{ask.pod}, container {ask.container}"
