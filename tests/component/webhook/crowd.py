"""Many clients of the webhook that ask in one moment: plain sockets with TLS, and one thread for all of them.

Each brings one request, and keeps what came of it: a status and when, or that the connection ended without one. Must
not judge.
"""

import errno
import os
import selectors
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

_PIECE = 64 * 1024
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


@dataclass(frozen=True, slots=True)
class Said:
    """What came of a request: the status, 0 where the connection ended without one, and how long it took."""

    status: int
    after_s: float
    ends: bool
    """The server closes the connection after it."""


class Client:
    """One connection. It is `greeted` once its handshake is over."""

    def __init__(self, port: int, trust: ssl.SSLContext, within_s: float, *, greeted: bool = True) -> None:
        plain = socket.socket()
        plain.settimeout(within_s if greeted else 0.0)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if (error := plain.connect_ex(("127.0.0.1", port))) not in (0, errno.EINPROGRESS):
            plain.close()
            raise OSError(error, f"cannot connect: {os.strerror(error)}")  # also where no port of our own is left
        self._arrived = self._greeted = greeted
        self._plain, self._trust = plain, trust
        self.socket = plain
        if greeted:
            self.socket = made = self._wrapped()
            made.do_handshake()
        self.socket.setblocking(False)
        self._left, self._got = memoryview(b""), b""
        self.found = (0, True)
        """The status, and whether the connection ends after it."""

    def bring(self, message: bytes) -> int:
        """Begins to ask; see `turn`."""
        self._left, self._got, self.found = memoryview(message), b"", (0, True)
        return self.turn()

    def turn(self) -> int:
        """Goes on as far as it can. The event that it waits for; 0 where the answer is whole, or lost."""
        try:
            return self._turn()
        except ssl.SSLWantReadError:
            return _READ
        except ssl.SSLWantWriteError:
            return _READ | _WRITE
        except OSError:
            return 0

    def _turn(self) -> int:
        if not self._arrived:
            if error := self._plain.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(error, "cannot connect")
            try:
                self._plain.getpeername()
            except OSError:  # not yet
                return _READ | _WRITE
            self._arrived, self.socket = True, self._wrapped()
        if not self._greeted:
            assert isinstance(self.socket, ssl.SSLSocket)
            self.socket.do_handshake()
            self._greeted = True
        while self._left:
            self._left = self._left[self.socket.send(self._left[:_PIECE]) :]
        while piece := self.socket.recv(_PIECE):
            self._got += piece
            if self._whole():
                return 0
        return 0

    def _wrapped(self) -> ssl.SSLSocket:
        return self._trust.wrap_socket(self._plain, server_hostname="127.0.0.1", do_handshake_on_connect=False)

    def _whole(self) -> bool:
        head, blank, body = self._got.partition(b"\r\n\r\n")
        low = head.lower()
        if not blank or len(body) < int(low.partition(b"content-length:")[2].split()[0]):
            return False
        self.found = (int(head.split(None, 2)[1]), b"connection: close" in low)
        return True


@contextmanager
def crowd(
    port: int, trust: ssl.SSLContext, size: int, within_s: float, *, greeted: bool = True, first: bytes = b""
) -> Iterator[list[Client]]:
    """So many connections. Each brings the `first` request as soon as it stands, if there is one: a server has no
    patience with those that have brought none."""
    clients: list[Client] = []
    try:
        for _ in range(size):
            clients.append(Client(port, trust, within_s, greeted=greeted))
            if first and [one.status for one in ask(clients[-1:], first, within_s)] != [200]:
                raise RuntimeError("the server does not answer")
        yield clients
    finally:
        for client in clients:
            client.socket.close()


def ask(
    clients: Sequence[Client], message: bytes, within_s: float, begin: Callable[[], object] = lambda: None
) -> list[Said]:
    """What came of every client's request, in the order in which it came; the time is counted from `begin`, which is
    called when all have brought what the sockets take. TimeoutError where one gets nothing."""
    said: list[Said] = []
    with selectors.DefaultSelector() as selector:
        waiting = 0
        for client in clients:
            wanted = client.bring(message)
            if wanted:
                selector.register(client.socket, wanted, client)
                waiting += 1
            else:
                said.append(Said(client.found[0], 0.0, client.found[1]))
        begin()
        began = time.perf_counter()
        end = began + within_s
        while waiting:
            ready = selector.select(max(0.0, end - time.perf_counter()))
            if not ready:
                raise TimeoutError(f"{waiting} of {len(clients)} requests have no answer within {within_s:g} s")
            for key, _ in ready:
                asker: Client = key.data
                wanted = asker.turn()
                if wanted:
                    selector.modify(asker.socket, wanted, asker)
                    continue
                selector.unregister(asker.socket)
                waiting -= 1
                status, ends = asker.found
                said.append(Said(status, time.perf_counter() - began, ends))
    return said
