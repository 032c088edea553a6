"""How the API server double says no: each request is let in or refused first, and a refusal is a Status."""

from collections.abc import Awaitable, Callable

from aiohttp import web

Json = dict[str, object]
Refuse = Callable[[web.Request], Awaitable[web.Response | None]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def guarded(refuse: Refuse, handler: Handler) -> Handler:
    """The handler, for requests that `refuse` has no answer to."""

    async def answered(request: web.Request) -> web.StreamResponse:
        refused = await refuse(request)
        return refused if refused is not None else await handler(request)

    return answered


def status_of(code: int, reason: str, message: str = "") -> Json:
    """A Status of Kubernetes that reports a failure."""
    head: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**head, "message": message, "reason": reason, "code": code}


def refusal(code: int, reason: str, message: str = "") -> web.Response:
    """The answer with that Status."""
    return web.json_response(status_of(code, reason, message), status=code)
