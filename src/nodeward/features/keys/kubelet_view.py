"""What kubelet's checkpoint says: the ids of each pod, and whether the pod still lives.

Kubelet is told by nobody that a pod's devices are free again: it forgets them before it gives out the next. So a pod
that has ended stays in the checkpoint for a while, and its ids are not counted. A pod of which nobody else knows is one
that kubelet has just admitted, or one that is gone; it counts until it has been in the checkpoint for SETTLE_NS and the
API server, answering, or a newer list of kubelet's Pods API does not name it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from nodeward.core.devices import PluginStanding
from nodeward.core.events import PodsOfKubelet
from nodeward.core.tables import kept, without
from nodeward.core.workload import PodSpec, PodUid, SandboxId
from nodeward.features.keys import loss
from nodeward.features.keys.device_ids import SETTLE_NS, owners
from nodeward.features.keys.settings import Publisher
from nodeward.features.keys.state import Keys
from nodeward.features.pods.budget import budget_of_all, containers_need
from nodeward.features.pods.found import name_of
from nodeward.features.pods.state import KnownSpec
from nodeward.features.root import State

GONE_NS = 30_000_000_000
"""Kubelet begins to serve it before it takes device plugins, or soon after. Each kubelet has so long, however often one
has begun anew before it."""


def restarts(keys: Keys) -> int:
    """How often kubelet has been seen to restart."""
    return max((told.restarts for told in keys.plugins.values()), default=0)


def serves_without_api(keys: Keys) -> bool:
    """Whether kubelet restarted since its last report, reads our list, and serves no Pods API."""
    serves = any(told.standing is PluginStanding.SERVING for told in keys.plugins.values())
    is_another = restarts(keys) > keys.of_kubelet_restarts
    return keys.of_kubelet is not None and keys.of_kubelet_absent and serves and is_another


def api_is_gone(keys: Keys) -> bool:
    """Whether that has been so for long enough."""
    return keys.without_api_ns >= GONE_NS


def still_there(state: State, of_kubelet: PodsOfKubelet | None) -> PodsOfKubelet | None:
    """The pods of kubelet's last report before its Pods API went away, without those that are gone or that other
    sources report now: it has those with a sandbox; all, where neither a runtime nor the API server tells of any."""
    pods = state.pods
    if of_kubelet is None or not (pods.sandboxes or pods.api_up):
        return of_kubelet
    left = tuple(one for one in of_kubelet.pods if one.uid in pods.sandbox_of)
    return of_kubelet if len(left) == len(of_kubelet.pods) else replace(of_kubelet, pods=left)


def finding(state: State) -> tuple[str, ...]:
    """What an operator should know of it, if anything."""
    if not api_is_gone(state.keys):
        return ()
    others = "the API server" if state.pods.api_up else "its checkpoint and PodResources alone"
    return (
        f"kubelet has begun anew without its Pods API ({state.keys.of_kubelet_fault}): what it has is known by "
        f"{others} until that API answers again.",
    )


Held = Mapping[PodUid, tuple[str, ...]]


def held_ids(state: State, resource: str) -> Held:
    """The ids of the resource that each pod has in kubelet's view, the ended ones' too."""
    view = state.keys.held
    return {} if view is None else {uid: ids[resource] for uid, ids in view.pods.items() if resource in ids}


def all_ids(state: State, resources: Iterable[str]) -> Held:
    """The same for all resources that promise one kind of key."""
    found: dict[PodUid, tuple[str, ...]] = {}
    for resource in resources:
        for uid, ids in held_ids(state, resource).items():
            found[uid] = (*found.get(uid, ()), *ids)
    return found


def specs(state: State) -> Mapping[PodUid, PodSpec]:
    """The pods by UID: each as kubelet's Pods API has it, since kubelet admits and starts by that, and as the API
    server has it where kubelet has told of none. A static pod is named as the runtime names it. One of which either
    says that it has ended has ended; not so where they mean two pods, of which one, a static one, has taken the other's
    UID by its manifest: then none has before both have."""
    return _first(versions(state))


def versions(state: State) -> Mapping[PodUid, tuple[PodSpec, ...]]:
    """All known specs of each pod: what `specs` has of it, then what else it may be promised by others' word.

    Either word can be the older one: the API server has a change before kubelet hears of it, and goes on showing it
    though kubelet cannot go by it yet; a static pod's mirror may have been changed on its way into the API server, and
    kubelet runs what the manifest says. So who a pod is and what its containers ask is kubelet's to say, and how much
    it is promised is the larger of both, until they agree: nothing is sold that one of them has promised."""
    return _versions(state.pods.specs, state.keys.of_kubelet)


@kept
def _versions(
    by_api: Mapping[PodUid, KnownSpec], of_kubelet: PodsOfKubelet | None
) -> Mapping[PodUid, tuple[PodSpec, ...]]:
    found: dict[PodUid, tuple[PodSpec, ...]] = {}
    for pod in of_kubelet.pods if of_kubelet is not None else ():
        found[pod.uid] = (*found.get(pod.uid, ()), pod)
    for uid, one in by_api.items():
        found[uid] = (*found[uid], one.spec) if uid in found else (one.spec,)
    return {uid: told if len(told) == 1 else _that_count(told) for uid, told in found.items()}


def _that_count(told: tuple[PodSpec, ...]) -> tuple[PodSpec, ...]:
    """Of what is told of one UID the pods that have not ended, without what says the same again."""
    over = [(one.namespace, one.name) for one in told if one.terminal]
    living = [one for one in told if (one.namespace, one.name) not in over]
    if not living:
        return tuple(one for one in told if one.terminal)[:1]
    first = living[0]
    others = (one for one in living[1:] if (one.containers, one.overhead) != (first.containers, first.overhead))
    return (first, *others)


@kept
def _first(told: Mapping[PodUid, tuple[PodSpec, ...]]) -> Mapping[PodUid, PodSpec]:
    return {uid: specs[0] for uid, specs in told.items()}


def promised(told: Iterable[PodSpec], words: Sequence[str]) -> int:
    """How many keys a pod is promised, by the larger of its known specs."""
    return max([budget_of_all(spec, words) for spec in told])


def ended(state: State, view: Held) -> tuple[PodUid, ...]:
    """Those of the pods in kubelet's view that have ended, as far as others tell."""
    tells_all = state.pods.api_up or _lists_all(state.keys)
    heard = tells_all and not frozen(state) and state.keys.held_awake_ns >= SETTLE_NS
    return _ended(view, specs(state), heard, state.pods.sandbox_of)


