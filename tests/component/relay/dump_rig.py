"""A relay's dump without its relay: what a watcher is told, and the command that reads it back."""

import asyncio
import signal
import subprocess
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from click.testing import CliRunner, Result

from nodeward.cli.dump import command
from nodeward.contracts import cri_pb2 as cri
from nodeward.features.settings import DumpSection
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock, SystemClock
from nodeward.neighbours.cri import dump_rules
from nodeward.neighbours.cri.calls import Call, Ended, Message
from nodeward.programs.dump.feed import Feed, Writer
from tests.patience import scaled

RUN = "/runtime.v1.RuntimeService/RunPodSandbox"
CLOSE_S = scaled(20.0)


def feed(section: DumpSection, start: Callable[[bool], Writer] | None = None, clock: Clock | None = None) -> Feed:
    return Feed(
        dump_rules.parse(section.rules),
        start or partial(Writer, section),
        clock or SystemClock(),
        Backoff(0.01, 0.02, lambda: 0.5),
    )


def dumped(
    path: Path, tale: Callable[[Feed, list[Writer]], Awaitable[None]], clock: Clock | None = None, most: int = 1 << 28
) -> tuple[Feed, list[Writer]]:
    """Plays the tale with a dump into this file of at most so many bytes, and the writers that it has had, and ends the
    dump."""
    section, writers = DumpSection(file=str(path), max_bytes=most), list[Writer]()

    def start(again: bool) -> Writer:
        writers.append(Writer(section, again))
        return writers[-1]

    async def story() -> Feed:
        to = feed(section, start, clock)
        to.open()
        await tale(to, writers)
        to.close(CLOSE_S)
        return to

    return asyncio.run(story()), writers


async def drained(to: Feed) -> None:
    """Returns once the writer has done all that it was given. At its end it has CLOSE_S, and how much of a processor
    it gets in that time is the machine's affair."""
    while to._writer is None or to._writer.tally.done < to._begun:
        await asyncio.sleep(0.001)


def message(payload: bytes) -> Message:
    return Message((payload,), len(payload), False, 3_000_000)


def run_pod(to: Feed, number: int, name: str, sandbox: str) -> None:
    asked = cri.RunPodSandboxRequest()
    asked.config.metadata.name, asked.config.metadata.namespace, asked.config.metadata.uid = (
        name,
        "default",
        f"u-{name}",
    )
    call = Call(number, 1, RUN, 1_000_000)
    to.began(call)
    to.request(call, message(asked.SerializeToString()))
    to.response(call, message(cri.RunPodSandboxResponse(pod_sandbox_id=sandbox).SerializeToString()))
    to.ended(call, Ended(0, "", 4_000_000))


def dump(path: Path, *options: str) -> Result:
    before = signal.getsignal(signal.SIGPIPE)
    try:
        return CliRunner().invoke(command, [str(path), *options])
    finally:
        signal.signal(signal.SIGPIPE, before)  # the command lets a closed pipe end its process


def writer_of(relay: "subprocess.Popen[str]") -> int:
    children = Path(f"/proc/{relay.pid}/task/{relay.pid}/children").read_text().split()
    assert len(children) == 1
    return int(children[0])
