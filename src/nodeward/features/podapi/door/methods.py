"""The methods of the Pod API: each is declared once, and both doors (HTTP and gRPC) serve it.

Promises: calls of a method at once, their time and their requests are bounded for both doors together; calls that wait
keep no other method from an answer; whatever a method raises
becomes one `AnswerError`, whose text holds nothing of a fault's own words. Must not know what a method does.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from nodeward.core.errors import AnswerError, Failure, NodewardError, WireError
from nodeward.features.podapi.door import messages as codec
from nodeward.features.podapi.rows import WatchEvent

log = logging.getLogger(__name__)
MOST_AT_ONCE = 256
"""Calls of one method."""
ANSWER_S = 10.0
"""Longer than a request may wait for a pod, and a pod's spec for the API server."""
STALLED_S = 30.0
"""A watcher that takes no event for so long is ended."""
asked_by: ContextVar[int] = ContextVar("asked_by", default=0)
"""The user whose process asks, for a method that goes by it."""
T = TypeVar("T")


class Method:
    """A method by its name in contracts/podapi.proto; `answer` makes the answer of a request, or raises."""

    def __init__(self, name: str, request: type[T], answer: Callable[[T], Awaitable[object]]) -> None:
        async def by_json(data: bytes) -> bytes:
            return codec.json_of(await answer(_asked(lambda: codec.request_of_json(request, data))))

        async def by_message(data: bytes) -> bytes:
            asked = _asked(lambda: codec.request_of_message(name, request, data))
            return codec.message_of(name, await answer(asked))

        self.name, self.by_json, self.by_message = name, by_json, by_message


@dataclass(frozen=True, slots=True)
class Api:
    """What is served: the methods by name, and the events of one watcher, which may be refused."""

    methods: Mapping[str, Method]
    watch: Callable[[], AbstractContextManager[AsyncIterator[WatchEvent]]]


class Desk:
    """Counts and bounds the calls of both doors, each method on its own."""

    def __init__(self) -> None:
        self._busy = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(MOST_AT_ONCE))

    async def answered(self, name: str, call: Callable[[bytes], Awaitable[T]], request: bytes) -> T:
        """What the call answers; AnswerError where it does not."""
        busy = self._busy[name]
        if busy.locked():
            why = f"{MOST_AT_ONCE} {name} requests are being answered, which is the most: ask again"
            raise AnswerError(Failure.UNAVAILABLE, why)
        try:
            async with busy, asyncio.timeout(ANSWER_S):
                return await call(request)
        except AnswerError:
            raise
        except TimeoutError:
            why = f"not answered within {ANSWER_S:g} s: ask again, or for fewer fields"
            raise AnswerError(Failure.DEADLINE_EXCEEDED, why) from None
        except NodewardError as error:
            raise AnswerError(Failure.FAILED_PRECONDITION, str(error)) from error
        except Exception as error:
            log.exception("podapi method=%s failed", name)
            why = f"{type(error).__name__}: a fault of nodeward's, see its log"
            raise AnswerError(Failure.INTERNAL, why) from error


def _asked(decode: Callable[[], T]) -> T:
    try:
        return decode()
    except WireError as error:
        raise AnswerError(Failure.INVALID_ARGUMENT, error.fault) from None
