"""The answer to a review as bytes of HTTP, written in one piece.

aiohttp's own response makes a table of headers, asks hooks, and builds the head from the table again: a sixth of what a
small review costs. The head of ours is always the same but for two values.

Promises: what is written is whole, and taken by the client's system, or the connection is lost.

Must not: be used for anything but the answer to a POST of HTTP/1.1 whose connection stays open.
"""

import time
from email.utils import formatdate

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter


class Written(web.StreamResponse):
    """What a handler gives aiohttp when the answer is out already: there is nothing left to do."""

    @property
    def keep_alive(self) -> bool:
        """The connection stays open."""
        return True

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Nothing."""
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing."""


class Answers:
    """Writes answers. To be used on one thread."""

    __slots__ = ("_date", "_second", "_written")

    def __init__(self) -> None:
        self._written = Written()
        self._second = 0
        self._date = b""

    def fits(self, request: web.BaseRequest) -> bool:
        """Whether this request can be answered so."""
        return request.version == (1, 1) and request.keep_alive

    async def write(self, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        """200 with this JSON. ConnectionError if the client is gone."""
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client is gone")
        transport.write(self._head(len(body)) + body)
        await request.writer.drain()
        return self._written

    def _head(self, length: int) -> bytes:
        now = int(time.time())
        if now != self._second:
            self._second, self._date = now, formatdate(now, usegmt=True).encode("ascii")
        return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nDate: %b\r\n\r\n" % (
            length,
            self._date,
        )
