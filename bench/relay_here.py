"""The relay with somebody who copies what ListContainers answers, and drops it, for bench/relay.py.

python -m bench.relay_here LISTEN RUNTIME
"""

import sys

from nodeward.aio.clock import SystemClock
from nodeward.app import process, relay
from nodeward.model.relayed import Call, Ended, Interest, Message


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


def main(listen: str, runtime: str) -> None:
    """Relays until SIGTERM."""
    plan = relay.RelayPlan(listen, runtime, watchers=(Watch(),))
    process.set_up_logs("error")
    process.run(relay.run(plan, SystemClock()))


if __name__ == "__main__":
    main(*sys.argv[1:])
