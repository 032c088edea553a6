"""The page's server, as a process beside a daemon's socket that a test plays; and the page in Debian's Chromium.

With NODEWARD_PICTURES=FOLDER the pictures of docs/commands.md are written there.
"""

import asyncio
import json
import os
import re
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from playwright.sync_api import Browser, ConsoleMessage, FloatRect, Page, expect, sync_playwright

from nodeward.features.cpus.rows import CpuPoolRow, CpuRow
from nodeward.features.keys.rows import KeyHolder, KeyIdRow, KeyRow
from nodeward.features.limits.rows import CgroupRow, ResourceRow
from nodeward.people.decisions import DecisionRow
from nodeward.people.page import server
from nodeward.people.page.server import MOST_PAGES, hosts
from nodeward.people.rows import ComponentRow, NodeView
from tests.component.kubernetes.support import until
from tests.patience import scaled
from tests.peers.find import absent
from tests.rigs.stories import under_way
from tests.told import tell
from tests.unit.people.metrics.build import KNOWN, RICH, SANDBOXES

MIB = 1 << 20
DECIDED = (1, 2)


def row(namespace: str, pod: str, container: str = "", state: str = "enforced") -> CgroupRow:
    held = (ResourceRow("sgx_epc", 8 * MIB, 8 * MIB, 4 * MIB, 5 * MIB, 3, 3),)
    level = "container" if container else "pod"
    return CgroupRow(level, namespace, pod, container, "", f"/{pod}/{container}", state, "spec", "declared", held)


