"""A TCP relay on the loopback that can be cut: the control plane goes away for some, at one moment, and comes back."""

import contextlib
import ctypes
import os
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

_BLOCK: Final = 65536
_CONNECT_TIMEOUT_S: Final = 60.0
_CLONE_NEWNET: Final = 0x40000000


class Relay:
    """Connections to `port` are connected to the target until it is cut, and again once it is mended. It listens in the
    network namespace of the process `within` and connects in that of `toward`; 0: in ours. `at` is where it listens."""

    def __init__(
        self, host: str, port: int, within: int = 0, toward: int = 0, at: tuple[str, int] = ("127.0.0.1", 0)
    ) -> None:
        self._target, self._within, self._toward, self._host = (host, port), within, toward, at[0]
        self._lock = threading.Lock()
        self._links: list[socket.socket] = []
        self._listener = self._listen(at[1])
        self.port: Final[int] = self._listener.getsockname()[1]

    def cut(self) -> None:
        with self._lock:
            links, self._links = [*self._links, self._listener], []
        for link in links:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()

    def mend(self) -> None:
        self._listener = self._listen(self.port)

    def _listen(self, port: int) -> socket.socket:
        listener = _made_in(self._within, partial(socket.create_server, (self._host, port)))
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # cut
            while True:
                near, _ = listener.accept()
                threading.Thread(target=self._serve, args=(listener, near), daemon=True).start()

    def _serve(self, listener: socket.socket, near: socket.socket) -> None:
        connect = partial(socket.create_connection, self._target, _CONNECT_TIMEOUT_S)
        with near, contextlib.suppress(OSError, IndexError), _made_in(self._toward, connect) as far:
            far.settimeout(None)
            with self._lock:
                if listener.fileno() < 0:
                    return
                self._links += [near, far]
            back = threading.Thread(target=_copy, args=(far, near), daemon=True)
            back.start()
            _copy(near, far)
            back.join()


def _made_in(process: int, make: Callable[[], socket.socket]) -> socket.socket:
    """A socket stays in the namespace in which it was made; only the thread that makes it is there. IndexError where it
    cannot be made."""
    if not process:
        return make()
    made: list[socket.socket] = []

    def enter() -> None:
        with open(f"/proc/{process}/ns/net") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        with contextlib.suppress(OSError):
            made.append(make())

    maker = threading.Thread(target=enter)
    maker.start()
    maker.join()
    return made[0]


def _copy(source: socket.socket, sink: socket.socket) -> None:
    """Until one end closes; then the other is told."""
    with contextlib.suppress(OSError):
        while block := source.recv(_BLOCK):
            sink.sendall(block)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
