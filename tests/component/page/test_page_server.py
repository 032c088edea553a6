"""The page's server, as a process beside a daemon's socket that a test plays."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from nodeward.edges.page import server
from nodeward.edges.page.server import MOST_PAGES, hosts
from tests.component.page.daemon import Played, played
from tests.patience import scaled

WITHIN_S = scaled(30.0)


@contextmanager
def page_of(daemon: Path, *flags: str) -> Iterator[int]:
    command = [sys.executable, "-m", "nodeward", "page", "--socket", str(daemon), "--listen", "127.0.0.1:0", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said.startswith("page: http://127.0.0.1:"), said
            yield int(said.rstrip("/\n").rpartition(":")[2])
        finally:
            process.terminate()
            assert process.wait(WITHIN_S) == 0


@pytest.fixture(name="daemon", scope="module")
def _daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with played(tmp_path_factory.mktemp("p") / "nodeward.sock") as daemon:
        yield daemon


@pytest.fixture(name="port", scope="module")
def _port(daemon: Played) -> Iterator[int]:
    with page_of(daemon.path, "--allow-host", "node-1.example") as port:
        yield port


def asked(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, str, Mapping[str, str]]:
    link = HTTPConnection("127.0.0.1", port, timeout=WITHIN_S)
    link.putrequest(method, path, skip_host="Host" in headers)
    for name, text in headers.items():
        link.putheader(name, text)
    link.endheaders()
    answer = link.getresponse()
    found = answer.status, answer.read().decode(), dict(answer.getheaders())
    link.close()
    return found


def pictures(port: int, link: socket.socket) -> Iterator[Any]:
    link.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
    with link.makefile("rb") as lines:
        for line in lines:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({}, 200, id="the printed address"),
        pytest.param({"Host": "LOCALHOST:{port}"}, 200, id="localhost"),
        pytest.param({"Host": "node-1.example:{port}"}, 200, id="a name of --allow-host"),
        pytest.param({"Host": "evil.example:{port}"}, 403, id="a name that somebody points here"),
        pytest.param({"Host": "127.0.0.1:9800"}, 200, id="the port of a tunnel"),
        pytest.param({"Host": "[::1]"}, 200, id="without a port"),
        pytest.param({"Host": "127.0.0.1:80:{port}"}, 403, id="two ports"),
        pytest.param({"Origin": "http://127.0.0.1:{port}"}, 200, id="its own origin"),
        pytest.param({"Origin": "http://evil.example"}, 403, id="another origin"),
        pytest.param({"Origin": "null"}, 403, id="no origin of its own"),
        pytest.param({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403, id="an image of another page"),
        pytest.param({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200, id="a link of another page"),
    ],
)
@pytest.mark.parametrize("path", ["/", "/explain?what=a", "/events"])
def test_who_is_answered(port: int, path: str, headers: Mapping[str, str], status: int) -> None:
    method = "HEAD" if path == "/events" else "GET"
    found, _, sent = asked(port, path, method, **{name: text.format(port=port) for name, text in headers.items()})
    assert found == status
    assert "default-src 'self'" in sent["Content-Security-Policy"]
    assert "Access-Control-Allow-Origin" not in sent


def test_what_is_there_and_what_is_not(port: int) -> None:
    assert asked(port, "/page.js")[2]["Content-Type"].startswith("text/javascript")
    missing = [asked(port, path) for path in ("/nothing", "/uplot.sha256", "/%2e%2e%2fserver.py", "/a/b")]
    assert [(status, sent["X-Content-Type-Options"]) for status, _, sent in missing] == [(404, "nosniff")] * 4
    assert asked(port, "/", "POST")[0] == 405
    assert [asked(port, f"/explain?what={what}")[0] for what in ("", "a" * 2000)] == [400, 400]
    assert asked(port, "/explain?what=shop%2Fweb")[1] == '["explained shop/web"]'


def test_a_picture_a_second_and_the_daemon_away_and_back(daemon: Played, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), WITHIN_S) as link:
        told = pictures(port, link)
        assert next(one["picture"]["fault"] == "" for one in told)
        with daemon.away():
            away = next(one["picture"] for one in told if one["picture"]["fault"])
            assert str(daemon.path) in away["fault"]
            assert away["pods"], "what was there before is still shown"
            assert asked(port, "/explain?what=a")[0] == 503
        back = next(one for one in told if not one["picture"]["fault"])
        assert [one["seq"] for one in back["decisions"]] == [1, 2], "each decision once, though asked for again"


def test_so_many_pages_may_be_open_and_the_next_is_told_why_not(daemon: Played) -> None:
    with ExitStack() as stack:
        port = stack.enter_context(page_of(daemon.path))
        links = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), WITHIN_S)) for _ in range(MOST_PAGES)
        ]
        for link in links:
            assert next(pictures(port, link))
        status, why, _ = asked(port, "/events")
        assert (status, f"{MOST_PAGES} pages are open already" in why) == (503, True)
        links[0].shutdown(socket.SHUT_RDWR)
        links[0].close()
        while asked(port, "/events", "HEAD")[0] == 503:  # until the server has noticed
            pass


def test_who_does_not_read_loses_the_connection_and_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "WRITE_S", 0.1)
    large = 64 * 1024 * 1024

    async def explain(_: str) -> tuple[int, bytes]:
        return 200, b"[]"

    async def live() -> None:
        shown, port = server.Pictures(), asyncio.get_running_loop().create_future()
        made = server.application(shown, explain, hosts("127.0.0.1", ()))
        serving = asyncio.ensure_future(server.run(made, "127.0.0.1", 0, port.set_result))
        with socket.create_connection(("127.0.0.1", await port), WITHIN_S) as link:
            link.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port.result())
            while not shown.open:
                await asyncio.sleep(0.01)
            shown.put(b"x" * large)
            while shown.open:
                await asyncio.sleep(0.01)
            link.setblocking(False)
            got = 0
            while more := await asyncio.get_running_loop().sock_recv(link, 1 << 20):
                got += len(more)
            assert got < large
        serving.cancel()
        await asyncio.wait((serving,))

    asyncio.run(asyncio.wait_for(live(), WITHIN_S))


def test_so_many_explanations_are_asked_for_at_once_and_the_next_is_told_why_not() -> None:
    async def live() -> None:
        port, go = asyncio.get_running_loop().create_future(), asyncio.Event()
        asked_for: list[str] = []

        async def explain(what: str) -> tuple[int, bytes]:
            asked_for.append(what)
            await go.wait()
            return 200, b"[]"

        made = server.application(server.Pictures(), explain, hosts("127.0.0.1", ()))
        serving = asyncio.ensure_future(server.run(made, "127.0.0.1", 0, port.set_result))

        async def get() -> int:
            return (await asyncio.to_thread(asked, await port, "/explain?what=a"))[0]

        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(get()) for _ in range(server.MOST_EXPLAINED)]
            while len(asked_for) < server.MOST_EXPLAINED:
                await asyncio.sleep(0.01)
            assert await get() == 503
            go.set()
        assert [one.result() for one in waiting] == [200] * server.MOST_EXPLAINED
        serving.cancel()
        await asyncio.wait((serving,))

    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(2 * server.MOST_EXPLAINED))
    try:
        loop.run_until_complete(asyncio.wait_for(live(), WITHIN_S))
    finally:
        loop.close()


def test_a_taken_port_is_said_or_another_one_is_used(daemon: Played) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, "-m", "nodeward", "page", "--socket", str(daemon.path), "--listen", address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S)
        assert (done.returncode, f"--listen {address}: Address already in use" in done.stderr) == (1, True)
        with page_of(daemon.path, "--listen", address, "--any-port") as port:
            assert asked(port, "/")[0] == 200


def test_host_names() -> None:
    assert hosts("::1", ("Node-1",)) == {"127.0.0.1", "localhost", "[::1]", "node-1"}
    assert "10.0.0.7" in hosts("10.0.0.7", ())
    assert "0.0.0.0" not in hosts("0.0.0.0", ())
