"""Memory between a relay and its dump's writer: what is put is taken as it was, in order, once, on any machine."""

import mmap
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from nodeward.app.dump import ring as dump_ring
from nodeward.app.dump.ring import Giver, Taker

BYTES = dump_ring.BYTES
BEGIN = mmap.PAGESIZE
SIZES = st.integers(0, BYTES // 2) | st.sampled_from([0, 1, BYTES - 1, BYTES, BYTES + 1])


@contextmanager
def pair() -> Iterator[tuple[Giver, Taker]]:
    """Both ends, each with the memory at a place of its own, as two processes have it."""
    memory = os.memfd_create("ring")
    try:
        near = Giver(memory, BEGIN)
        far = Taker(memory, BEGIN, *near.counters)
    finally:
        os.close(memory)
    try:
        yield near, far
    finally:
        near.close()


@given(st.lists(st.tuples(st.sampled_from(["put", "tell", "take"]), SIZES), max_size=40))
def test_what_is_put_is_taken_as_it_was_and_in_order_once_it_is_told(steps: list[tuple[str, int]]) -> None:
    """A step puts so many bytes, or takes so many at most."""
    there, told = bytearray(), 0
    with pair() as (near, far):
        for number, (what, size) in enumerate(steps):
            if what == "put":
                data = bytes([number]) * size
                count = near.put(data)
                assert count == min(size, BYTES - len(there))
                there += data[:count]
            elif what == "tell":
                assert near.tell() == (told < len(there))
                told = len(there)
            else:
                taken = far.take(size)
                assert len(taken) <= size
                assert bool(taken) == bool(told and size)
                assert taken == there[: min(len(taken), told)]
                del there[: len(taken)]
                told -= len(taken)
            assert near.used == len(there)


@given(st.lists(st.tuples(st.lists(st.integers(0, 40), max_size=4), st.integers(0, 64)), max_size=20))
def test_pieces_are_put_together_or_not_at_all(rounds: list[tuple[list[int], int]]) -> None:
    """Where they have room, and end before the memory does; in each round so many bytes are taken then."""
    there, begin = bytearray(), 0
    with mock.patch.object(dump_ring, "BYTES", ROUND), pair() as (near, far):
        for number, (sizes, taken) in enumerate(rounds):
            parts = numbered(sizes, number)
            whole = b"".join(parts)
            fits = len(whole) <= ROUND - max(begin, len(there))
            assert near.put_all(parts, len(whole)) == fits
            if fits:
                there, begin = there + whole, (begin + len(whole)) % ROUND
            near.tell()
            got = far.take(taken)
            assert there.startswith(got)
            del there[: len(got)]


def test_who_reads_waits_until_it_is_told_and_has_all_before_the_end() -> None:
    """Given a reader in a thread, then all that is put reaches it, in whatever pieces, and then the end."""
    (bell, ear), data, got = socket.socketpair(), os.urandom(3 * BYTES // 2), bytearray()
    with pair() as (near, far), bell, ear:

        def read() -> None:
            while part := far.read(ear.fileno(), 100_000):
                got.extend(part)

        reader = Thread(target=read)
        reader.start()
        left = memoryview(data)
        while left:
            left = left[near.put(left) :]
            near.tell()
            bell.send(b"\0")
        near.put(b"no bell for it")
        near.tell()
        bell.close()
        reader.join(30.0)
        assert not reader.is_alive()
    assert bytes(got) == data + b"no bell for it"


ROUND = 64
"""Bytes of the memory in what follows, so that it is gone round often."""
SOME = st.lists(st.sampled_from([1, 7, ROUND // 2, ROUND]), max_size=12)
ORDERS = st.lists(st.integers(0, 3), min_size=4, max_size=4)


class Late:
    """The giver's memory on a machine that keeps no order which it need not: what is stored gets there in pieces, in
    any order, and no sooner than it must, when the kernel is called. Somebody looks after each piece."""

    def __init__(self, memory: memoryview, orders: Iterator[list[int]], looks: Callable[[], None]) -> None:
        self.memory, self.orders, self.looks = memory, orders, looks
        self.waiting: list[tuple[int, bytes]] = []

    def __setitem__(self, place: slice, data: bytes | memoryview) -> None:
        begin, middle = place.start or 0, len(data) // 2
        self.waiting += [(begin, bytes(data[:middle])), (begin + middle, bytes(data[middle:]))]

    def arrive(self) -> None:
        """All of it is there when this returns."""
        waiting, self.waiting = self.waiting, []
        order = next(self.orders, [])
        for _, (begin, data) in sorted(enumerate(waiting), key=lambda one: order[one[0]] if order else 0):
            self.memory[begin : begin + len(data)] = data
            self.looks()


class Slow:
    """The taker's memory, which is loaded no sooner than it must be. Somebody puts before."""

    def __init__(self, memory: memoryview, puts: Callable[[], None]) -> None:
        self.memory, self.puts = memory, puts

    def __getitem__(self, place: slice) -> memoryview:
        self.puts()
        return self.memory[place]


def numbered(sizes: list[int], first: int = 1) -> list[bytes]:
    """So many bytes each, which can be told from all others nearby."""
    return [bytes([number % 256]) * size for number, size in enumerate(sizes, first)]


@given(SOME, st.lists(ORDERS))
def test_bytes_that_are_stored_late_and_in_any_order_are_never_read_torn(
    sizes: list[int], orders: list[list[int]]
) -> None:
    put, taken, kernel = bytearray(), bytearray(), os.eventfd_write
    with mock.patch.object(dump_ring, "BYTES", ROUND), pair() as (near, far):

        def look() -> None:
            while data := far.take(ROUND):
                taken.extend(data)
            assert put.startswith(taken)

        late = Late(near._bytes, iter(orders), look)

        def write(counter: int, count: int) -> None:
            if counter == near.counters[0]:
                late.arrive()
            kernel(counter, count)

        with mock.patch.object(near, "_bytes", late), mock.patch.object(os, "eventfd_write", write):
            for chunk in numbered(sizes):
                put.extend(chunk)
                assert near.put(chunk) == len(chunk)
                near.tell()
                look()
    assert taken == put


@given(SOME, SOME)
def test_bytes_that_are_copied_late_are_not_written_over(sizes: list[int], meanwhile: list[int]) -> None:
    put, taken, more = bytearray(), bytearray(), iter(numbered(meanwhile, 100))

    def give(chunk: bytes) -> None:
        put.extend(chunk[: near.put(chunk)])
        near.tell()

    with mock.patch.object(dump_ring, "BYTES", ROUND), pair() as (near, far):
        slow = Slow(far._bytes, lambda: give(next(more, b"")))
        with mock.patch.object(far, "_bytes", slow):
            for chunk in numbered(sizes):
                give(chunk)
                while data := far.take(ROUND // 2):
                    taken.extend(data)
    assert put.startswith(taken)
