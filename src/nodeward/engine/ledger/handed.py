"""What kubelet has handed out, by its checkpoint: the ids of each pod, whether it still lives, and what is amiss.

Kubelet is told by nobody that a pod's devices are free again: it forgets them before it gives out the next. So a pod
that has ended stays in the checkpoint for a while, and its ids are not counted. A pod of which nobody else knows is one
that kubelet has just admitted, or one that is gone; it counts until the API server, answering, has not named it for
SETTLE_NS.
"""

from collections.abc import Iterable, Mapping
from itertools import chain

from nodeward.engine.ledger import loss
from nodeward.engine.ledger.gate import SETTLE_NS, owners
from nodeward.engine.ledger.kubelets import api_is_gone, finding
from nodeward.engine.pods.found import name_of
from nodeward.engine.state import KnownSpec, State
from nodeward.engine.tables import kept, without
from nodeward.model.events import PodsOfKubelet
from nodeward.model.workload import PodSpec, PodUid, SandboxId

Held = Mapping[PodUid, tuple[str, ...]]


def held_ids(state: State, resource: str) -> Held:
    """The ids of the resource that each pod has in kubelet's view, the ended ones' too."""
    view = state.ledger.held
    return {} if view is None else {uid: ids[resource] for uid, ids in view.pods.items() if resource in ids}


def all_ids(state: State, resources: Iterable[str]) -> Held:
    """The same for all resources that promise one kind of key."""
    found: dict[PodUid, tuple[str, ...]] = {}
    for resource in resources:
        for uid, ids in held_ids(state, resource).items():
            found[uid] = (*found.get(uid, ()), *ids)
    return found


def specs(state: State) -> Mapping[PodUid, PodSpec]:
    """The pods by UID, as the API server has them, and those that only kubelet tells of. A static pod is named as the
    runtime names it. One of which either says that it has ended has ended; not so where kubelet means another pod, a
    static one whose manifest has taken this UID."""
    return _specs(state.pods.specs, state.ledger.of_kubelet)


@kept
def _specs(by_api: Mapping[PodUid, KnownSpec], of_kubelet: PodsOfKubelet | None) -> Mapping[PodUid, PodSpec]:
    known = {uid: one.spec for uid, one in by_api.items()}
    for pod in of_kubelet.pods if of_kubelet is not None else ():
        mine = known.get(pod.uid)
        is_same = mine is not None and (mine.namespace, mine.name) == (pod.namespace, pod.name)
        if mine is None or (is_same and pod.terminal and not mine.terminal):
            known[pod.uid] = pod
    return known


def ended(state: State, view: Held) -> tuple[PodUid, ...]:
    """Those of the pods in kubelet's view that have ended, as far as others tell."""
    heard = state.pods.api_up and not lost(state) and state.ledger.held_awake_ns >= SETTLE_NS
    return _ended(view, specs(state), heard, state.pods.sandbox_of)


@kept
def _ended(
    view: Held, pods: Mapping[PodUid, PodSpec], heard: bool, sandbox_of: Mapping[PodUid, SandboxId]
) -> tuple[PodUid, ...]:
    return tuple(uid for uid in view if (pods[uid].terminal if uid in pods else heard and uid not in sandbox_of))


def asking(state: State, uid: PodUid, resource: str) -> list[str]:
    """The names of the pod's containers that ask for the resource."""
    spec, words = specs(state).get(uid), state.settings.words([resource])
    return [one.name for one in spec.containers if any(word in one.declared for word in words)] if spec else []


def may_take(state: State, uid: PodUid, resource: str) -> bool:
    """Whether a container of the pod that asks for the resource is there, or is being created. One that nobody names
    may be it."""
    names, pods = asking(state, uid, resource), state.pods
    there = (pods.containers.get(one) for one in pods.by_pod.get(uid, ()))
    return any(one is not None and name_of(state, one) in ("", *names) for one in there) or any(
        one.pod_uid == uid for one in pods.creating.values()
    )


def lost(state: State) -> tuple[str, ...]:
    """Why views on the pods tell nothing now that did before, a sentence each: nothing is released meanwhile, and no
    more is published. One that has told nothing since the daemon started is one that this node may not have."""
    ledger, found = state.ledger, []
    if ledger.held_fault:
        found.append(f"what kubelet has handed out cannot be read ({ledger.held_fault}); what was read before stands.")
    if ledger.of_kubelet is not None and ledger.of_kubelet_fault and not api_is_gone(ledger):
        found.append(
            f"kubelet no longer tells of its pods ({ledger.of_kubelet_fault}); what it told stands, no id is released "
            "and no more are offered until it does, or has begun anew without its Pods API."
        )
    if ledger.api_heard and state.pods.stale_since_wall_ns:
        found.append("the API server no longer answers; its pods stand, no id is released and no more are offered.")
    if loss.is_frozen(ledger):
        found.append(f"{loss.FROZEN}; no id is released and no more are offered.")
    return tuple(found)


def uid_of(state: State, namespace: str, name: str) -> PodUid | None:
    """The pod of this name that has not ended; None where nobody knows one, or there are several."""
    found = [
        uid for uid, pod in specs(state).items() if (pod.namespace, pod.name) == (namespace, name) and not pod.terminal
    ]
    return found[0] if len(found) == 1 else None


def registered(state: State, resources: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The healthy ids with kubelet of those resources that have a device plugin, or had one."""
    view = state.ledger.held
    return {} if view is None else {name: view.registered[name] for name in resources if name in view.registered}


def findings(state: State, resources: Iterable[str]) -> tuple[str, ...]:
    """What an operator should know, a sentence each."""
    return (*lost(state), *finding(state), *chain.from_iterable(_doubles(state, resource) for resource in resources))


def _doubles(state: State, resource: str) -> Iterable[str]:
    every = held_ids(state, resource)
    living = without(every, ended(state, every))
    counts: dict[str, int] = {}
    for name in chain.from_iterable(living.values()):
        counts[name] = counts.get(name, 0) + 1
    for name in (name for name, count in counts.items() if count > 1):
        pods = " and ".join(sorted(_name(state, uid) for uid in owners(living, name)))
        yield (
            f"kubelet gave {name} of {resource} to {pods}: each may take a key, so each is counted; delete all but one."
        )


def _name(state: State, uid: PodUid) -> str:
    namespace, name = home(state, uid)
    return f"{namespace}/{name}" if name else f"pod {uid}"


def home(state: State, uid: PodUid) -> tuple[str, str]:
    """Namespace and name of a pod, from its spec or its sandbox; empty where nobody told."""
    known, sandbox_id = specs(state).get(uid), state.pods.sandbox_of.get(uid)
    sandbox = state.pods.sandboxes[sandbox_id].sandbox if sandbox_id is not None else None
    found = known if known is not None else sandbox
    return (found.namespace, found.name) if found is not None else ("", "")
