"""How long and how much the OCI hook listens to a daemon, on real sockets: a runtime holds the container up meanwhile.

The hook's clock is injected, so nothing here is measured. No test runs into `LONG_S`: a hook that forgot its bound
would wait that long, and not fail as is asked here.
"""

import errno
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeward.shims.oci_hook import ask_socket
from nodeward.wire import hook_line

LINE = b"line\n"
ANSWER = b'{"v":1}\n'
LONG_S = 20.0
SHORT_S = 0.05


@contextmanager
def daemon(path: str, says: Callable[[socket.socket], None]) -> Iterator[threading.Event]:
    """A daemon that reads the line and then does what `says` does; the event is set when the hook has hung up."""
    gone = threading.Event()

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            assert peer.recv(len(LINE), socket.MSG_WAITALL) == LINE
            try:
                says(peer)
                if peer.recv(1) == b"":
                    gone.set()
            except OSError:  # the hook hung up while it was written to
                gone.set()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield gone
        thread.join(LONG_S)
        assert not thread.is_alive()


def clock(*readings: float) -> Callable[[], float]:
    """A clock that shows one reading after the other, and stays at the last."""
    coming = iter(readings)
    return lambda: next(coming, readings[-1])


def asked(path: str, answer_s: float, *readings: float) -> bytes:
    """What the hook hears with this patience and this clock."""
    return ask_socket(path, LINE, True, answer_s, clock(*readings))


def test_an_answer_in_pieces_is_put_together(tmp_path: Path) -> None:
    path = str(tmp_path / "hook.sock")

    def in_pieces(peer: socket.socket) -> None:
        for number in range(len(ANSWER)):
            peer.sendall(ANSWER[number : number + 1])

    with daemon(path, in_pieces) as gone:
        assert asked(path, LONG_S, 0.0) == ANSWER
        assert gone.wait(LONG_S)


def test_a_silent_daemon_is_left_when_the_patience_ends(tmp_path: Path) -> None:
    path = str(tmp_path / "hook.sock")

    with daemon(path, lambda peer: None) as gone:
        with pytest.raises(TimeoutError, match="timed out"):
            asked(path, SHORT_S, 0.0)
        assert gone.wait(LONG_S)


def test_the_wait_for_the_next_piece_is_what_is_left_of_the_whole(tmp_path: Path) -> None:
    """Else each piece would begin the patience anew, and the rest of this answer would still be heard."""
    path, hour = str(tmp_path / "hook.sock"), 3600.0

    def far_too_late(peer: socket.socket) -> None:
        peer.sendall(ANSWER[:1])
        hung_up, _, _ = select.select([peer], [], [], LONG_S)
        if not hung_up:
            peer.sendall(ANSWER[1:])

    with daemon(path, far_too_late) as gone:
        with pytest.raises(TimeoutError, match="timed out"):
            asked(path, hour, 0.0, 0.0, hour - SHORT_S)
        assert gone.wait(LONG_S)


@pytest.mark.parametrize("late_s", [0.0, 1.0], ids=["at the bound", "after it"])
def test_a_daemon_that_drips_is_left_at_the_bound_though_more_is_there(tmp_path: Path, late_s: float) -> None:
    path = str(tmp_path / "hook.sock")

    with daemon(path, lambda peer: peer.sendall(ANSWER[:1])) as gone:
        with pytest.raises(TimeoutError, match="no whole answer within 20 s"):
            asked(path, LONG_S, 0.0, 0.0, LONG_S + late_s)
        assert gone.wait(LONG_S)


def test_an_answer_without_end_is_left_soon_after_what_an_answer_can_be(tmp_path: Path) -> None:
    path, sent = str(tmp_path / "hook.sock"), list[int]()

    def without_end(peer: socket.socket) -> None:
        while sum(sent) < 64 * hook_line.MAX_ANSWER:  # an end all the same, for a hook that reads on
            sent.append(peer.send(b"x" * 4096))

    with daemon(path, without_end) as gone:
        with pytest.raises(OSError, match="grows without a line's end") as error:
            asked(path, LONG_S, 0.0)
        assert gone.wait(LONG_S)
    assert error.value.errno == errno.EPROTO
    assert sum(sent) < 64 * hook_line.MAX_ANSWER


def test_a_daemon_that_hangs_up_before_the_lines_end_is_no_answer(tmp_path: Path) -> None:
    path = str(tmp_path / "hook.sock")

    def half(peer: socket.socket) -> None:
        peer.sendall(ANSWER[:-1])
        peer.shutdown(socket.SHUT_WR)

    with daemon(path, half) as gone:
        with pytest.raises(OSError, match="after 7 bytes") as error:
            asked(path, LONG_S, 0.0)
        assert gone.wait(LONG_S)
    assert error.value.errno == errno.EPROTO


def test_a_daemon_that_takes_no_request_is_left_when_the_patience_ends(tmp_path: Path) -> None:
    path = str(tmp_path / "hook.sock")

    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(path)
        deaf.listen()
        with pytest.raises(TimeoutError):
            ask_socket(path, b"x" * hook_line.MAX_REQUEST, True, SHORT_S, clock(0.0))
