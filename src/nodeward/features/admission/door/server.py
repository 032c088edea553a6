"""The admission webhook's HTTP: bytes of a review in, bytes of an answer out, everything bounded.

`POST /mutate--v1-pod` takes an AdmissionReview; the path is that of Intel's SGX webhook. Each other path has a decision
of its own. `GET /healthz` says that the loop turns, `GET /readyz` that reviews are taken. What is no review is answered
by an HTTP status with one line of text, and what that means for the pod is the failurePolicy's: 400 not a review, 404
and 405, 413 too large, 415 not JSON, 503 too much under way or to answer. A pod is refused only by a verdict.

Must not: judge. `decide` does, and is called on the loop's thread, without waiting.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiohttp.http import RawRequestMessage

from nodeward.core.errors import WireError
from nodeward.features.admission.door.connection import Answer, said
from nodeward.features.admission.door.doors import Doors, Patience
from nodeward.features.admission.door.mapping import encode, operation, patch, pod_asked
from nodeward.features.admission.door.refusal_log import RefusalLog
from nodeward.features.admission.door.review import decode_review, encode_allowed, encode_refused
from nodeward.features.admission.values import Operation, PodAsked, Verdict

log = logging.getLogger(__name__)
PATH = "/mutate--v1-pod"

Decide = Callable[[Operation, PodAsked], Verdict]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is taken at once. A review holds a pod once or twice; the API server takes objects up to 3 MiB."""

    max_body_bytes: int = 8 * 1024 * 1024
    max_held_bytes: int = 64 * 1024 * 1024
    """All bodies that are arriving, together; and all answers that wait for their clients."""
    max_answer_bytes: int = 4 * 1024 * 1024
    """One answer. The API server takes no object of more than 3 MiB."""
    max_in_flight: int = 256
    """Those bodies, in number."""
    max_turn_s: float = 0.75
    """How long reviews are answered in one turn of the loop. What is left in that turn is told that it could not be, so
    that nobody waits for longer than about two turns: less than the shortest `timeoutSeconds` of deploy/webhook."""


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


