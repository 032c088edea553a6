"""The relay with somebody who watches lists, or who changes creates, for bench/relay.py.

    python -m bench.relay_here LISTEN RUNTIME watched|held

`watched` copies what ListContainers answers, and drops it. `held` appends a constant to every CreateContainer, as large
as a limit on `misc.max` is: what holding costs, without any decision.
"""

import sys

import uvloop

from nodeward.aio.clock import SystemClock
from nodeward.app import process, relay
from nodeward.model.relayed import Call, Ended, Interest, Message, Pass, Replace, Verdict

APPENDED = bytes(34)


class Watch:
    """Sees ListContainers."""

    def interest(self, path: str) -> Interest:
        return Interest.RESPONSE if path.endswith("/ListContainers") else Interest.NONE

    def began(self, call: Call) -> None:
        pass

    def request(self, call: Call, message: Message) -> None:
        pass

    def response(self, call: Call, message: Message) -> None:
        if message.cut:
            raise MemoryError

    def ended(self, call: Call, end: Ended) -> None:
        pass


class Append:
    """Decides CreateContainer."""

    def holds(self, path: str) -> bool:
        return path.endswith("/CreateContainer")

    def decide(self, call: Call, message: bytes, within_ns: int) -> Verdict:
        return Replace(message + APPENDED)

    def undecided(self, call: Call, message: bytes | None, why: str, ending: bool) -> Verdict:
        return Pass()


def main(listen: str, runtime: str, how: str) -> None:
    """Relays until SIGTERM."""
    watched = relay.RelayPlan(listen, runtime, watchers=(Watch(),))
    plan = watched if how == "watched" else relay.RelayPlan(listen, runtime, decider=Append())
    process.set_up_logs("error")
    uvloop.run(process.until_signal(relay.run(plan, SystemClock())))


if __name__ == "__main__":
    main(*sys.argv[1:])
