"""The domains of this engine, in the order in which each event reaches them."""

from typing import Final

from nodeward.engine.apply import Engine
from nodeward.engine.cpus.domain import CPUS
from nodeward.engine.domain import Domain
from nodeward.engine.gate.domain import GATE
from nodeward.engine.lately import noted
from nodeward.engine.ledger.domain import LEDGER
from nodeward.engine.limits.domain import LIMITS
from nodeward.engine.notices.domain import NOTICES
from nodeward.engine.pods.domain import PODS
from nodeward.engine.sandboxes.domain import SANDBOXES
from nodeward.engine.state.root import State

DOMAINS: Final[tuple[Domain[State], ...]] = (NOTICES, PODS, LIMITS, LEDGER, CPUS, SANDBOXES, GATE)
"""Notices come first: what an event changes is seen by what was before it."""
ENGINE: Final = Engine(DOMAINS, noted)
apply = ENGINE.apply