def view(*rows: CgroupRow) -> NodeView:
    sizes, used, kube = {"sgx_epc": 512 * MIB}, {"sgx_epc": 40 * MIB}, ComponentRow("kube", True, "")
    made = NodeView("enforce", "containerd 2.4", "answers", True, sizes, used, rows, ready=True, components=(kube,))
    return replace(made, seq=DECIDED[-1])


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    played: "Played"


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        place = urlsplit(self.path)
        asked = {name: texts[0] for name, texts in parse_qs(place.query).items()}
        if place.path == "/v1/status":
            body = msgspec.json.encode(self.server.played.view)
        elif place.path == "/v1/explain":
            body = msgspec.json.encode([f"explained {asked['what']}"])
        else:
            later = (number for number in DECIDED if number > int(asked["after"]))
            body = msgspec.json.encode([DecisionRow(number, 0, "PodSeen", "", 1, 0, ()) for number in later])
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "page"

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Says nothing."""


class Played:
    """The socket, which can go away, and the picture that it gives."""

    def __init__(self, path: Path) -> None:
        self.path, self.view = path, view(row("shop", "web"), row("shop", "web", "app"))
        self.start()

    def start(self) -> None:
        self._server = _Server(str(self.path), _Handler)
        self._server.played = self
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.path.unlink()

    @contextmanager
    def away(self) -> Iterator[None]:
        self.stop()
        try:
            yield
        finally:
            self.start()


@contextmanager
def played(path: Path) -> Iterator[Played]:
    made = Played(path)
    try:
        yield made
    finally:
        made.stop()


WITHIN_S = scaled(30.0)
PAGE = (sys.executable, "-m", "nodeward", "page")


@contextmanager
def page_of(daemon: Path, *flags: str) -> Iterator[int]:
    command = [*PAGE, "--socket", str(daemon), "--listen", "127.0.0.1:0", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
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
        assert next(one["fault"] == "" for one in told)
        with daemon.away():
            away = next(one for one in told if one["fault"])
            assert str(daemon.path) in away["fault"]
            assert away["pods"], "what was there before is still shown"
            assert asked(port, "/explain?what=a")[0] == 503
        back = next(one for one in told if not one["fault"])
        assert [one["seq"] for one in back["decisions"]] == [1, 2], "each decision once, though asked for again"


@asynccontextmanager
async def serving(pictures: server.Pictures, explain: server.Explain) -> AsyncIterator[int]:
    port = asyncio.get_running_loop().create_future()
    made = server.application(pictures, explain, hosts("127.0.0.1", ()))
    async with asyncio.timeout(WITHIN_S), under_way(server.run(made, "127.0.0.1", 0, port.set_result)):
        yield await port


async def test_who_does_not_read_loses_the_connection_and_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "WRITE_S", 0.1)
    large, shown = 64 * 1024 * 1024, server.Pictures()

    async def explain(_: str) -> tuple[int, bytes]:
        return 200, b"[]"

    async with serving(shown, explain) as port:
        with socket.create_connection(("127.0.0.1", port), WITHIN_S) as link:
            link.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
            await until(lambda: bool(shown.open))
            shown.put(b"x" * large)
            await until(lambda: not shown.open)
            link.setblocking(False)
            got = 0
            while more := await asyncio.get_running_loop().sock_recv(link, 1 << 20):
                got += len(more)
            assert got < large


async def test_so_many_explanations_are_asked_for_at_once_and_the_next_is_told_why_not() -> None:
    go = asyncio.Event()
    asked_for: list[str] = []

    async def explain(what: str) -> tuple[int, bytes]:
        asked_for.append(what)
        await go.wait()
        return 200, b"[]"

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2 * server.MOST_EXPLAINED))
    async with serving(server.Pictures(), explain) as port, asyncio.TaskGroup() as group:

        async def ask() -> int:
            return (await asyncio.to_thread(asked, port, "/explain?what=a"))[0]

        waiting = [group.create_task(ask()) for _ in range(server.MOST_EXPLAINED)]
        await until(lambda: len(asked_for) >= server.MOST_EXPLAINED)
        assert await ask() == 503
        go.set()
        assert [await one for one in waiting] == [200] * server.MOST_EXPLAINED


def test_a_taken_port_is_said_or_another_one_is_used(daemon: Played) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [*PAGE, "--socket", str(daemon.path), "--listen", address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S)
        assert (done.returncode, f"--listen {address}: Address already in use" in done.stderr) == (1, True)
        with page_of(daemon.path, "--listen", address, "--any-port") as port:
            assert asked(port, "/")[0] == 200


def test_host_names() -> None:
    assert hosts("::1", ("Node-1",)) == {"127.0.0.1", "localhost", "[::1]", "node-1"}
    assert "10.0.0.7" in hosts("10.0.0.7", ())
    assert "0.0.0.0" not in hosts("0.0.0.0", ())


CHROMIUM = Path("/usr/bin/chromium")
QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
WITHIN_MS = scaled(45.0) * 1000
WIDTHS = (1280, 400)
WEB = {
    "EPC": "1Ki / 4Ki, 3 refused",
    "CPUs": "2-3 own, pool shared, pool shared?",
    "Keys": "–",
    "VM": "will be killed, 2Gi",
    "Gate": "passed",
    "State": "enforced",
    "Refused lately": "",
}
MARKUP = "<img src=x onerror=document.title='owned'>"
ARABIC, COMBINED = "\u202eمرحبا", "e\u0301" * 20


@pytest.fixture(name="browser", scope="module")
def _browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        absent("chromium: run scripts/install-tools")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(QUIET))
        yield browser
        browser.close()


@dataclass
class Seen:
    said: list[str] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)

    def hears(self, message: ConsoleMessage) -> None:
        if "/explain" not in message.location["url"]:
            self.said.append(message.text)


@contextmanager
def opened(browser: Browser, address: str) -> Iterator[Page]:
    """The page; at the end it has asked no other host, and said nothing on its console but of a pod that had ended when
    its explanation was asked for."""
    seen, page = Seen(), browser.new_page(viewport={"width": WIDTHS[0], "height": 900})
    page.set_default_timeout(WITHIN_MS)
    expect.set_options(timeout=WITHIN_MS)
    page.on("console", seen.hears)
    page.on("pageerror", lambda error: seen.said.append(str(error)))
    page.on("request", lambda request: seen.asked.add(request.url.split("/")[2]))
    page.goto(address)
    yield page
    assert (seen.said, seen.asked) == ([], {address.split("/")[2]})
    page.close()


@contextmanager
def simulated(scenario: str) -> Iterator[str]:
    command = [sys.executable, "-m", "nodeward", "sim", "--scenario", scenario, "--page"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as simulation:
        try:
            assert simulation.stdout is not None
            yield next(line.split()[1] for line in simulation.stdout if line.startswith("page: "))
        finally:
            simulation.terminate()
            simulation.communicate(timeout=scaled(30.0))
    assert simulation.returncode == 0


def _drawn(page: Page, scenario: str) -> None:
    """At each width nothing is wider than the window; and the pictures of the documents."""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if folder := os.environ.get("NODEWARD_PICTURES"):
            page.evaluate("document.activeElement.blur()")
            page.wait_for_timeout(1500)
            size = FloatRect(x=0, y=0, width=width, height=1500)
            page.screenshot(path=f"{folder}/page-{scenario}-{width}.png", clip=size, full_page=True)


def test_limits_and_refusals(browser: Browser) -> None:
    with simulated("noisy-neighbour") as address, opened(browser, address) as page:
        expect(page.get_by_role("status")).to_contain_text("The kernel refused", timeout=WITHIN_MS)
        expect(page.get_by_role("img", name="EPC:")).to_be_visible()
        pods = page.get_by_role("region", name="Pods")
        expect(pods.get_by_role("cell", name="charges-refused").first).to_be_visible()
        expect(pods.get_by_role("img", name="refused in the last minute").first).to_be_attached()
        assert pods.get_by_role("columnheader").all_text_contents() == ["Pod", "EPC", "State", "Refused lately"]
        assert re.search("^[●▲■] sim: ", page.title())
        expect(pods.locator(".spark[aria-label^='1'], .spark[aria-label^='2']").first).to_be_attached()
        decisions = page.get_by_role("region", name="Decisions")
        done = re.compile("pod read from the API server: limit EPC .* read back in")
        decisions.get_by_role("button", name=done).first.click()
        expect(page.get_by_role("dialog").get_by_text("wrote and read back: misc.max").first).to_be_visible()
        page.get_by_role("button", name="Close").press("Enter")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.get_by_role("searchbox", name="Find").fill("no such pod")
        expect(pods.locator(".pod-name")).to_have_count(0)
        page.get_by_role("searchbox", name="Find").fill("")
        _drawn(page, "limits")


def test_keys(browser: Browser) -> None:
    with simulated("keys-offered") as address, opened(browser, address) as page:
        ids = page.get_by_role("group", name="Ids of tdx")
        expect(ids.get_by_role("button")).to_have_count(8)
        expect(ids.get_by_role("button", name="charged, default/").first).to_be_visible()
        ids.get_by_role("button").first.focus()
        page.keyboard.press("ArrowRight")
        expect(ids.get_by_role("button").nth(1)).to_be_focused()
        expect(ids.locator("[tabindex='0']")).to_have_count(1)  # of all ids one stop of the Tab key
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog").get_by_role("heading")).to_contain_text(": ")
        page.keyboard.press("Escape")
        _drawn(page, "keys")


def test_sandboxes(browser: Browser) -> None:
    with simulated("sandboxes-too-big") as address, opened(browser, address) as page:
        pods = page.get_by_role("region", name="Pods")
        expect(pods.get_by_role("columnheader", name="VM")).to_be_visible()
        expect(pods.get_by_role("cell", name="will be killed").first).to_be_visible()
        expect(page.locator("#vms")).to_contain_text("will be killed")
        _drawn(page, "sandboxes")


def test_several_features_on_one_node(browser: Browser) -> None:
    with simulated("one-node") as address, opened(browser, address) as page:
        cpus = page.get_by_role("region", name="CPUs")
        expect(cpus.get_by_role("button", name="CPU 0:")).to_be_visible()
        expect(cpus.get_by_role("button", name="exclusive, default/").first).to_be_visible()
        expect(cpus).to_contain_text("Socket 0, NUMA node 0: 8 CPUs, 16Gi memory")
        pods = page.get_by_role("region", name="Pods")
        expect(pods.get_by_role("cell", name="own").first).to_be_visible()
        expect(pods.get_by_role("cell", name="tdx").first).to_be_visible()
        _drawn(page, "node")


def test_everything_that_is_known_is_drawn(browser: Browser, tmp_path: Path) -> None:
    vm = replace(KNOWN, fit=replace(KNOWN.fit, sentence="It will be killed.", vm=1 << 30, others=("dead",)))
    ids = tuple(KeyIdRow(f"sev-{n}", "charged" if n else "draining", 0, ("ns/web",)) for n in range(2))
    offered = KeyRow("sev", (), 2, 0, ids=ids, sentence="All are taken.")
    counted = replace(RICH.keys[0], ids=(), holders=(KeyHolder("ns", "vm", "u", 2, 1),))
    gone = replace(RICH, keys=(offered, counted), sandboxes=replace(SANDBOXES, rows=(vm,)), usage={"sgx_epc": 3 << 19})
    assert gone.cpus is not None
    inside = CpuPoolRow("node", "1", ("ns/web/app",), within="shared", free_m=500)
    pools, has = (*gone.cpus.pools, inside), {0: 16 << 30, 1: 16 << 30}
    ones = (*gone.cpus.cpus, CpuRow(4, 4, 4, 0, 1, 0, 0, owner="claim ns/own", pools=("claim[ns/own]",)))
    gone = replace(gone, cpus=replace(gone.cpus, cpus=ones, pools=pools, memory=has, memory_used={0: 3 << 30}))
    with played(tmp_path / "nodeward.sock") as daemon, page_of(daemon.path) as port:
        daemon.view = replace(gone, capacity={"sgx_epc": 3 << 20}, free={"sgx_epc": 1 << 20}, elsewhere={"sgx_epc": 7})
        with opened(browser, f"http://127.0.0.1:{port}/") as page:
            expect(page.get_by_role("status")).to_have_text("Nothing can be read.")
            expect(page.get_by_role("list", name="The daemon")).to_contain_text("runtime containerd 2.4")
            said = "EPC: 1536Ki used, 4Ki promised, 1Mi free, 7 outside of the known pods, of 3Mi"
            expect(page.get_by_role("img", name=said)).to_be_visible()
            bar = page.locator(".bar .promised")
            assert bar.evaluate("one => one.style.width") == "0.13%"
            squares = [one.get_attribute("data-state") for one in page.locator("#keys .square").all()]
            assert squares[:2] == ["draining", "charged"], "by id where we offer them"
            others = {state: squares[2:].count(state) for state in dict.fromkeys(squares[2:])}
            assert others == {"charged": 1, "granted": 1, "outside": 2, "withheld": 4, "free": 8}, "else by holder"
            cpus = page.get_by_role("region", name="CPUs")
            expect(cpus.get_by_role("button", name="CPU 2: exclusive, ns/web/app")).to_be_visible()
            expect(cpus).to_contain_text("16Gi memory (3Gi in use)")
            expect(cpus).to_contain_text("pool shared: 0-1, 2 containers, lent 2")
            expect(cpus.locator('[data-depth="1"]')).to_have_text("pool node: 1, 1 container, 500 m free")
            expect(cpus.get_by_role("listitem").filter(has_text="ns/web/app: 2")).to_contain_text("A")
            expect(cpus.get_by_role("listitem").filter(has_text="claim ns/own: 4-7, vm")).to_contain_text("B")
            expect(cpus).to_contain_text("by claim: 1 claim(s); our driver is not registered: kubelet is away")
            expect(cpus).to_contain_text("device cpus-numa-0: claims may have 6 of 8 CPUs, and have 4")
            expect(page.locator("#vms")).to_contain_text("ns/web (5ab1e)")
            expect(page.locator("#vms")).to_contain_text("It will be killed.")
            legend = page.locator("#keys .legend").first.get_by_role("listitem").all_text_contents()
            assert legend == ["1 draining: given back, and still in use", "1 charged: in use by a VM"]
            web = page.locator("#pods tr", has=page.get_by_role("button", name="ns/web", exact=True))
            cells = {one.get_attribute("data-column"): one.inner_text() for one in web.locator("td").all()}
            assert cells | {"Refused lately": ""} == WEB, cells


def test_a_head_sorts_by_its_column_and_again_the_other_way(browser: Browser, tmp_path: Path) -> None:
    with played(tmp_path / "nodeward.sock") as daemon, page_of(daemon.path) as port:
        states = {"a-10": "enforced", "a-9": "drift", "b": "enforced"}
        daemon.view = view(*(row("shop", name, state=state) for name, state in states.items()))
        with opened(browser, f"http://127.0.0.1:{port}/") as page:
            names, head = page.locator("#pods .pod-name"), page.get_by_role("columnheader", name="Pod")
            for order in (["a-9", "a-10", "b"], ["a-9", "a-10", "b"], ["b", "a-10", "a-9"], ["a-9", "a-10", "b"]):
                expect(names).to_have_text([f"shop/{name}" for name in order])
                head.get_by_role("button").click()
            expect(head).to_have_attribute("aria-sort", "ascending")


def test_names_stay_text_and_many_pods_are_drawn(browser: Browser, tmp_path: Path) -> None:
    names = ("a" * 253, MARKUP, ARABIC, COMBINED)
    with played(tmp_path / "nodeward.sock") as daemon, page_of(daemon.path) as port:
        daemon.view = view(*(row("shop", name, state="drift" if name is MARKUP else "enforced") for name in names))
        with opened(browser, f"http://127.0.0.1:{port}/") as page:
            expect(page.locator("#pods .pod-name")).to_have_count(4)
            for name in names:
                expect(page.get_by_role("button", name=f"shop/{name}", exact=True)).to_have_text(f"shop/{name}")
            assert page.locator("#pods img").count() == 0
            assert page.title() != "owned"
            expect(page.locator("#pods tbody tr").first).to_contain_text("drift", timeout=WITHIN_MS)
            expect(page.get_by_role("status")).to_contain_text("changed by another program")
            page.get_by_role("button", name=MARKUP).click()
            expect(page.get_by_role("dialog").get_by_role("listitem")).to_have_text(f"explained shop/{MARKUP}")
            page.get_by_role("button", name="Close").click()
            many = view(*(row("shop", f"pod-{n}", app) for n in range(2000) for app in ("", "app")))
            keys = KeyRow("sev", (), 5000, 0, used=9, free=4991, holders=(KeyHolder("shop", "pod-1", "u", 9, 9),))
            daemon.view = replace(many, keys=(keys,))
            expect(page.locator("#pods .pod-name")).to_have_count(2000)
            expect(page.locator("#keys .square")).to_have_count(2000)
            assert page.locator("#keys .squares").get_attribute("data-more") == "and 3000 more"
            first = page.locator("#pods .pod-name").all_text_contents()
            assert first[:3] == ["shop/pod-0", "shop/pod-1", "shop/pod-2"]
            page.wait_for_timeout(1200)
            took = page.evaluate("document.body.dataset.drawnMs")
            tell(f"2,000 pods and 5,000 keys: an update is drawn in {took} ms")
            fault = page.locator("#fault")  # an `expect` that fails looks at all pods and holds the page for so long
            with daemon.away():
                while "does not answer" not in (fault.text_content() or ""):
                    page.wait_for_timeout(100)
            while fault.is_visible():
                page.wait_for_timeout(100)


def test_so_many_pages_may_be_open_and_the_next_one_says_so(browser: Browser, daemon: Played) -> None:
    """By a server of its own: one that has had pages may not have noticed yet that they are closed."""
    with ExitStack() as stack:
        port = stack.enter_context(page_of(daemon.path))
        for _ in range(MOST_PAGES):
            link = stack.enter_context(socket.create_connection(("127.0.0.1", port), WITHIN_S))
            assert next(pictures(port, link))
        assert asked(port, "/events")[0] == 503
        one_more = browser.new_page()
        one_more.goto(f"http://127.0.0.1:{port}/")
        alert = one_more.get_by_role("alert")
        expect(alert).to_contain_text(f"{MOST_PAGES} pages are open already", timeout=WITHIN_MS)
        one_more.close()
        link.shutdown(socket.SHUT_RDWR)
        link.close()
        while asked(port, "/events", "HEAD")[0] == 503:  # until the server has noticed
            pass


def test_uplot_is_the_registrys() -> None:
    static = Path(__file__).resolve().parents[3] / "src/nodeward/people/page/static"
    subprocess.run(["sha256sum", "--check", "--strict", "uplot.sha256"], cwd=static, check=True, timeout=scaled(10.0))
