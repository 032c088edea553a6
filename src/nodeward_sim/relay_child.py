"""The relay under simulation: what `nodeward relay` runs, to be killed.

A mutant is the same relay with a fault around what it decides by, so that it is seen that an invariant notices.
"""

import sys
from dataclasses import replace

from nodeward.host import process
from nodeward.host.clock import SystemClock
from nodeward.neighbours.cri.calls import Call, Decider, Pass, Refuse, Replace, Verdict
from nodeward.neighbours.sockets import unary_client
from nodeward.programs.relay import run as relay
from nodeward.programs.relay.plan import RelayPlan
from nodeward.settings import load as settings

DROPS, DOUBLES, FORGETS, FAILS = "relay-drops-limits", "relay-doubles", "relay-forgets", "relay-fails"
AGAIN_S = 5.0
INTERNAL = 13


class _Drops:
    """Decides, and passes the call as it came."""

    def __init__(self, decider: Decider) -> None:
        self.holds, self.undecided, self._decide = decider.holds, decider.undecided, decider.decide

    async def decide(self, call: Call, message: bytes, within_ns: int) -> Verdict:
        verdict = self._decide(call, message, within_ns)
        if not isinstance(verdict, Verdict):
            await verdict
        return Pass()


class _Doubles:
    """Makes each held call itself, and passes it on besides."""

    def __init__(self, decider: Decider, runtime: str) -> None:
        self.holds, self.undecided = decider.holds, decider.undecided
        self._decide, self._runtime = decider.decide, runtime

    async def decide(self, call: Call, message: bytes, within_ns: int) -> Verdict:
        verdict = self._decide(call, message, within_ns)
        final = verdict if isinstance(verdict, Verdict) else await verdict
        await unary_client.call(
            self._runtime, call.path, final.message if isinstance(final, Replace) else message, AGAIN_S
        )
        return final


class _Fails:
    """Answers each held call that it has failed."""

    def __init__(self, decider: Decider) -> None:
        self.holds, self.undecided = decider.holds, decider.undecided

    def decide(self, call: Call, message: bytes, within_ns: int) -> Verdict:
        return Refuse(INTERNAL, "a fault of the mutant's")


def _broken(plan: RelayPlan, mutant: str) -> RelayPlan:
    assert plan.decider is not None
    if mutant == DROPS:
        return replace(plan, decider=_Drops(plan.decider))
    if mutant == DOUBLES:
        return replace(plan, decider=_Doubles(plan.decider, plan.runtime))
    if mutant == FAILS:
        return replace(plan, decider=_Fails(plan.decider))
    return replace(plan, watchers=()) if mutant == FORGETS else plan


def main(config_path: str, mutant: str) -> None:
    """Relays until SIGTERM."""
    process.set_up_logs("error")
    process.raise_descriptor_limit()
    process.end_with_parent()
    clock = SystemClock()
    plan = relay.plan(settings.load(config_path, {}), clock)
    process.run(relay.run(_broken(plan, mutant) if mutant else plan, clock))


if __name__ == "__main__":
    main(*sys.argv[1:3])
