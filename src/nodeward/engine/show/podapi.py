"""The sections of the Pod API that the engine's state answers; what needs the whole spec is given."""

from nodeward.engine.state.pods import KnownSpec
from nodeward.engine.state.root import State
from nodeward.model.podapi import PodContainer, PodDescription, PodIdentity, PodOverhead, PodVmSize, Section
from nodeward.model.workload import PodSpec, PodUid, Source

RUNTIME, NOBODY = "the runtime", "nobody"


def pods(state: State) -> list[PodIdentity]:
    """Every pod that is known, by namespace and name."""
    found = [_identity(state, uid, known.spec) for uid, known in state.pods.specs.items()]
    return sorted(found, key=lambda one: (one.namespace, one.name, one.uid))


def pod_named(state: State, namespace: str, name: str) -> tuple[PodUid, KnownSpec] | None:
    """The pod of this name that was told of last: a name can have been taken over."""
    named = [
        (uid, known)
        for uid, known in state.pods.specs.items()
        if (known.spec.namespace, known.spec.name) == (namespace, name)
    ]
    return max(named, key=lambda one: (not one[1].gone, one[1].seq), default=None)


def described(state: State, uid: PodUid, known: KnownSpec, heard: int) -> PodDescription:
    """The pod without its spec. `heard` is when the API server was heard last."""
    spec = known.spec
    by_api = spec.source is Source.API and state.pods.api_up
    why = "" if by_api else "the API server does not answer; this is what was known last"
    at = heard if by_api else state.pods.stale_since_wall_ns
    sandbox_id = state.pods.sandbox_of.get(uid)
    sandbox = state.pods.sandboxes.get(sandbox_id) if sandbox_id is not None else None
    vm = state.sandboxes.vms.get(sandbox_id) if sandbox_id is not None else None
    parent = sandbox.sandbox.cgroup_parent if sandbox is not None else ""
    size = vm.size if vm is not None else None
    rows = tuple(
        PodContainer(
            *(one.name, one.role.value, one.cpu_m, one.cpu_limit_m, one.memory_request, one.memory_limit), one.declared
        )
        for one in spec.containers
    )
    said = spec.source.value
    return PodDescription(
        Section(_identity(state, uid, spec), said, by_api, why, at),
        Section(rows, said, by_api, why, at),
        Section(PodOverhead(spec.overhead_cpu_m, spec.overhead_memory), said, by_api, why, at),
        Section(parent, RUNTIME) if parent else Section(None, RUNTIME, False, "the runtime has told of no sandbox yet"),
        Section(PodVmSize(size.vcpus, size.memory, size.source), "the domain sandboxes")
        if size is not None
        else Section(None, "the domain sandboxes", False, "no VM of it was read; see sandboxes.mode"),
        Section(None, NOBODY, False, "devices are not read yet"),
        Section(None, "the API server", False, "not asked for: name spec in fields"),
        Section(None, "the API server", False, "not asked for: name spec in fields"),
        Section(None, NOBODY, False, "there is no gate yet"),
        Section(None, "the API server", False, "not asked for: name spec in fields"),
        Section(None, "the relay", False, "not asked yet"),
    )


def _identity(state: State, uid: PodUid, spec: PodSpec) -> PodIdentity:
    sandbox_id = state.pods.sandbox_of.get(uid)
    sandbox = state.pods.sandboxes.get(sandbox_id) if sandbox_id is not None else None
    handler = sandbox.sandbox.handler if sandbox is not None else ""
    return PodIdentity(spec.namespace, spec.name, uid, sandbox_id or "", handler, spec.runtime_class)
