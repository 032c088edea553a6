"""The kernel double's files over a socket, so that the daemon under simulation is a process of its own.

Requests and answers are msgpack with a four-byte length before them. `RemoteFiles` is the daemon's side: a HostFiles
with one blocking connection for each thread. `FilesServer` is the simulation's side, on its event loop.
"""

import asyncio
import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import msgspec

from nodeward.host.hostfs import FileInfo, HostFiles

MAX_MESSAGE = 32 * 1024 * 1024
TIMEOUT_S = 60.0
LOOK_S = 0.1
"""How often a wait looks whether its time is over, on a loop whose own time may pass more slowly."""
_LENGTH = struct.Struct(">I")

Value = int | bytes | list[str | int] | None
Argument = str | int | float | bytes | bool


def _packed(message: object) -> bytes:
    body = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(body)) + body


class RemoteFiles:
    """A HostFiles whose calls are answered by a FilesServer."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._local = threading.local()

    def open(self, path: str) -> int:
        return cast(int, self._call("open", path))

    def pread(self, handle: int, max_bytes: int) -> bytes:
        return cast(bytes, self._call("pread", handle, max_bytes))

    def close(self, handle: int) -> None:
        self._call("close", handle)

    def wait(self, handles: Sequence[int], timeout_s: float) -> list[int]:
        return cast(list[int], self._call("wait", timeout_s, *handles))

    def read(self, path: str, max_bytes: int, *, own: bool = False) -> bytes:
        return cast(bytes, self._call("read", path, max_bytes))

    def write(self, path: str, data: bytes) -> None:
        self._call("write", path, data)

    def append(self, path: str, data: bytes, sync: bool) -> None:
        self._call("append", path, data, sync)

    def replace(self, path: str, data: bytes) -> None:
        self._call("replace", path, data)

    def listdir(self, path: str) -> list[str]:
        return [str(name) for name in cast(list[str | int], self._call("listdir", path))]

    def stat(self, path: str) -> FileInfo:
        is_dir, *rest = cast(list[int], self._call("stat", path))
        return FileInfo(bool(is_dir), *rest)

    def real(self, path: str) -> str:
        (found,) = cast(list[str], self._call("real", path))
        return found

    def mkdir(self, path: str) -> None:
        self._call("mkdir", path)

    def rmdir(self, path: str) -> None:
        self._call("rmdir", path)

    def unlink(self, path: str) -> None:
        self._call("unlink", path)

    def _call(self, name: str, *arguments: Argument) -> Value:
        connection = self._connection()
        connection.sendall(_packed([name, *arguments]))
        (length,) = _LENGTH.unpack(self._exactly(connection, _LENGTH.size))
        error, text, value = msgspec.msgpack.decode(self._exactly(connection, length), type=tuple[int, str, Value])
        if error:
            raise OSError(error, text or os.strerror(error))
        return value

    def _connection(self) -> socket.socket:
        connection: socket.socket | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(TIMEOUT_S)
            connection.connect(self._path)
            self._local.connection = connection
        return connection

    @staticmethod
    def _exactly(connection: socket.socket, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = connection.recv(count - len(data))
            if not piece:
                raise ConnectionError("the simulated kernel is gone")
            data += piece
        return bytes(data)


class FilesServer:
    """Answers RemoteFiles from any HostFiles."""

    def __init__(self, files: HostFiles, path: Path) -> None:
        self._files, self._path = files, path
        self._server: asyncio.Server | None = None
        self.hang_on: str = ""
        """A call whose path contains this is never answered: the mutant of a lane that hangs."""
        self.hangs = False
        """Whether a call was left so."""
        self.ignore_writes_to: str = ""
        """Writes to paths that end so are answered and not done: the mutant of a limit that is never set."""
        self.slow: tuple[str, float] = ("", 0.0)
        """A write to a path that ends so is answered so many seconds after it was done."""
        self.on_write: Callable[[str, bytes], None] = lambda path, data: None
        """Called before each write."""
        self._something = asyncio.Event()

    async def start(self) -> None:
        """Listens."""
        self._server = await asyncio.start_unix_server(self._serve, self._path)

    async def stop(self) -> None:
        """Stops listening; connections end with their peers."""
        if self._server is not None:
            self._server.close()

    def changed(self) -> None:
        """Something happened for which a `wait` may have to end."""
        self._something.set()
        self._something = asyncio.Event()

    async def _wait(self, timeout_s: float, handles: Sequence[int]) -> list[int]:
        end = time.monotonic() + timeout_s  # the caller's, whatever the loop goes by
        while not (ready := self._files.wait(handles, 0.0)) and (left_s := end - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, LOOK_S)):
                    await self._something.wait()
        return ready

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handles: list[int] = []
        try:
            while True:
                (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                if length > MAX_MESSAGE:
                    return
                request: list[Argument] = msgspec.msgpack.decode(await reader.readexactly(length))
                if self.hang_on and self.hang_on in str(request[1]):
                    self.hangs = True
                    await asyncio.Event().wait()
                if request[0] == "wait":
                    ready = await self._wait(float(cast(float, request[1])), cast(list[int], request[2:]))
                    writer.write(_packed((0, "", ready)))
                else:
                    answer = _packed(self._answer(request, handles))
                    if request[0] == "write" and self.slow[0] and str(request[1]).endswith(self.slow[0]):
                        await asyncio.sleep(self.slow[1])
                    writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except asyncio.CancelledError:
            return  # the simulation ends; asyncio would print a connection that ends so
        finally:
            for handle in handles:
                self._files.close(handle)
            writer.close()

    def _answer(self, request: list[Argument], handles: list[int]) -> tuple[int, str, Value]:
        try:
            return 0, "", self._do(request, handles)
        except OSError as error:
            return error.errno or 5, error.strerror or "", None

    def _do(self, request: list[Argument], handles: list[int]) -> Value:
        name = str(request[0])
        if name == "write" and self.ignore_writes_to and str(request[1]).endswith(self.ignore_writes_to):
            return None
        if name == "write":
            self.on_write(str(request[1]), cast(bytes, request[2]))
        if name == "stat":
            info = self._files.stat(str(request[1]))
            return [int(info.is_dir), info.inode, info.device, info.size, info.links]
        if name == "real":
            return [self._files.real(str(request[1]))]
        if name not in _CALLS:
            raise OSError(38, f"no call {name}")
        value = cast(Value, getattr(self._files, name)(*request[1:]))
        if name == "open" and isinstance(value, int):
            handles.append(value)
        elif name == "close" and isinstance(request[1], int) and request[1] in handles:
            handles.remove(request[1])
        return value


_CALLS = ("open", "pread", "close", "read", "write", "append", "replace", "listdir", "mkdir", "rmdir", "unlink")
