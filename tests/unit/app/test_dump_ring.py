"""Memory between a relay and its dump's writer: what is put is taken as it was, in order, once."""

import os
import socket
from threading import Thread

from hypothesis import given
from hypothesis import strategies as st

from nodeward.app import dump_ring
from nodeward.app.dump_ring import Ring

BYTES = dump_ring.BYTES
BEGIN = 4096
SIZES = st.integers(0, BYTES // 2) | st.sampled_from([0, 1, BYTES - 1, BYTES, BYTES + 1])


def pair() -> tuple[Ring, Ring]:
    """The same memory twice, as two processes have it."""
    memory = os.memfd_create("ring")
    try:
        return Ring(memory, BEGIN), Ring(memory, BEGIN)
    finally:
        os.close(memory)


@given(st.lists(st.tuples(st.booleans(), SIZES), max_size=30))
def test_what_is_put_is_taken_as_it_was_and_in_order(steps: list[tuple[bool, int]]) -> None:
    """A step puts so many bytes, or takes so many at most."""
    (near, far), there = pair(), bytearray()
    for number, (puts, size) in enumerate(steps):
        if puts:
            data = bytes([number]) * size
            count = near.put(data)
            assert count == min(size, BYTES - len(there))
            there += data[:count]
        else:
            taken = far.take(size)
            assert len(taken) <= size
            assert bool(taken) == bool(there and size)
            assert taken == there[: len(taken)]
            del there[: len(taken)]
        assert near.used == far.used == len(there)


def test_who_reads_waits_until_it_is_told_and_has_all_before_the_end() -> None:
    """Given a reader in a thread, then all that is put reaches it, in whatever pieces, and then the end."""
    (near, far), (bell, ear) = pair(), socket.socketpair()
    data = os.urandom(3 * BYTES // 2)
    got = bytearray()

    def read() -> None:
        while part := far.read(ear.fileno(), 100_000):
            got.extend(part)

    with bell, ear:
        reader = Thread(target=read)
        reader.start()
        left = memoryview(data)
        while left:
            left = left[near.put(left) :]
            bell.send(b"\0")
        near.put(b"not told of")
        bell.close()
        reader.join(30.0)
    assert not reader.is_alive()
    assert bytes(got) == data + b"not told of"
