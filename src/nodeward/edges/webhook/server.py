"""The admission webhook's HTTP: bytes of a review in, bytes of an answer out, everything bounded.

`POST /mutate--v1-pod` takes an AdmissionReview; the path is that of Intel's SGX webhook. `GET /healthz` says that the
loop turns, `GET /readyz` that reviews are taken. What is no review is answered by an HTTP status with one line of text,
and what that means for the pod is the failurePolicy's: 400 not a review, 404 and 405, 413 too large, 415 not JSON, 503
too much under way. A pod is refused only by a verdict.

Must not: judge. `decide` does, and is called on the loop's thread, without waiting.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import StreamReader, web

from nodeward.edges.webhook.answer import Answers
from nodeward.edges.webhook.doors import Connection, Doors, Patience
from nodeward.edges.webhook.mapping import operation, patch, pod_asked
from nodeward.edges.webhook.turned import Turned
from nodeward.model.admission import Operation, PodAsked, Verdict
from nodeward.wire.admission_review import decode_review, encode_allowed, encode_refused
from nodeward.wire.errors import WireError
from nodeward.wire.json_patch import encode

log = logging.getLogger(__name__)
PATH = "/mutate--v1-pod"

Decide = Callable[[Operation, PodAsked], Verdict]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is taken at once. A review holds a pod once or twice; the API server takes objects up to 3 MiB."""

    max_body_bytes: int = 8 * 1024 * 1024
    max_held_bytes: int = 64 * 1024 * 1024
    """All bodies that are arriving, together."""
    max_in_flight: int = 256


@dataclass(slots=True)
class Counts:
    """Answers since the start."""

    allowed: int = 0
    patched: int = 0
    """Of those allowed, the ones with a patch."""
    refused: int = 0
    not_reviews: int = 0
    overloaded: int = 0
    faults: int = 0
    """Reviews that our own fault kept from an answer."""


class _NoReviewError(Exception):
    """An answer by HTTP status; the text is for whoever reads the API server's log."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class WebhookServer:
    """Serves on one socket. To be made while the loop runs."""

    def __init__(
        self,
        decide: Decide,
        context: Callable[[], ssl.SSLContext | None],
        bounds: Bounds | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._decide = decide
        self._bounds = bounds or Bounds()
        self.counts = Counts()
        self._turned = Turned()
        self.doors = Doors(web.Server(self._handle), context, patience or Patience(), self._turned)
        self._in_flight = 0
        self._held = 0
        self._closing = False
        self._answers = Answers()

    async def serve(self, listener: socket.socket) -> None:
        """Until cancelled; then nobody new is let in, and what has begun is answered."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.doors.accept(listener))
                group.create_task(self.doors.sweep())
        finally:
            self._closing = True
            listener.close()
            await self.doors.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, Connection)
        connection.begun()
        self._in_flight += 1
        try:
            response = await self._answer(request, connection)
            if isinstance(response, bytes):
                connection.expect()
                return await self._answers.write(request, response)
            if self._closing:
                response.force_close()
            connection.expect()
            await response.prepare(request)
            await response.write_eof()
            return response
        finally:
            self._in_flight -= 1
            connection.settled()

    async def _answer(self, request: web.BaseRequest, connection: Connection) -> web.Response | bytes:
        """The answer, or only its body where the quick way of writing it will do."""
        try:
            if (found := self._health(request)) is not None:
                return found
            body = await self._review(request)
            answer = self._decided(body)
            connection.trusted()
            if not self._closing and self._answers.fits(request):
                return answer
            return web.Response(body=answer, headers={"Content-Type": "application/json"})
        except _NoReviewError as error:
            self._turned.tell(f"{error.status}", str(error))
            response = web.Response(status=error.status, text=f"nodeward webhook: {error}\n")
            if error.status != 400:  # the body may not have been read
                response.force_close()
            return response
        except WireError as error:
            self.counts.not_reviews += 1
            self._turned.tell("400", "not a review")
            return web.Response(status=400, text=f"nodeward webhook: {error}\n")
        except ConnectionError:
            raise
        except Exception:
            self.counts.faults += 1
            log.exception("review=failed")
            return web.Response(status=500, text="nodeward webhook: a fault of its own; see its log\n")

    def _health(self, request: web.BaseRequest) -> web.Response | None:
        path = request.raw_path.partition("?")[0]
        if path == PATH:
            return None
        if path not in ("/healthz", "/readyz"):
            raise self._no(404, f"there is nothing at this path; reviews go to {PATH}")
        if path == "/readyz" and self._closing:
            return web.Response(status=503, text="stopping\n")
        return web.Response(text="ok\n")

    async def _review(self, request: web.BaseRequest) -> bytes:
        """The body, read within the bounds."""
        if request.method != "POST":
            raise self._no(405, f"{request.method[:16]} is not POST")
        headers = request.headers
        kind = headers.get("Content-Type", "")
        if kind != "application/json" and kind.partition(";")[0].strip().lower() != "application/json":
            raise self._no(415, "the content type is not application/json")
        if "Content-Encoding" in headers:
            raise self._no(415, "a compressed body is not read; send it as it is")
        limit, length = self._bounds.max_body_bytes, request.content_length
        if length is not None and length > limit:
            raise self._no(413, f"a body of {length} bytes; at most {limit} are read")
        claim = limit if length is None else length
        if self._in_flight > self._bounds.max_in_flight or self._held + claim > self._bounds.max_held_bytes:
            self.counts.overloaded += 1
            raise _NoReviewError(503, "too many reviews under way; add replicas")
        self._held += claim
        if length:
            request.content.set_read_chunk_size(length)  # it is accounted for: no need to stop the client in between
        try:
            return await _read(request.content, limit)
        except ValueError as error:
            raise self._no(413, str(error)) from error
        finally:
            self._held -= claim

    def _decided(self, body: bytes) -> bytes:
        request = decode_review(body, self._bounds.max_body_bytes)
        pod = request.object
        verdict = self._decide(operation(request), pod_asked(request))
        if verdict.refusals:
            self.counts.refused += 1
            text = "; ".join(verdict.refusals)
            log.info("refused=%s/%s because=%s", request.namespace, request.name, text)
            return encode_refused(request.uid, text, verdict.warnings)
        self.counts.allowed += 1
        operations = patch(pod, verdict) if pod is not None else []
        self.counts.patched += bool(operations)
        return encode_allowed(request.uid, encode(operations) if operations else b"", verdict.warnings)

    def _no(self, status: int, text: str) -> _NoReviewError:
        self.counts.not_reviews += 1
        return _NoReviewError(status, text)


async def _read(content: StreamReader, limit: int) -> bytes:
    """The whole body. ValueError for one over the limit."""
    first = await content.readany()
    if content.at_eof():
        return first
    parts, size = [first], len(first)
    while not content.at_eof():
        part = await content.readany()
        size += len(part)
        if size > limit:
            raise ValueError(f"a body of more than {limit} bytes was not read to its end")
        parts.append(part)
    return b"".join(parts)
