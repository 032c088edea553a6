"""Asks Intel's Quote Generation Service (QGS) again and again whether it answers, and reports it.

A TDX VM gets no quote while it does not, so with `attestation: enforce` no key is sold meanwhile. Each time is a new
connection with one harmless request (`neighbours.qgs.qgs` says which) and an end, however the other side behaves: every
wait and every answer is bounded. A failure is tried again soon, then less and less often. Nobody is asked while
`attestation` is off.
"""

import asyncio
import logging
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from random import random

from nodeward.core.errors import WireError
from nodeward.core.events import QuotesTold
from nodeward.core.ports import Tell
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock

_LENGTH = struct.Struct(">I")
_HEADER = struct.Struct("<HHIII")
_PLATFORM = struct.Struct("<HHII")
MAJOR, MINOR = 1, 1
GET_PLATFORM_INFO_REQ, GET_PLATFORM_INFO_RESP = 4, 5
LENGTH_BYTES = _LENGTH.size
MAX_BYTES = 4096
"""The answer has some 50."""
_FORMAT = "QGS message"


def request() -> bytes:
    """The whole request, length and header. It is sent whole: the server takes a piece of it for a raw report."""
    return _LENGTH.pack(_HEADER.size) + _HEADER.pack(MAJOR, MINOR, GET_PLATFORM_INFO_REQ, _HEADER.size, 0)


def length(data: bytes) -> int:
    """How many bytes follow the length; WireError where no answer is that long, or that short."""
    (found,) = _LENGTH.unpack(data)
    if not _HEADER.size <= found <= MAX_BYTES:
        raise WireError(_FORMAT, f"of {found} bytes: {_HEADER.size} to {MAX_BYTES} were expected")
    return int(found)


def error_of(data: bytes) -> int:
    """The error code of an answer, 0 where the service can work; WireError for what is no answer to the request."""
    if len(data) < _HEADER.size:
        raise WireError(_FORMAT, f"of {len(data)} bytes has no header")
    major, minor, kind, size, error = _HEADER.unpack_from(data)
    if major != MAJOR:
        raise WireError(_FORMAT, f"of version {major}.{minor}: {MAJOR}.{MINOR} was asked for")
    if kind != GET_PLATFORM_INFO_RESP:
        raise WireError(_FORMAT, f"of type {kind}: {GET_PLATFORM_INFO_RESP} was expected")
    if size != len(data):
        raise WireError(_FORMAT, f"of {len(data)} bytes says that it has {size}")
    if not error:
        _check_body(data[_HEADER.size :])
    return int(error)


def _check_body(body: bytes) -> None:
    if len(body) < _PLATFORM.size:
        raise WireError(_FORMAT, "without an error has no platform")
    *_, id_size, svn_size = _PLATFORM.unpack_from(body)
    if _PLATFORM.size + id_size + svn_size != len(body):
        raise WireError(_FORMAT, "has parts that are not as long as it says")


def answer(error: int = 0, platform: bytes = bytes(16), svn: bytes = bytes(16)) -> bytes:
    """An answer with its length, as the double sends it: with a platform's body where there is no error."""
    parts = b"" if error else platform + svn
    sizes = (0, 0) if error else (len(platform), len(svn))
    body = _PLATFORM.pack(0, 0, *sizes) + parts
    size = _HEADER.size + len(body)
    return _LENGTH.pack(size) + _HEADER.pack(MAJOR, MINOR, GET_PLATFORM_INFO_RESP, size, error) + body


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """How often it is asked, and how long an answer may take: a quote takes some tenths of a second, and the service
    makes only a few at once."""

    period_s: float = 5.0
    first_s: float = 0.5
    most_s: float = 15.0
    patience_s: float = 3.0


Wanted = Callable[[], str]
"""The socket's path now; empty while nobody is to be asked."""


async def run(key: str, wanted: Wanted, tell: Tell, clock: Clock, pace: Pace = Pace()) -> None:
    """Reports the state of the quote service for this kind of key, until cancelled."""
    delays = Backoff(pace.first_s, pace.most_s, random)
    told: tuple[str, str] | None = None
    while True:
        path = wanted()
        if not path:
            told = None
            await clock.sleep(pace.period_s)
            continue
        why = await ask(path, pace.patience_s)
        if wanted() != path:
            continue  # it is another's answer, or nobody's, by now
        if told != (path, why):
            told = (path, why)
            log.log(logging.WARNING if why else logging.INFO, "qgs=%s why=%r", "away" if why else "answers", why)
        tell(QuotesTold(key, not why, why))
        if why:
            await clock.sleep(delays.next_s())
        else:
            delays.reset()
            await clock.sleep(pace.period_s)


async def ask(path: str, patience_s: float) -> str:
    """One question; empty for an answer, else why there was none."""
    try:
        async with asyncio.timeout(patience_s):
            error = await _exchange(path)
    except TimeoutError:
        return f"{path}: no answer within {patience_s:g} s"
    except asyncio.IncompleteReadError:
        return f"{path}: it closed the connection without an answer"
    except WireError as fault:
        return f"{path}: no answer of a QGS: {fault.fault}"
    except PermissionError:
        return f"{path}: the daemon may not connect: it is not in the group of this socket; docs/keys.md says how"
    except OSError as fault:
        return f"{path}: {os.strerror(fault.errno) if fault.errno else fault}"
    except ValueError as fault:
        return f"{path!r}: {fault}"
    return f"{path}: it answers that it cannot work (error {error:#x})" if error else ""


async def _exchange(path: str) -> int:
    reader, writer = await asyncio.open_unix_connection(path, limit=MAX_BYTES)
    try:
        writer.write(request())
        size = length(await reader.readexactly(LENGTH_BYTES))
        return error_of(await reader.readexactly(size))
    finally:
        writer.transport.abort()
