"""How many messages a second the dump's writer takes: beyond that for long, a dump has gaps.

The mix is kubelet's own (tests/component/relay/kubelet_mix.py): of 200 messages one is a list of 500 containers. They
are handed to the real writer as fast as it takes them, so the figure is what it takes without losing any; by its own
processor time it means something on a busy machine too.
"""

import asyncio
import random
import tempfile
import time
from functools import partial
from pathlib import Path

from bench.measure import cpu_us, median
from nodeward.features.settings import DumpSection
from nodeward.host.backoff import Backoff
from nodeward.host.clock import SystemClock
from nodeward.neighbours.cri import dump_rules
from nodeward.neighbours.cri.calls import Call, Ended, Message
from nodeward.programs.dump.feed import Feed, Writer
from tests.component.relay import kubelet_mix

ROUNDS, SECONDS = 5, 5
WAITING_BYTES = 8 * 1024 * 1024


def run() -> None:
    """Some rounds, each with a writer of its own."""
    rounds = [asyncio.run(_round()) for _ in range(ROUNDS)]
    rate, by_cpu, spent = (median([one[column] for one in rounds]) for column in range(3))
    print(
        "dump: kubelet's own mix, a list of 500 containers in each 200 messages, handed over as fast as it is written"
    )
    print(f"  {rate:.0f} messages/s; {by_cpu:.0f} for each second of processor time of its own")
    print(f"  {spent:.1f} us of processor a message on the relay's side")


async def _round() -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory(prefix="nwb") as folder:
        section = DumpSection(file=str(Path(folder) / "dump"), rules="reset,full:.*")
        writers: list[Writer] = []

        def start(again: bool) -> Writer:
            writers.append(Writer(section, again))
            return writers[-1]

        to = Feed(dump_rules.parse(section.rules), start, SystemClock(), Backoff(1.0, 1.0, random.random))
        to.open()
        await _second(to, 0)
        while writers[0].tally.done < to.told:
            await asyncio.sleep(0.01)
        before, pid = to.told, writers[0]._process.pid
        began, writer_us, own_s = time.monotonic(), cpu_us(pid), time.thread_time()
        for number in range(1, SECONDS + 1):
            await _second(to, number)
        own_s = time.thread_time() - own_s
        while writers[0].tally.done < to.told:
            await asyncio.sleep(0.001)
        took_s, writer_us = time.monotonic() - began, cpu_us(pid) - writer_us
        messages = to.told - before
        to.close(10.0)
        if to.lost:
            raise RuntimeError(f"{to.lost} messages were lost: the bench offers more than the queue holds")
        return messages / took_s, messages / writer_us * 1e6, own_s / messages * 1e6


async def _second(to: Feed, number: int) -> None:
    message = partial(Message, compressed=False, at_ns=2)
    for index, name in enumerate(kubelet_mix.second()):
        asked, answered = kubelet_mix.REQUESTS.get(name, b""), kubelet_mix.REPLIES.get(name, b"")
        call = Call(number * kubelet_mix.CALLS + index, 1, f"/runtime.v1.RuntimeService/{name}", 1)
        to.request(call, message((asked,), len(asked)))
        to.response(call, message((answered,), len(answered)))
        to.ended(call, Ended(0, "", 2))
    while to.waiting_bytes > WAITING_BYTES:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0)