class WebhookServer:
    """Serves on one socket. To be made while the loop runs."""

    def __init__(
        self,
        decide: Decide,
        context: Callable[[], ssl.SSLContext | None],
        bounds: Bounds | None = None,
        patience: Patience | None = None,
        now: Callable[[], float] | None = None,
        others: Mapping[str, Decide] | None = None,
    ) -> None:
        """`decide` is for PATH; `others` has the decisions of other paths."""
        self._loop = asyncio.get_running_loop()
        self._now = now or self._loop.time
        self._turn_ends: float | None = None
        """When reviews of this turn of the loop are no longer answered; None before its first one."""
        self._paths = {PATH: decide, **(others or {})}
        self._bounds = bounds or Bounds()
        self.counts = Counts()
        self._turned = RefusalLog()
        self.doors = Doors(self, context, patience or Patience(), self._turned)
        self.arriving = 0
        """Requests whose bodies are still to come."""
        self._held = 0
        self._unsent = 0
        self.closing = False
        """See connection.Service."""

    async def serve(self, listener: socket.socket) -> None:
        """Until cancelled; then nobody new is let in, and what has begun is answered."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.doors.accept(listener))
                group.create_task(self.doors.sweep())
        finally:
            self.closing = True
            listener.close()
            await self.doors.close()

    def whole(self, head: RawRequestMessage, body: bytes) -> Answer:
        """See connection.Service."""
        found = self._without_body(head)
        if found is not None:
            return found
        if len(body) > self._bounds.max_body_bytes:
            return self._too_large(len(body))
        return self._review(head, body)

    def opened(self, head: RawRequestMessage) -> int | Answer:
        """See connection.Service."""
        found = self._without_body(head)
        if found is not None:
            return found
        limit = self._bounds.max_body_bytes
        room = limit if head.chunked else int(head.headers.get("Content-Length", limit))
        if room > limit:
            return self._too_large(room)
        if self.arriving >= self._bounds.max_in_flight or self._held + room > self._bounds.max_held_bytes:
            self.counts.overloaded += 1
            return self._turned_away(503, "too many reviews under way; add replicas")
        self.arriving += 1
        self._held += room
        return room

    def rest(self, head: RawRequestMessage, body: bytes | bytearray, room: int) -> Answer:
        """See connection.Service."""
        if len(body) > room:
            return self._no(413, f"a body of more than {room} bytes was not read to its end")
        return self._review(head, body)

    def ended(self, room: int) -> None:
        """See connection.Service."""
        self.arriving -= 1
        self._held -= room

    def waits(self, count: int) -> None:
        """See connection.Service."""
        self._unsent += count

    def unreadable(self) -> Answer:
        """See connection.Service."""
        return self._no(400, "not HTTP/1.1")

    def _without_body(self, head: RawRequestMessage) -> Answer | None:
        """The answer to a request whose body makes no difference."""
        path = _path(head)
        if path == "/" and path in self._paths and head.method in ("GET", "HEAD"):
            return said("ok")  # the probe of CRI Resource Manager's manifest
        if path not in self._paths:
            if path not in ("/healthz", "/readyz"):
                return self._no(404, f"there is nothing at this path; reviews go to {' or '.join(self._paths)}")
            if path == "/readyz" and self.closing:
                return said("stopping", 503)
            return said("ok")
        if head.method != "POST":
            return self._no(405, f"{head.method[:16]} is not POST")
        kind = head.headers.get("Content-Type", "")
        if kind != "application/json" and kind.partition(";")[0].strip().lower() != "application/json":
            return self._no(415, "the content type is not application/json")
        if "Content-Encoding" in head.headers:
            return self._no(415, "a compressed body is not read; send it as it is")
        return None

    def _late(self) -> bool:
        """Whether this turn of the loop has been long enough for its reviews. The next one begins anew."""
        if self._turn_ends is None:
            self._turn_ends = self._now() + self._bounds.max_turn_s
            self._loop.call_soon(self._next_turn)
            return False
        return self._now() >= self._turn_ends

    def _next_turn(self) -> None:
        self._turn_ends = None

    def _review(self, head: RawRequestMessage, body: bytes | bytearray) -> Answer:
        full = self._unsent > self._bounds.max_held_bytes
        if full or self._late():
            self.counts.overloaded += 1
            text = "too many answers that nobody takes" if full else "too many reviews at once; add replicas"
            self._turned.tell("503", text)
            return said(f"nodeward webhook: {text}", 503)
        try:
            return Answer(self._decided(self._paths[_path(head)], body), reviewed=True)
        except WireError as error:
            self.counts.not_reviews += 1
            self._turned.tell("400", f"not a review: {error}")
            return said(f"nodeward webhook: {error}", 400)
        except Exception:
            self.counts.faults += 1
            log.exception("review=failed")
            return said("nodeward webhook: a fault of its own; see its log", 500)

    def _decided(self, decide: Decide, body: bytes | bytearray) -> bytes:
        request = decode_review(body, self._bounds.max_body_bytes)
        pod = request.object
        asked = pod_asked(request)
        verdict = decide(operation(request), asked)
        operations = patch(pod, verdict) if pod is not None and not verdict.refusals else []
        changes = encode(operations) if operations else b""
        refusals = verdict.refusals or self._too_much(asked, len(changes))
        if refusals:
            self.counts.refused += 1
            for refusal in refusals:
                log.info("refused=%s/%s because=%s", asked.namespace, asked.name, refusal)
            return encode_refused(request.uid, "\n".join(refusals), verdict.warnings)
        self.counts.allowed += 1
        self.counts.patched += bool(operations)
        return encode_allowed(request.uid, changes, verdict.warnings)

    def _too_much(self, asked: PodAsked, size: int) -> tuple[str, ...]:
        """Why a patch of this size is not given, if it is not."""
        most = self._bounds.max_answer_bytes * 3 // 4  # of base64
        if size <= most:
            return ()
        many = f"its {len(asked.containers)} containers need changes of {size} bytes"
        return (f"{many}, and {most} can be answered; give the pod fewer containers",)

    def _too_large(self, size: int) -> Answer:
        return self._no(413, f"a body of {size} bytes; at most {self._bounds.max_body_bytes} are read")

    def _no(self, status: int, text: str) -> Answer:
        self.counts.not_reviews += 1
        return self._turned_away(status, text)

    def _turned_away(self, status: int, text: str) -> Answer:
        self._turned.tell(f"{status}", text)
        return said(f"nodeward webhook: {text}", status, ends=True)


def _path(head: RawRequestMessage) -> str:
    return head.path.partition("?")[0]
