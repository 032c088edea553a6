"""A socket before a runtime's, which keeps all that the runtime is sent."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.patience import scaled

WAIT_S = scaled(30.0)
_BLOCK = 65_536


class Tap:
    """What was sent, by connection in the order in which they came."""

    def __init__(self, runtime: Path, refused: bytes) -> None:
        self.sent: list[bytearray] = []
        self._runtime, self._refused = runtime, refused

    def serve(self, near: socket.socket) -> None:
        """Copies both ways until one end closes; one that says what is refused is cut off, and that is not copied."""
        said = bytearray()
        self.sent.append(said)
        with near, socket.socket(socket.AF_UNIX) as far, contextlib.suppress(OSError):
            far.connect(str(self._runtime))
            back = threading.Thread(target=_copy, args=(far, near))
            back.start()
            with contextlib.suppress(OSError):
                while block := near.recv(_BLOCK):
                    said += block
                    if self._refused and self._refused in said:
                        break
                    far.sendall(block)
            _hang_up(far)
            _hang_up(near)
            back.join(WAIT_S)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while block := source.recv(_BLOCK):
            sink.sendall(block)
        sink.shutdown(socket.SHUT_RDWR)


@contextmanager
def tapped(listen: Path, runtime: Path, refused: bytes = b"") -> Iterator[Tap]:
    """A tap at `listen`, which ends with its connections. Whoever sends these bytes is refused, if there are any."""
    tap = Tap(runtime, refused)
    threads: list[threading.Thread] = []
    with ExitStack() as ends, socket.socket(socket.AF_UNIX) as door:

        def accept() -> None:
            with contextlib.suppress(OSError):  # the end of the block
                while True:
                    near, _ = door.accept()
                    ends.callback(_hang_up, near)
                    threads.append(threading.Thread(target=tap.serve, args=(near,)))
                    threads[-1].start()

        door.bind(str(listen))
        door.listen()
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield tap
        finally:
            door.shutdown(socket.SHUT_RDWR)
            accepting.join(WAIT_S)
            ends.close()
            for thread in threads:
                thread.join(WAIT_S)


def _hang_up(link: socket.socket) -> None:
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
