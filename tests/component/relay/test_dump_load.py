"""The dump of a real relay under load: nothing is lost at kubelet's own mix, and what is lost otherwise is all told."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import count
from pathlib import Path

import grpc
import pytest

from nodeward.model.view import DumpRow
from tests.component.relay import kubelet_mix
from tests.component.relay.dump_rig import writer_of
from tests.component.relay.rig import SERVICE, WAIT_S, call, client_of, log_of, relay_process, runtime_at, wait_for
from tests.component.relay.test_status import status
from tests.patience import patience

SECONDS = 5
MESSAGES_PER_S = 2 * kubelet_mix.CALLS
LATE_S = 0.5
"""The rate is kept by calls that come no later than this after their time, and the dump keeps pace with what is in its
file no later than this after it was relayed."""
MIB = 1 << 20


def dumped(file: Path) -> tuple[Counter[str], Counter[str], int]:
    """Requests and replies in the file by method, and how many messages it says are missing."""
    lines = file.read_text().splitlines()
    found = [re.fullmatch(r"\[.{24}?\] #\d+ (\w+) (=>|<=) \(passthrough\) (?:REQUEST|REPLY).*", line) for line in lines]
    asked, answered = (
        Counter(one[1] for one in found if one is not None and one[2] == arrow) for arrow in ("=>", "<=")
    )
    return asked, answered, sum(int(one) for one in re.findall(r"# (\d+) messages are missing here", "\n".join(lines)))


def told_of(file: Path) -> int:
    """The messages that stand in the file, and those that it says are missing."""
    asked, answered, marked = dumped(file)
    return asked.total() + answered.total() + marked


def said_of_dump(listen: Path) -> DumpRow:
    row = status(listen).dump
    assert row is not None
    return row


def lost(listen: Path) -> int:
    return said_of_dump(listen).lost


class Offer:
    """Kubelet's mix by the clock, whether answers come or not."""

    def __init__(self, channel: grpc.Channel, file: Path) -> None:
        self.sent = Counter[str]()
        self.seconds = 0
        self.answers: list[grpc.Future] = []
        self._calls = {name: channel.unary_unary(f"{SERVICE}/{name}") for name in set(kubelet_mix.second())}
        self._file = file
        self._written = 0
        self._read = 0
        self._began = time.monotonic()

    def second(self) -> None:
        """The calls of one more second, each at its time, or at once where that is past."""
        for number, name in enumerate(kubelet_mix.second()):
            due = self._began + self.seconds + number / kubelet_mix.CALLS
            time.sleep(max(0.0, due - time.monotonic()))
            self.answers.append(self._calls[name].future(kubelet_mix.REQUESTS.get(name, b""), timeout=WAIT_S))
            self.sent[name] += 1
        self.seconds += 1

    def late_s(self) -> float:
        """By how much the last call came after its time: while this stays small, the rate is kept."""
        return time.monotonic() - self._began - self.seconds

    def behind(self) -> int:
        """How many messages were relayed and are not in the file yet."""
        relayed = len(self.answers) + sum(1 for answer in self.answers if answer.done())
        more = b""
        if self._file.exists():
            with self._file.open("rb") as file:
                file.seek(self._read)
                more = file.read()
        more = more[: more.rfind(b"\n") + 1]
        self._read += len(more)
        self._written += len(re.findall(rb" \(passthrough\) (?:REQUEST|REPLY)", more))
        return relayed - self._written


@contextmanager
def busy_processors() -> Iterator[None]:
    """Each is wanted all the time by a process of normal priority."""
    spin = [sys.executable, "-c", "while True: pass"]
    with ExitStack() as stack:
        for _ in os.sched_getaffinity(0):
            spinning = subprocess.Popen(spin)
            stack.callback(spinning.wait)
            stack.callback(spinning.kill)
        yield


@pytest.mark.parametrize(
    ("machine", "changes"),
    [(nullcontext, False), (busy_processors, True)],
    ids=["idle", "busy, and each row of each list differs from those before"],
)
def test_nothing_is_lost_at_kubelets_own_mix_offered_whether_answers_come_or_not(
    machine: Callable[[], AbstractContextManager[None]], changes: bool, tmp_path: Path
) -> None:
    """Given a machine with time to spare, or one whose every processor others keep busy, and lists of which no row was
    ever seen: the writer runs when nothing else wants to, and must not be forgotten there. It keeps pace with a rate
    that was really offered: after five seconds or more, while calls go on, less than half a second of them waits."""
    listen, runtime, file = tmp_path / "cri.sock", tmp_path / "runtime.sock", tmp_path / "dump"
    dump = ("--dump", "reset,full:.*", "--dump-file", str(file))
    numbers = count()

    def behave(name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        if name == "ListContainers" and changes:
            return kubelet_mix.changed_list(next(numbers))
        return kubelet_mix.REPLIES.get(name, b"")

    with (
        runtime_at(runtime, behave),
        relay_process(listen, runtime, *dump),
        client_of(listen) as channel,
        machine(),
    ):
        within_s = WAIT_S * patience()
        offer = Offer(channel, file)
        while True:
            offer.second()
            if offer.seconds < SECONDS:
                continue
            late_s, behind = offer.late_s(), offer.behind()
            told = f"{offer.seconds} s of the mix were offered {late_s:.3f} s late, {behind} messages wait for the file"
            if late_s < LATE_S and behind < LATE_S * MESSAGES_PER_S:
                break
            assert offer.seconds < within_s, told
        for answer in offer.answers:
            answer.result(within_s)
        wait_for(lambda: said_of_dump(listen).waiting_bytes == 0, "dump for which nothing waits", within_s)
        assert lost(listen) == 0

    print(told, log_of(listen), sep="\n")
    seconds = offer.seconds
    assert offer.sent["ListContainers"] == seconds
    assert dumped(file) == (offer.sent, offer.sent, 0)
    made = Counter(re.findall(r'created_at: "?(\d+)', file.read_text()))
    ever = Counter(str(kubelet_mix.created_ns(second if changes else 0)) for second in range(seconds))
    assert made == Counter({one: times * kubelet_mix.CONTAINERS for one, times in ever.items()})


def test_a_disk_that_hangs_holds_no_call_up_and_every_message_is_in_the_file_or_counted_as_missing(
    tmp_path: Path,
) -> None:
    """The writer is stopped, as a hung disk would stop it, and has caught up before the relay ends: at its end it gives
    the dump ten seconds, which are too few where others keep the processors busy."""
    listen, runtime, file = tmp_path / "cri.sock", tmp_path / "runtime.sock", tmp_path / "dump"
    calls = 40
    with (
        runtime_at(runtime),
        relay_process(listen, runtime, "--dump", "reset,full:.*", "--dump-file", str(file)) as relay,
        client_of(listen) as channel,
    ):
        writer = writer_of(relay)
        call(channel, "Echo", b"first")
        wait_for(lambda: file.exists() and "Echo <=" in file.read_text(), "a dump")
        os.kill(writer, signal.SIGSTOP)
        try:
            for _ in range(calls):
                assert len(call(channel, "Echo", bytes(MIB))) == MIB
            missing = lost(listen)
        finally:
            os.kill(writer, signal.SIGCONT)
        wait_for(lambda: said_of_dump(listen).waiting_bytes == 0, "room for the mark", WAIT_S * patience())
        call(channel, "Echo", b"last")
        wait_for(lambda: told_of(file) == 2 * (calls + 2), "every message or its mark", WAIT_S * patience())
        assert lost(listen) == missing >= 2 * calls - 64

    assert dumped(file)[2] == missing
