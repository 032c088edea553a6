"""The CPU policies by name. A new one is a module beside this one and one line here; `none` pins nothing."""

from collections.abc import Mapping

from nodeward.core.refusal import Reason
from nodeward.features.cpus.policies.balloons import BALLOONS
from nodeward.features.cpus.policies.claims import CLAIMS
from nodeward.features.cpus.policies.dynamic_pools import DYNAMIC_POOLS
from nodeward.features.cpus.policies.podpools import PODPOOLS
from nodeward.features.cpus.policies.static import STATIC
from nodeward.features.cpus.policies.static_plus import STATIC_PLUS
from nodeward.features.cpus.policies.static_pools import STATIC_POOLS
from nodeward.features.cpus.policies.topology_aware import TOPOLOGY_AWARE
from nodeward.features.cpus.policy import Policy
from nodeward.features.cpus.pools import joined, left
from nodeward.features.cpus.values import Ask, Grant, Ground, Pools


def _begin(_: Ground) -> Pools:
    return Pools()


def _admit(_: Ground, at: Pools, ask: Ask) -> Pools:
    return joined(at, Grant(ask.key, request_m=ask.request_m, reason=Reason("cpus-none")))


def _release(_: Ground, at: Pools, key: str) -> Pools:
    return left(at, key)


NONE = Policy("none", "pins nothing: containers run wherever the runtime lets them", _begin, _admit, _release)

_ALL = (NONE, STATIC, STATIC_PLUS, BALLOONS, PODPOOLS, STATIC_POOLS, DYNAMIC_POOLS, TOPOLOGY_AWARE, CLAIMS)
POLICIES: Mapping[str, Policy] = {policy.name: policy for policy in _ALL}
ALIASES: Mapping[str, str] = {"null": "none", "": "none", "static+": "static-plus"}


def policy_of(name: str) -> Policy:
    """The policy of this name or alias. KeyError for none."""
    return POLICIES[ALIASES.get(name, name)]
