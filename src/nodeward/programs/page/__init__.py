"""The page's process: reads the operators' socket once a second, keeps ten minutes of it, and serves the page.

Promises: it changes nothing, asks nobody but the socket (and doctor's probes, where it is given settings), and goes on
while the daemon is away. Nothing leaves this machine.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import aiohttp
import msgspec

from nodeward.core.finding import Finding
from nodeward.features.settings import Settings
from nodeward.people.doctor import run as doctor
from nodeward.people.page.server import Pictures, application, hosts
from nodeward.people.page.server import run as serve
from nodeward.people.pods import PodRow, columns, pod_rows, taken_by_pods
from nodeward.people.rows import NodeView
from nodeward.people.verdict import verdict
from nodeward.programs.page.memory import Memory

log = logging.getLogger(__name__)
EVERY_S: Final = 1.0
ASK_S: Final = 5.0
MAX_BYTES: Final = 64 * 1024 * 1024
DOCTOR_EVERY_S: Final = 60.0
AWAY: Final = "the daemon does not answer at {place}: {why}; what is shown is from before"


class _Shown(msgspec.Struct):
    """What each page draws: the node as `nodeward status -o json` tells it, with one row a pod in the place of its
    cgroups; what was a moment ago; the latest decisions as the daemon tells them. `fault` says why the node is an old
    one, or none."""

    memory: Memory
    view: NodeView | None = None
    pods: tuple[PodRow, ...] = ()
    columns: tuple[str, ...] = ()
    """Of `pods`: the promises that some pod has."""
    taken: dict[str, int] = msgspec.field(default_factory=dict)
    """Of each resource what pods were promised or use, of each whichever is more."""
    at_s: float = 0.0
    """When the daemon was asked, by the server's clock (seconds since 1970)."""
    decisions: list[msgspec.Raw] = msgspec.field(default_factory=list)
    findings: tuple[Finding, ...] = ()
    doctor: str = "To see what doctor finds on this machine, start `nodeward page` with --config FILE"
    """When doctor looked, or why it does not."""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class PageOptions:
    """What the command was given. `settings` are those that doctor goes by; None where it does not look."""

    socket: str
    host: str
    port: int
    fall_back: bool = False
    allowed: tuple[str, ...] = ()
    settings: Settings | None = None


class _Daemon:
    """The operators' socket."""

    def __init__(self, session: aiohttp.ClientSession, place: str) -> None:
        self._session, self._place = session, place

    async def get(self, path: str, **query: str) -> tuple[int, bytes]:
        """Status and body. OSError, TimeoutError or aiohttp.ClientError where it is away."""
        async with self._session.get(f"http://nodeward{path}", params=query) as response:
            body = await response.content.read(MAX_BYTES)
            while len(body) < MAX_BYTES and (more := await response.content.read(MAX_BYTES)):
                body += more
            return response.status, body


_TIMEOUT: Final = aiohttp.ClientTimeout(total=ASK_S)
_AWAY = (OSError, TimeoutError, aiohttp.ClientError, msgspec.MsgspecError)


async def run(chosen: PageOptions, serving: Callable[[int], None]) -> None:
    """Serves until cancelled; `serving` is told the port. OSError where the address cannot be had."""
    pictures = Pictures()
    connector = aiohttp.UnixConnector(chosen.socket)
    async with aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT) as session:
        daemon = _Daemon(session, chosen.socket)

        async def explain(what: str) -> tuple[int, bytes]:
            try:
                return await daemon.get("/v1/explain", what=what)
            except _AWAY as error:
                return 503, msgspec.json.encode({"error": AWAY.format(place=chosen.socket, why=_why(error))})

        made = application(pictures, explain, hosts(chosen.host, chosen.allowed))
        watching = asyncio.ensure_future(_Watch(daemon, chosen, pictures).forever())
        try:
            await serve(made, chosen.host, chosen.port, serving, chosen.fall_back)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


class _Watch:
    """Makes a picture a second."""

    def __init__(self, daemon: _Daemon, chosen: PageOptions, pictures: Pictures) -> None:
        self._daemon, self._chosen, self._pictures = daemon, chosen, pictures
        self._shown = _Shown(Memory())
        self._doctor_due_s = 0.0
        self._looking: asyncio.Future[doctor.Diagnosis] | None = None

    async def forever(self) -> None:
        """Until cancelled."""
        while True:
            began_s = time.monotonic()
            try:
                await self._look()
            except Exception as error:  # the page goes on, and says what is the matter
                if not isinstance(error, _AWAY):
                    log.exception("page=failed error=%s", error)
                self._shown.fault = AWAY.format(place=self._chosen.socket, why=_why(error))
            self._pictures.put(msgspec.json.encode(self._shown))
            await asyncio.sleep(max(0.1, EVERY_S - (time.monotonic() - began_s)))

    async def _look(self) -> None:
        status, body = await self._daemon.get("/v1/status")
        if status != 200:
            raise OSError(f"HTTP {status}")
        view = await asyncio.to_thread(msgspec.json.decode, body, type=NodeView)
        status, body = await self._daemon.get("/v1/decisions", after="0")  # all: those of before may have come to more
        if status == 200:  # an older daemon has none
            self._shown.decisions = msgspec.json.decode(body, type=list[msgspec.Raw])
        self._diagnose()
        now_s = time.time()
        self._shown.memory.look(view, now_s)
        judged = replace(view, verdict=view.verdict or verdict(view))
        pods = await asyncio.to_thread(pod_rows, judged)
        self._shown.pods, self._shown.columns = pods, columns(pods)
        self._shown.taken = taken_by_pods(view.rows, view.capacity)
        self._shown.view, self._shown.at_s, self._shown.fault = replace(judged, rows=()), now_s, ""

    def _diagnose(self) -> None:
        settings, now_s = self._chosen.settings, time.monotonic()
        if settings is None:
            return
        if self._looking is not None and self._looking.done():
            done, self._looking = self._looking, None
            if (error := done.exception()) is not None:
                self._shown.doctor = f"doctor failed: {error}"
            else:
                self._shown.findings = done.result().findings
                self._shown.doctor = f"looked at {time.strftime('%H:%M:%S')}"
        if self._looking is None and now_s >= self._doctor_due_s:
            self._doctor_due_s = now_s + DOCTOR_EVERY_S
            self._looking = asyncio.ensure_future(
                asyncio.to_thread(doctor.diagnose, settings, doctor.here(self._chosen.socket))
            )


def _why(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"not within {ASK_S:g} s"
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or "it cannot be reached"
    return str(error) or type(error).__name__
