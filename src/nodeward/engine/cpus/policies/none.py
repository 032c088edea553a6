"""The policy `none`: every container runs wherever its runtime lets it. Nothing is pinned and nothing is written."""

from nodeward.engine.cpus.policy import Policy
from nodeward.engine.cpus.pools import joined, left
from nodeward.model.cpus import Ask, Grant, Ground, Pools
from nodeward.model.refusal import Reason


def _begin(_: Ground) -> Pools:
    return Pools()


def _admit(_: Ground, at: Pools, ask: Ask) -> Pools:
    return joined(at, Grant(ask.key, request_m=ask.request_m, reason=Reason("cpus-none")))


def _release(_: Ground, at: Pools, key: str) -> Pools:
    return left(at, key)


NONE = Policy("none", "pins nothing: containers run wherever the runtime lets them", _begin, _admit, _release)
