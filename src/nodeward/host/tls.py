"""A server's certificate that follows its files: new files are used without a restart, bad files are not.

Promises: `context` is always made of a certificate and its own key that were read together; a pair that cannot be used
is said once in the log and leaves the last good one in place; connections that are open stay as they are. Files are
read off the loop's thread, with a bound. A mounted Secret is a symlink that moves, which changes the inode seen here.

Must not: know what is served.

    NodewardError
    └── TlsFilesError    a certificate or key file that cannot be used
"""

import asyncio
import logging
import os
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from typing import cast

from nodeward.core.errors import NodewardError
from nodeward.host.clock import Clock

log = logging.getLogger(__name__)
MAX_BYTES = 1024 * 1024

Marks = tuple[tuple[int, ...], ...]


class TlsFilesError(NodewardError):
    """A certificate or key file that cannot be used."""


class _OnShared(SSLProtocol):
    max_size = 16 * 1024  # of the buffer that it makes for itself, and of what it reads from a connection that ends


async def shake_hands(
    peer: socket.socket,
    protocol: asyncio.BufferedProtocol,
    context: ssl.SSLContext,
    buffer: bytearray,
    handshake_s: float,
    shutdown_s: float,
) -> None:
    """Serves TLS to a connection that was accepted; `protocol` hears of it once hands are shaken, and of its
    end also where this call is cancelled. OSError where they are not, or not in time.

    What comes is read into `buffer`, which may be that of all connections of one loop: it is taken out in the same
    callback. By themselves both loops keep 256 KiB for every connection's whole life, so that two thousand idle ones
    hold half a gibibyte. asyncio's TLS can be told otherwise, uvloop's cannot."""
    loop = asyncio.get_running_loop()
    shaken: asyncio.Future[None] = loop.create_future()
    within_s = cast("int", handshake_s)  # which is narrower in typeshed than in asyncio
    tls = _OnShared(
        loop, protocol, context, shaken, True, ssl_handshake_timeout=within_s, ssl_shutdown_timeout=shutdown_s
    )
    vars(tls).update(_ssl_buffer=buffer, _ssl_buffer_view=memoryview(buffer))  # unknown ones change nothing
    transport: asyncio.Transport | None = None
    try:
        transport, _ = await loop.connect_accepted_socket(lambda: tls, peer)
        await shaken
    except BaseException:
        if transport is not None:
            transport.abort()
        tls.connection_lost(None)  # uvloop closes the socket of a call that is cancelled, and tells nobody
        raise


class ReloadingTls:
    """The present server context of a pair of files."""

    def __init__(self, certificate_file: str, key_file: str) -> None:
        self._files = (certificate_file, key_file)
        self._used: Marks = ()
        self._refused: Marks = ()
        self.context: ssl.SSLContext | None = None
        """For connections accepted from now on; None until the first `check`."""
        self.loads = 0
        """How often a pair was taken into use."""
        self.fault = ""
        """Why the present files are not in use; empty while they are."""

    async def check(self) -> None:
        """Looks at the files and loads them if they changed. Raises TlsFilesError only while there is no context."""
        marks = await asyncio.to_thread(marks_of, self._files)
        if self.context is not None and marks in (self._used, self._refused):
            return
        try:
            context = await asyncio.to_thread(_load, self._files)
        except TlsFilesError as error:
            if self.context is None:
                raise
            self._refused, self.fault = marks, str(error)
            log.warning("certificate=kept because=%s", error)
            return
        if await asyncio.to_thread(marks_of, self._files) != marks and self.context is not None:
            return  # they changed while they were read: the next check reads them again
        if self.context is not None:
            log.info("certificate=reloaded file=%s", self._files[0])
        self.context, self._used, self._refused, self.fault = context, marks, (), ""
        self.loads += 1

    async def watch(self, clock: Clock, every_s: float) -> None:
        """Checks again and again, until cancelled."""
        while True:
            await self.check()
            await clock.sleep(every_s)


def marks_of(names: tuple[str, ...]) -> Marks:
    """Modification time, inode and size of each file: a Secret's symlink that moves changes the inode (blocking)."""
    marks: list[tuple[int, ...]] = []
    for name in names:
        try:
            found = os.stat(name)
            marks.append((found.st_mtime_ns, found.st_ino, found.st_size))
        except OSError:
            marks.append(())
    return tuple(marks)


def _load(names: tuple[str, str]) -> ssl.SSLContext:
    """A context of the two files (blocking)."""
    for name in names:
        try:
            size = os.stat(name).st_size
        except OSError as error:
            raise TlsFilesError(
                f"{name} cannot be read: {error.strerror}; mount the certificate's Secret there, or correct the path"
            ) from error
        if size > MAX_BYTES:
            raise TlsFilesError(f"{name} has {size} bytes, more than {MAX_BYTES}: it is no certificate or key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without a password an encrypted key would be asked for on the terminal.
        context.load_cert_chain(names[0], names[1], password="")
    except (ssl.SSLError, ValueError) as error:
        raise TlsFilesError(
            f"{names[0]} and {names[1]} are no pair that can be used: "
            f"{getattr(error, 'reason', None) or 'unreadable'}; give a PEM certificate with its own, unencrypted key"
        ) from error
    except OSError as error:
        raise TlsFilesError(f"{names[0]} or {names[1]} cannot be read: {error.strerror}; check its mode") from error
    return context
