"""The dump of a real relay under load: nothing is lost at kubelet's own mix, and what is lost otherwise is all told."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path

import grpc
import pytest

from tests.component.relay import kubelet_mix
from tests.component.relay.rig import SERVICE, WAIT_S, call, client_of, log_of, relay_process, runtime_at, wait_for

SECONDS = 5
MESSAGES_PER_S = 2 * kubelet_mix.CALLS
MIB = 1 << 20


def dumped(file: Path) -> tuple[Counter[str], Counter[str], int]:
    """Requests and replies in the file by method, and how many messages it says are missing."""
    lines = file.read_text().splitlines()
    found = [re.fullmatch(r"\[.{24}?\] #\d+ (\w+) (=>|<=) \(passthrough\) (?:REQUEST|REPLY).*", line) for line in lines]
    asked, answered = (
        Counter(one[1] for one in found if one is not None and one[2] == arrow) for arrow in ("=>", "<=")
    )
    return asked, answered, sum(int(one) for one in re.findall(r"# (\d+) messages are missing here", "\n".join(lines)))


def lost(listen: Path) -> int:
    """What the relay says that its dump has lost."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(WAIT_S)
        client.connect(str(listen.parent / "run" / "relay.sock"))
        client.sendall(b'{"v":1,"ask":"status"}\n')
        said = b"".join(iter(lambda: client.recv(65536), b""))
    found = re.search(rb'"lost": ?(\d+)', said)
    assert found is not None, json.loads(said)
    return int(found[1])


def writer_of(relay: "subprocess.Popen[str]") -> int:
    """The process that writes its dump."""
    children = Path(f"/proc/{relay.pid}/task/{relay.pid}/children").read_text().split()
    assert len(children) == 1
    return int(children[0])


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
    ever seen: the writer runs when nothing else wants to, and must not be forgotten there."""
    listen, runtime, file = tmp_path / "cri.sock", tmp_path / "runtime.sock", tmp_path / "dump"
    dump = ("--dump", "reset,full:.*", "--dump-file", str(file))
    sent = Counter[str]()
    answers: list[grpc.Future] = []
    lists = [kubelet_mix.changed_list(second if changes else 0) for second in range(SECONDS)]
    rest = iter(lists)

    def behave(name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        return next(rest) if name == "ListContainers" else kubelet_mix.REPLIES.get(name, b"")

    with (
        runtime_at(runtime, behave),
        relay_process(listen, runtime, *dump),
        client_of(listen) as channel,
        machine(),
    ):
        calls = {name: channel.unary_unary(f"{SERVICE}/{name}") for name in set(kubelet_mix.second())}
        began = time.monotonic()
        for number, name in enumerate(name for _ in range(SECONDS) for name in kubelet_mix.second()):
            due = began + number * 2 / MESSAGES_PER_S
            time.sleep(max(0.0, due - time.monotonic()))
            answers.append(calls[name].future(kubelet_mix.REQUESTS.get(name, b""), timeout=WAIT_S))
            sent[name] += 1
        for answer in answers:
            answer.result(WAIT_S)
        assert lost(listen) == 0

    print(log_of(listen))
    assert sent["ListContainers"] == SECONDS
    assert dumped(file) == (sent, sent, 0)
    made = Counter(re.findall(r'created_at: "?(\d+)', file.read_text()))
    ever = Counter(str(kubelet_mix.created_ns(second if changes else 0)) for second in range(SECONDS))
    assert made == Counter({one: times * kubelet_mix.CONTAINERS for one, times in ever.items()})


def test_a_disk_that_hangs_holds_no_call_up_and_every_message_is_in_the_file_or_counted_as_missing(
    tmp_path: Path,
) -> None:
    """The writer is stopped, as a hung disk would stop it."""
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

    asked, answered, marked = dumped(file)
    assert missing >= 2 * calls - 64
    assert marked == missing
    assert asked["Echo"] + answered["Echo"] + marked == 2 * (calls + 1)
