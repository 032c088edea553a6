"""Asks Intel's Quote Generation Service (QGS), again and again, whether it answers, and tells it each time: whoever
hears it may have forgotten the last one.

A TDX VM gets no quote while it does not, so with `attestation: enforce` no key is sold meanwhile. Each time is a new
connection with one harmless request (`neighbours.qgs.qgs` says which) and an end, however the other side behaves: every
wait and every answer is bounded. A failure is tried again soon, then less and less often. Nobody is asked while
`attestation` is off.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from random import random

from nodeward.core.events import QuotesTold
from nodeward.core.ports import Tell
from nodeward.core.wire_errors import WireError
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock
from nodeward.neighbours.qgs import qgs

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
    """Tells of the service for this kind of key until cancelled."""
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
    reader, writer = await asyncio.open_unix_connection(path, limit=qgs.MAX_BYTES)
    try:
        writer.write(qgs.request())
        size = qgs.length(await reader.readexactly(qgs.LENGTH_BYTES))
        return qgs.error_of(await reader.readexactly(size))
    finally:
        writer.transport.abort()
