"""What one cgroup is to have: a container's promise, or its pod's budget."""

from dataclasses import replace

from nodeward.core import annotations as keys
from nodeward.core.refusal import Reason
from nodeward.core.workload import Amounts, ContainerId, PodUid, Source
from nodeward.features.limits.claims import bytes_of_pod, is_unknown, source_of, with_claims
from nodeward.features.limits.promise import EPC, Promise, own_declared, promise
from nodeward.features.limits.state import Wanted
from nodeward.features.pods.budget import Outline, declares, outline, pod_budget
from nodeward.features.pods.found import is_pause, name_of
from nodeward.features.pods.state import KnownContainer
from nodeward.features.root import State


def resource_names(state: State) -> dict[str, int]:
    """The misc resources the settings speak of, as keys in the settings' order."""
    return dict.fromkeys(state.settings.limits.resources.values(), 0)


def pod_outline(state: State, uid: PodUid) -> Outline | None:
    """The outline of the pod's spec; None while it is not known."""
    spec = with_claims(state, uid)
    return outline(spec, resource_names(state)) if spec is not None else None


def container_promise(state: State, known: KnownContainer, of_pod: Outline | None = None) -> Promise:
    """What the container was promised, as far as is known now."""
    name = known.container.name or name_of(state, known)
    if known.by_cgroup and not name:
        return _nameless(state, known)
    if is_unknown(state, known.pod_uid):
        return Promise({}, Reason("pod-spec-unknown"), Source.NONE.value, known=False)
    home = state.pods.sandboxes.get(known.container.sandbox_id)
    annotations = home.sandbox.annotations if home is not None else {}
    found = promise(with_claims(state, known.pod_uid), annotations, name, state.settings.limits, of_pod)
    if not state.limits.by_claim.claims:
        return found
    source = source_of(state, known.pod_uid, name)
    return replace(found, source=source) if source else found


def _nameless(state: State, known: KnownContainer) -> Promise:
    """Nothing is wanted of a cgroup that may be anybody's; the pod's budget holds."""
    if is_pause(state, known):
        return Promise({}, Reason("pause"), Source.NONE.value)
    return Promise({}, Reason("nameless", (str(known.container.id),)), Source.NONE.value, known=False)


def container_wanted(state: State, known: KnownContainer, of_pod: Outline | None = None) -> Wanted:
    """What the container's cgroup is to have."""
    found = container_promise(state, known, of_pod)
    return Wanted(known.pod_uid, known.container.id, found.values, found.reason, found.source, found.known)


def given_to(state: State, container_id: ContainerId, values: Amounts) -> tuple[str, ...]:
    """The resources that the runtime limits in our name, as far as `Wanted` may not know it: what it was told, and of
    those not in `values` what its own record of the container says (a daemon before this one has told it so).

    Of the record only what can be ours: 0, which no other plugin writes, and what the pod's annotations ask for, which
    the spec overrules. And only once the spec is known: until then nobody can say that a limit there is not wanted.
    """
    told = state.limits.answered.get(container_id, ())
    known = state.pods.container(container_id)
    if known is None or not known.container.recorded or known.pod_uid not in state.pods.specs:
        return told
    if is_unknown(state, known.pod_uid):
        return told
    record = {name: known.container.recorded.get(name) for name in resource_names(state) if name not in values}
    if any(record.values()):
        home = state.pods.sandboxes.get(known.container.sandbox_id)
        notes = home.sandbox.annotations if home is not None else {}
        asked = promise(None, notes, known.container.name, state.settings.limits).values
        record = {name: value for name, value in record.items() if not value or asked.get(name) == value}
    return (*told, *(name for name, value in record.items() if value is not None))


def faults_of(state: State, wanted: Wanted) -> tuple[str, ...]:
    """The declarations that could not be read: the container's, or those of all the pod's containers.

    Nothing is read again: an annotation's faults stand in the reason, behind what the reason is about."""
    spec = state.pods.specs.get(wanted.pod_uid)
    if wanted.container_id is None:
        return tuple(fault for one in spec.spec.containers for fault in one.faults) if spec is not None else ()
    known = state.pods.containers.get(wanted.container_id)
    if known is None:
        return ()
    if spec is None:
        return tuple(str(value) for value in wanted.reason.values[1:])
    name = name_of(state, known)
    for one in spec.spec.containers:
        if one.name == name:
            return one.faults
    return ()


def declared_of(state: State, wanted: Wanted) -> Amounts:
    """The amounts declared for the cgroup: by the container, in its spec or an annotation; of a pod the budget that
    follows from it. A resource that nobody declares is not there, though 0 may be wanted of it."""
    spec = with_claims(state, wanted.pod_uid)
    if wanted.container_id is None:
        if spec is None:
            return {}
        return {name: amount for name, amount in wanted.values.items() if declares(spec, name)}
    known = state.pods.containers.get(wanted.container_id)
    if known is None:
        return {}
    name = known.container.name or name_of(state, known)
    if spec is not None:
        return next((one.declared for one in spec.containers if one.name == name), {})
    if wanted.reason.code != "declared":
        return {}
    home = state.pods.sandboxes.get(known.container.sandbox_id)
    if wanted.source == Source.OWN_ANNOTATION.value and home is not None:
        return own_declared(home.sandbox.annotations.get(keys.OWN_LIMITS, ""), name)
    return wanted.values


def pod_wanted(state: State, uid: PodUid) -> Wanted:
    """What the pod's cgroup is to have: its budget of each declared resource, and nothing while its spec is unknown.

    With annotations only, containers have their limits and the pod has none: an annotation does not tell the order of
    init containers, so a budget from it could be too small.
    """
    known = state.pods.specs.get(uid)
    if known is None or is_unknown(state, uid):
        return Wanted(uid, None, {}, Reason("pod-spec-unknown"), Source.NONE.value, known=False)
    spec, rule, by_claim = known.spec, state.settings.limits, bytes_of_pod(state, uid)
    values = {
        resource: pod_budget(spec, resource) + (by_claim if resource == EPC else 0)
        for resource in resource_names(state)
        if rule.strict or declares(spec, resource) or (by_claim and resource == EPC)
    }
    code = "budget" if values else "none-declared"
    return Wanted(uid, None, values, Reason(code, (f"{spec.namespace}/{spec.name}",)), spec.source.value)
