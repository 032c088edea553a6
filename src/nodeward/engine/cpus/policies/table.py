"""The policies by name. A new one is a module beside this one and one line here."""

from collections.abc import Mapping

from nodeward.engine.cpus.policies.balloons import BALLOONS
from nodeward.engine.cpus.policies.dynamic_pools import DYNAMIC_POOLS
from nodeward.engine.cpus.policies.none import NONE
from nodeward.engine.cpus.policies.podpools import PODPOOLS
from nodeward.engine.cpus.policies.static import STATIC
from nodeward.engine.cpus.policies.static_plus import STATIC_PLUS
from nodeward.engine.cpus.policies.static_pools import STATIC_POOLS
from nodeward.engine.cpus.policy import Policy

_ALL = (NONE, STATIC, STATIC_PLUS, BALLOONS, PODPOOLS, STATIC_POOLS, DYNAMIC_POOLS)
POLICIES: Mapping[str, Policy] = {policy.name: policy for policy in _ALL}
ALIASES: Mapping[str, str] = {"null": "none", "": "none", "static+": "static-plus"}


def policy_of(name: str) -> Policy:
    """The policy of this name or alias. KeyError for none."""
    return POLICIES[ALIASES.get(name, name)]