def _lists_all(keys: Keys) -> bool:
    """Whether kubelet's newest list of its pods has every living pod that the checkpoint names: kubelet lists a pod
    before it gives out the pod's ids (k8s.io/kubernetes 1.37: HandlePodAdditions, ListPods), and the list began after
    the checkpoint named the pod."""
    told, held = keys.of_kubelet, keys.held
    return told is not None and held is not None and not keys.of_kubelet_fault and told.as_of >= held.seq


@kept
def _ended(
    view: Held, pods: Mapping[PodUid, PodSpec], heard: bool, sandbox_of: Mapping[PodUid, SandboxId]
) -> tuple[PodUid, ...]:
    return tuple(uid for uid in view if (pods[uid].terminal if uid in pods else heard and uid not in sandbox_of))


def asking(state: State, uid: PodUid, resource: str) -> list[str]:
    """The names of the pod's containers that ask for the resource, by any word."""
    told, words = versions(state).get(uid, ()), state.settings.words([resource])
    every = chain.from_iterable(spec.containers for spec in told)
    return list(dict.fromkeys(one.name for one in every if any(word in one.declared for word in words)))


def may_take(state: State, uid: PodUid, resource: str) -> bool:
    """Whether a container of the pod that asks for the resource is there, or is being created. One that nobody names
    may be it."""
    names, pods = asking(state, uid, resource), state.pods
    there = (pods.containers.get(one) for one in pods.by_pod.get(uid, ()))
    return any(one is not None and name_of(state, one) in ("", *names) for one in there) or any(
        one.pod_uid == uid for one in pods.creating.values()
    )


