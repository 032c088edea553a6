"""The policy `none`: every container runs wherever its runtime lets it. Nothing is pinned and nothing is written."""

from nodeward.core.refusal import Reason
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
