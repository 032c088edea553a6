"""Whether kubelet still has a Pods API: one that was replaced by an older one, or whose gate was closed, has none.

What it told before would be waited for for ever then. So once kubelet is seen to have begun anew (our device plugin had
to register again) and has read our list for GONE_NS while nobody serves that API, the next views take its place: the
API server's watch, PodResources, the checkpoint. It is the first again as soon as it answers.
"""

from dataclasses import replace

from nodeward.core.events import PluginStanding, PodsOfKubelet
from nodeward.features.keys.state import Ledger
from nodeward.features.root import State

GONE_NS = 30_000_000_000
"""Kubelet begins to serve it before it takes device plugins, or soon after. Each kubelet has so long, however often one
has begun anew before it."""


def restarts(ledger: Ledger) -> int:
    """How often kubelet has been seen to begin anew."""
    return max((told.restarts for told in ledger.plugins.values()), default=0)


def serves_without_api(ledger: Ledger) -> bool:
    """Whether kubelet, begun anew since it last told of its pods, reads our list, and nobody serves its Pods API."""
    serves = any(told.standing is PluginStanding.SERVING for told in ledger.plugins.values())
    is_another = restarts(ledger) > ledger.of_kubelet_restarts
    return ledger.of_kubelet is not None and ledger.of_kubelet_absent and serves and is_another


def api_is_gone(ledger: Ledger) -> bool:
    """Whether that has been so for long enough."""
    return ledger.without_api_ns >= GONE_NS


def still_there(state: State, of_kubelet: PodsOfKubelet | None) -> PodsOfKubelet | None:
    """What kubelet told before its Pods API went, without the pods that are known to be gone, or that others tell of
    now: it has those with a sandbox; all, where neither a runtime nor the API server tells of any."""
    pods = state.pods
    if of_kubelet is None or not (pods.sandboxes or pods.api_up):
        return of_kubelet
    left = tuple(one for one in of_kubelet.pods if one.uid in pods.sandbox_of)
    return of_kubelet if len(left) == len(of_kubelet.pods) else replace(of_kubelet, pods=left)


def finding(state: State) -> tuple[str, ...]:
    """What an operator should know of it, if anything."""
    if not api_is_gone(state.ledger):
        return ()
    others = "the API server" if state.pods.api_up else "its checkpoint and PodResources alone"
    return (
        f"kubelet has begun anew without its Pods API ({state.ledger.of_kubelet_fault}): what it has is known by "
        f"{others} until that API answers again.",
    )