def lost(state: State) -> tuple[str, ...]:
    """Why views on the pods tell nothing now that did before, a sentence each. One that has told nothing since the
    daemon started is one that this node may not have."""
    keys, pods = state.keys, _lost_pods(state)
    if not keys.held_fault:
        return pods
    rest = "what was read before stands"
    if stands_in(state):
        rest = "what else it says of its pods stands in for that"
    elif not keys.viewed and (waits_for := unaccounted(state)):
        rest = f"nothing is granted before that could be, while {waits_for}"
    return (f"what kubelet has handed out cannot be read ({keys.held_fault}); {rest}.", *pods)


def frozen(state: State) -> bool:
    """Whether no id is released now, and no more are published: a view is lost, and nothing stands in for it."""
    return bool(_lost_pods(state)) or (bool(state.keys.held_fault) and not stands_in(state))


def _lost_pods(state: State) -> tuple[str, ...]:
    """The same of those that tell which pods there are."""
    keys, found = state.keys, []
    if keys.of_kubelet is not None and keys.of_kubelet_fault and not api_is_gone(keys):
        found.append(
            f"kubelet no longer tells of its pods ({keys.of_kubelet_fault}); what it told stands, no id is released "
            "and no more are offered until it does, or has begun anew without its Pods API."
        )
    if keys.api_heard and state.pods.stale_since_wall_ns:
        found.append("the API server no longer answers; its pods stand, no id is released and no more are offered.")
    if loss.is_frozen(keys):
        found.append(f"{loss.FROZEN}; no id is released and no more are offered.")
    return tuple(found)


def stands_in(state: State) -> bool:
    """Whether kubelet's other sources suffice while its checkpoint could never be read since the daemon started:
    docs/keys.md (What kubelet has handed out) says what is enough, and why PodResources alone is not.

    Sources: k8s.io/kubernetes 1.37, List in pkg/kubelet/apis/podresources, validateReady in pkg/kubelet/apis/pods,
    readCheckpoint in cm/devicemanager. The Pods API needs no answer of PodResources beside it, where no pod is there
    whose ids only that could name; but it may tell of a new pod late, so what nobody has is released only beside the
    API server."""
    keys = state.keys
    if not keys.held_fault or keys.held_whole:
        return False
    by_kubelet = keys.of_kubelet is not None and not keys.of_kubelet_fault
    return (by_kubelet or (keys.list_answers and state.pods.api_up)) and not unaccounted(state)


def unaccounted(state: State) -> str:
    """The pod that may have ids of ours that no source reports, in a few words; nothing where there is none.

    One that asks for ids and has no sandbox has been given them, or not yet: it is accounted for by as many as it asks
    for. With a sandbox it counts by what it asks for, whatever is told (features.keys.device_ids.claims)."""
    pods, started = versions(state), state.pods.sandbox_of
    unknown = next((uid for uid in started if uid not in pods), None)
    if unknown is not None:
        return f"nobody tells what {_name(state, unknown)} asks for, which has a sandbox"
    kinds = state.settings.keys.kinds.values()
    for resource in (kind.publish for kind in kinds if kind.publisher is Publisher.DEVICE_PLUGIN):
        (word,) = state.settings.words([resource])
        view = held_ids(state, resource)
        for uid, told in pods.items():
            waits = not told[0].terminal and uid not in started
            if waits and needed(told, word) > len(view.get(uid, ())):
                return f"{_name(state, uid)} asks for {resource} and may have been given ids that nobody tells of"
    return ""


def needed(told: Iterable[PodSpec], word: str) -> int:
    """How many keys a pod's containers take together, by the larger of its known specs: no more at once than the larger
    of init and others."""
    every = (((one.role, one.declared.get(word, 0)) for one in spec.containers) for spec in told)
    return max(map(containers_need, every), default=0)


def uid_of(state: State, namespace: str, name: str) -> PodUid | None:
    """The pod of this name that has not ended; None where nobody knows one, or there are several."""
    found = [
        uid
        for uid, told in versions(state).items()
        if any((pod.namespace, pod.name) == (namespace, name) and not pod.terminal for pod in told)
    ]
    return found[0] if len(found) == 1 else None


def registered(state: State, resources: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The healthy ids with kubelet of those resources that have a device plugin, or had one."""
    view = state.keys.held
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
