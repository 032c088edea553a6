"""A TCP relay on the loopback that can be cut: the control plane goes away for some, at one moment, and comes back."""

import contextlib
import ctypes
import os
import socket
import threading
from typing import Final

_BLOCK: Final = 65536
_CONNECT_TIMEOUT_S: Final = 60.0
_CLONE_NEWNET: Final = 0x40000000


class Relay:
    """Connections to `port` are connected to the target until it is cut, and again once it is mended. It listens in the
    network namespace of the process `within`; 0: in ours."""

    def __init__(self, host: str, port: int, within: int = 0) -> None:
        self._target, self._within = (host, port), within
        self._lock = threading.Lock()
        self._links: list[socket.socket] = []
        self._listener = self._listen(0)
        self.port: Final[int] = self._listener.getsockname()[1]

    def cut(self) -> None:
        """Ends every connection; new ones are refused."""
        with self._lock:
            links, self._links = [*self._links, self._listener], []
        for link in links:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()

    def mend(self) -> None:
        """Listens again at the same port."""
        self._listener = self._listen(self.port)

    def _listen(self, port: int) -> socket.socket:
        listener = _listening(port, self._within)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # cut
            while True:
                near, _ = listener.accept()
                threading.Thread(target=self._serve, args=(listener, near), daemon=True).start()

    def _serve(self, listener: socket.socket, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError), socket.create_connection(self._target, _CONNECT_TIMEOUT_S) as far:
            far.settimeout(None)
            with self._lock:
                if listener.fileno() < 0:
                    return
                self._links += [near, far]
            back = threading.Thread(target=_copy, args=(far, near), daemon=True)
            back.start()
            _copy(near, far)
            back.join()


def _listening(port: int, within: int) -> socket.socket:
    """A socket stays in the namespace in which it was made; only the thread that makes it is there."""
    if not within:
        return socket.create_server(("127.0.0.1", port))
    made: list[socket.socket] = []

    def make() -> None:
        with open(f"/proc/{within}/ns/net") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        made.append(socket.create_server(("127.0.0.1", port)))

    maker = threading.Thread(target=make)
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
