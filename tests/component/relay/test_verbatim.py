"""What is sent to a relay that runs is what comes at its other end, byte for byte, in sessions by a seed and in pieces
by a seed; where calls are decided, but for the frames of its own, which are listed one by one."""

from __future__ import annotations

import random
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from tests.component.relay.rig import WAIT_S, log_of, relay_process
from tests.component.relay.test_limits import create, kernel
from tests.unit.transport.between import OK, TRAILERS
from tests.unit.transport.strict import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    INITIAL,
    RST,
    TABLE,
    WINDOW,
    StrictEnd,
    frames,
    message,
    request,
)

PREFACE_BYTES, PADDING = 24, 10
METHODS = ("Version", "ListContainers", "StreamPodSandboxes", "NotInvented")
"""Of calls that are not decided."""


class Wire:
    """Both ends of one connection through a relay, on raw sockets. Their bytes go in pieces of any size."""

    def __init__(self, source: random.Random, listen: Path, behind: socket.socket) -> None:
        self.source, self.client, self.runtime = source, StrictEnd(client=True), StrictEnd(client=False)
        self.client.settings({INITIAL: 70_000 + source.randrange(1000)})
        self.answered: set[int] = set()
        """Streams whose answer has begun."""
        self.sent = {id(end): bytearray() for end in (self.client, self.runtime)}
        near = socket.socket(socket.AF_UNIX)
        near.connect(str(listen))
        self.sockets = {id(self.client): near}
        greeting = bytes(self.client.out)
        self._send(self.client, len(greeting))
        self.sockets[id(self.runtime)] = accepted(behind, greeting)
        for one in self.sockets.values():
            one.setblocking(False)

    def close(self) -> None:
        for one in self.sockets.values():
            one.close()

    def carry(self) -> None:
        """Some bytes of either end, and what has come at both."""
        for end in (self.client, self.runtime):
            self._send(end, self.source.choice((1, 8, 9, 10, 100, 5000)))
        for end in (self.client, self.runtime):
            with suppress(BlockingIOError):
                end.feed(self.sockets[id(end)].recv(1 << 20))

    def _send(self, end: StrictEnd, most: int) -> None:
        with suppress(BlockingIOError):
            count = self.sockets[id(end)].send(end.out[:most])
            self.sent[id(end)] += end.take(count)

    def settle(self) -> None:
        """Until as much has come as was sent; an answer to what came may have to be sent, too."""
        ways = ((self.client, self.runtime), (self.runtime, self.client))
        self.until(lambda: all(not near.out and len(far.got) >= len(self.sent[id(near)]) for near, far in ways))

    def until(self, true: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_S
        while not true():
            assert time.monotonic() < end, {
                len(self.sent[id(one)]): len(one.got) for one in (self.client, self.runtime)
            }
            self.carry()
            if not (self.client.out or self.runtime.out):
                select.select(list(self.sockets.values()), [], [], 0.01)


def has_ended(end: StrictEnd, stream: int) -> bool:
    return stream in end.streams and end.streams[stream].got_end


def accepted(behind: socket.socket, greeting: bytes) -> socket.socket:
    """The relay's connection for this client; another one, by which it asks for itself, is closed."""
    while True:
        found, _ = behind.accept()
        found.settimeout(WAIT_S)
        if found.recv(len(greeting), socket.MSG_PEEK | socket.MSG_WAITALL) == greeting:
            return found
        found.close()


@contextmanager
def relayed(folder: Path, *flags: str) -> Iterator[tuple[Path, socket.socket]]:
    listen, runtime = folder / "cri.sock", folder / "runtime.sock"
    with socket.socket(socket.AF_UNIX) as behind:
        behind.bind(str(runtime))
        behind.listen()
        behind.settimeout(WAIT_S)
        with relay_process(listen, runtime, *flags):
            yield listen, behind


def acts_enough(wire: Wire, source: random.Random) -> bool:
    """Whether either end has said much, after one more thing."""
    acts(wire, source.choice((wire.client, wire.runtime)), source)
    return min(map(len, wire.sent.values())) > 30_000


def acts(wire: Wire, end: StrictEnd, source: random.Random) -> None:
    """One thing that this end may do now."""
    is_client = end is wire.client
    open_ = [number for number, one in end.streams.items() if not (one.gone or one.sent_end)]
    if is_client and (not open_ or source.random() < 0.2):
        method, seed = source.choice(METHODS), source.randbytes(source.randrange(40)).hex().encode()
        split, padding = source.choice((0, 0, 7)), source.choice((-1, -1, 0, 30))
        end.headers(2 * len(end.streams) + 1, request(method, (b"x-seed", seed)), split=split, padding=padding)
    elif open_:
        stream = source.choice(open_)
        if not is_client and stream not in wire.answered:
            wire.answered.add(stream)
            end.headers(stream, (*OK, (b"x-seed", source.randbytes(8).hex().encode())))
        else:
            goes_on(end, stream, source)


def goes_on(end: StrictEnd, stream: int, source: random.Random) -> None:
    match source.randrange(10):
        case 0:
            end.ping(source.randbytes(8))
        case 1:
            end.grant(source.choice((0, stream)), source.randrange(1, 5000))
        case 2:
            end.settings({TABLE: source.choice((0, 100, 4096))})
        case 3 if source.random() < 0.3:
            end.reset(stream)
        case 4 if end.client:
            end.data(stream, b"", end=True)
        case 4:
            end.headers(stream, TRAILERS, end=True)
        case _ if end.room(stream) > PADDING:
            body = source.choice((message(source.randbytes(200)), source.randbytes(source.randrange(3000))))
            end.data(stream, body[: end.room(stream) - PADDING - 1], padding=source.choice((-1, PADDING)))


@pytest.mark.parametrize("decides", [False, True], ids=["nobody-decides", "limits-are-decided"])
def test_a_session_of_calls_that_are_not_held_comes_as_it_was_sent_at_both_ends(tmp_path: Path, decides: bool) -> None:
    with relayed(tmp_path, *(kernel(tmp_path) if decides else ())) as (listen, behind):
        for seed in range(5):
            source = random.Random(seed)
            wire = Wire(source, listen, behind)
            try:
                wire.until(partial(acts_enough, wire, source))
                wire.settle()
            finally:
                wire.close()
            assert wire.runtime.got == wire.sent[id(wire.client)], f"seed {seed}"
            assert wire.client.got == wire.sent[id(wire.runtime)], f"seed {seed}"
    assert "lost_sight=0" in log_of(listen)


def test_of_its_own_the_relay_says_a_limit_and_a_refusal_and_nothing_more(tmp_path: Path) -> None:
    """Given a create that is limited, a call that passes and a create that is refused, then what is new at the runtime
    is the limit behind the first one's bytes, and a reset in the place of the last one's; at the client the refusal,
    and the window back that nobody's bytes have used."""
    source = random.Random(7)
    limited, refused = message(create()), message(create({}, uid="nobody"))
    flags = (*kernel(tmp_path), "--set", "limits.unknown_pod=refuse", "--set", "pods.wait_ms=0")
    with relayed(tmp_path, *flags) as (listen, behind):
        wire = Wire(source, listen, behind)
        client, runtime = wire.client, wire.runtime
        try:
            wire.settle()
            for stream, method, body in ((1, "CreateContainer", limited), (3, "Version", message(b""))):
                client.headers(stream, request(method))
                client.data(stream, body, end=True)
                wire.until(partial(has_ended, runtime, stream))
            client.headers(5, request("CreateContainer"))
            client.data(5, refused, end=True)
            wire.until(lambda: client.streams[5].got_end and 5 in runtime.streams and runtime.streams[5].gone)
            for stream in (3, 1):
                runtime.headers(stream, OK)
                runtime.data(stream, message(b"said"))
                runtime.headers(stream, TRAILERS, end=True)
            client.ping(b"the end.")
            wire.until(lambda: bool(client.pings))
        finally:
            wire.close()
    longer = bytes(runtime.streams[1].body)
    came, sent = frames(runtime.got[PREFACE_BYTES:]), frames(wire.sent[id(client)][PREFACE_BYTES:])
    assert longer[5:].startswith(create())
    listed = [(DATA, END_STREAM, 1, longer) if one == (DATA, END_STREAM, 1, limited) else one for one in sent]
    listed[listed.index((DATA, END_STREAM, 5, refused))] = (RST, 0, 5, (8).to_bytes(4, "big"))
    assert came == listed
    own = [one for one in frames(client.got) if one not in frames(wire.sent[id(runtime)])]
    back = (len(refused) - (len(longer) - len(limited))).to_bytes(4, "big")
    assert sorted(one[:3] for one in own) == [(HEADERS, END_STREAM | END_HEADERS, 5), (WINDOW, 0, 0)]
    assert (WINDOW, 0, 0, back) in own
    assert [one for one in frames(client.got) if one not in own] == frames(wire.sent[id(runtime)])
    assert dict(client.streams[5].headers[0])[b"grpc-status"] == b"14"
