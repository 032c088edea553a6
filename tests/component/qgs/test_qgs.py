"""Whether the QGS answers: on real sockets, well and badly, and what is told of it over time."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from nodeward.core.events import Event, QuotesTold
from nodeward.host.clock import SystemClock
from nodeward.neighbours.qgs import quotes
from nodeward.neighbours.qgs import quotes as edge
from nodeward_sim.doubles.qgs import Qgs
from tests.patience import scaled
from tests.rigs.stories import told_in, under_way

WITHIN_S = scaled(20.0)
PATIENCE_S = 0.3
FAST = edge.Pace(period_s=0.02, first_s=0.01, most_s=0.02, patience_s=PATIENCE_S)


async def asked(path: Path | str) -> str:
    return await edge.ask(str(path), PATIENCE_S)


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[Qgs]:
    service = Qgs(tmp_path / "qgs.socket")
    async with asyncio.timeout(2 * WITHIN_S):
        await service.start()
        yield service
        await service.stop()


@told_in(serving)
async def test_a_service_that_answers_is_asked_for_nothing_but_its_platform(service: Qgs) -> None:
    assert [await edge.ask(str(service.path), PATIENCE_S) for _ in range(3)] == ["", "", ""]
    assert service.asked == 3


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(quotes.answer(0x12001), "it answers that it cannot work (error 0x12001)", id="it cannot work"),
        pytest.param(b"", "it closed the connection without an answer", id="it closes"),
        pytest.param(quotes.answer()[:30], "it closed the connection without an answer", id="half an answer"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n", "no answer of a QGS: of 1213486160 bytes", id="another program"),
        pytest.param(b"\xff" * 1_000_000, "no answer of a QGS: of 4294967295 bytes", id="a megabyte"),
    ],
)
@told_in(serving)
async def test_a_service_that_answers_badly_does_not_answer(service: Qgs, answer: bytes, why: str) -> None:
    service.answer = answer
    assert (await edge.ask(str(service.path), WITHIN_S)).startswith(f"{service.path}: {why}")


def dead(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        pytest.param(Path.mkdir, "Connection refused", id="a folder"),
        pytest.param(os.mkfifo, "Connection refused", id="a pipe"),
        pytest.param(dead, "Connection refused", id="a socket that nobody reads"),
        pytest.param(lambda _: None, "No such file or directory", id="nothing"),
    ],
)
async def test_a_path_that_is_no_service_says_so(tmp_path: Path, make: Callable[[Path], object], why: str) -> None:
    path = tmp_path / "qgs.socket"
    make(path)
    assert await asked(path) == f"{path}: {why}"


@told_in(serving)
async def test_a_socket_that_is_for_its_group_only_says_so(service: Qgs) -> None:
    """As Intel's service makes it (mode 0660): root without capabilities may not connect, as no other user may."""
    service.path.chmod(0)
    with as_somebody():
        said = await edge.ask(str(service.path), WITHIN_S)
    assert said.startswith(f"{service.path}: the daemon may not connect: it is not in the group of")


@contextmanager
def as_somebody() -> Iterator[None]:
    """Where the tests are root's, they are not for as long as the block lasts."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    "path", [pytest.param("/" + "x" * 200, id="longer than a socket's may be"), pytest.param("/a\0b", id="a NUL")]
)
async def test_a_path_that_cannot_be_says_so(path: str) -> None:
    assert await asked(path)


@pytest.mark.parametrize("waiting", [0, 5], ids=["nobody-else", "its-queue-is-full"])
async def test_a_socket_whose_owner_never_accepts_does_not_hold_us(tmp_path: Path, waiting: int) -> None:
    path = tmp_path / "qgs.socket"
    with socket.socket(socket.AF_UNIX) as owner:
        owner.bind(str(path))
        owner.listen(1)
        others = [socket.socket(socket.AF_UNIX) for _ in range(waiting)]
        for other in others:
            other.setblocking(False)
            other.connect_ex(str(path))
        said = await asked(path)
        for other in others:
            other.close()
    assert said.startswith(f"{path}: ")


@asynccontextmanager
async def told_by(wanted: Callable[[], str]) -> AsyncIterator[asyncio.Queue[Event]]:
    told = asyncio.Queue[Event]()

    def tell(event: Event) -> int:
        told.put_nowait(event)
        return 0

    async with under_way(edge.run("tdx", wanted, tell, SystemClock(), FAST)):
        yield told


async def test_each_change_is_told_again_and_again_and_nothing_while_nobody_wants_to_know(tmp_path: Path) -> None:
    """What is told again may have been forgotten by whoever heard it."""
    service, path = Qgs(tmp_path / "qgs.socket"), str(tmp_path / "qgs.socket")
    wanted, seen_off = [path], asyncio.Event()

    def now() -> str:
        if not wanted[0]:
            seen_off.set()
        return wanted[0]

    async with asyncio.timeout(WITHIN_S), told_by(now) as told:
        before = None

        async def changes(answers: bool, why: str = "") -> None:
            nonlocal before
            after = QuotesTold("tdx", answers, f"{path}: {why}" if why else "")
            while (said := await told.get()) == before:
                pass
            assert [said, await told.get(), await told.get()] == [after] * 3
            before = after

        await changes(False, "No such file or directory")
        await service.start()
        await changes(True)
        service.hang = True
        await changes(False, f"no answer within {PATIENCE_S:g} s")
        service.hang = False
        await changes(True)
        await service.stop()
        await changes(False, "Connection refused")
        wanted[0] = ""
        await seen_off.wait()
        asked_before = service.asked
        await service.start()
        await asyncio.sleep(5 * FAST.period_s)
        assert service.asked == asked_before
        wanted[0] = path
        await changes(True)
        await service.stop()


@told_in(serving)
async def test_an_answer_of_a_service_that_is_not_asked_for_any_more_is_not_told(first: Qgs) -> None:
    second = str(first.path.with_name("second.socket"))
    async with told_by(lambda: second if first.asked else str(first.path)) as told:
        assert await told.get() == QuotesTold("tdx", False, f"{second}: No such file or directory")
