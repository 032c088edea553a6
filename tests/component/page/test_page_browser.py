"""The page in Debian's Chromium: what a person sees of simulated nodes, and of names that no node has.

With NODEWARD_PICTURES=FOLDER the pictures of docs/page.md are written there.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, FloatRect, Page, expect, sync_playwright

from nodeward.edges.page.server import MOST_PAGES
from tests.component.page.daemon import played, row, view
from tests.component.page.test_page_server import page_of, pictures
from tests.patience import scaled
from tests.peers.find import absent
from tests.told import tell

CHROMIUM = Path("/usr/bin/chromium")
QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
WITHIN_MS = scaled(45.0) * 1000
WIDTHS = (1280, 400)
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
    """What a page did beside being shown."""

    said: list[str] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)


@contextmanager
def opened(browser: Browser, address: str) -> Iterator[Page]:
    """The page; at the end it has said nothing on its console and asked no other host."""
    seen, page = Seen(), browser.new_page(viewport={"width": WIDTHS[0], "height": 900})
    page.set_default_timeout(WITHIN_MS)
    expect.set_options(timeout=WITHIN_MS)
    page.on("console", lambda message: seen.said.append(message.text))
    page.on("pageerror", lambda error: seen.said.append(str(error)))
    page.on("request", lambda request: seen.asked.add(request.url.split("/")[2]))
    page.goto(address)
    yield page
    assert (seen.said, seen.asked) == ([], {address.split("/")[2]})
    page.close()


@contextmanager
def simulated(scenario: str) -> Iterator[str]:
    """The address that `nodeward sim --page` prints."""
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
            size = FloatRect(x=0, y=0, width=width, height=1150)
            page.screenshot(path=f"{folder}/page-{scenario}-{width}.png", clip=size, full_page=True)


def test_limits_and_refusals(browser: Browser) -> None:
    with simulated("noisy-neighbour") as address, opened(browser, address) as page:
        expect(page.get_by_role("status")).to_contain_text("The kernel refused", timeout=WITHIN_MS)
        expect(page.get_by_role("img", name="sgx_epc:")).to_be_visible()
        pods = page.get_by_role("region", name="Pods")
        expect(pods.get_by_role("cell", name="enforced").first).to_be_visible()
        expect(pods.get_by_role("img", name="refused in the last minute").first).to_be_attached()
        expect(pods.locator(".spark[aria-label^='1'], .spark[aria-label^='2']").first).to_be_attached()
        decisions = page.get_by_role("region", name="Decisions")
        expect(decisions.get_by_role("cell", name="Reached").first).to_be_visible()
        expect(decisions.get_by_text("wrote and read back: misc.max").first).to_be_attached()
        decisions.get_by_role("button").first.click()  # its pod may have ended: then that is said
        expect(page.get_by_role("dialog").get_by_role("listitem").first).not_to_have_text("…")
        page.get_by_role("button", name="Close").press("Enter")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.get_by_role("searchbox", name="Find").fill("no such pod")
        expect(pods.locator("tbody.pod")).to_have_count(0)
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


def test_cpus(browser: Browser) -> None:
    with simulated("cpus-quiet") as address, opened(browser, address) as page:
        cpus = page.get_by_role("region", name="CPUs")
        expect(cpus.get_by_role("button", name="CPU 0:")).to_be_visible()
        expect(cpus.get_by_role("button", name="exclusive, default/").first).to_be_visible()
        _drawn(page, "cpus")


def test_names_stay_text_and_many_pods_are_drawn(browser: Browser, tmp_path: Path) -> None:
    names = ("a" * 253, MARKUP, ARABIC, COMBINED)
    with played(tmp_path / "nodeward.sock") as daemon, page_of(daemon.path) as port:
        daemon.show(view(*(row("shop", name, state="drift" if name is MARKUP else "enforced") for name in names)))
        with opened(browser, f"http://127.0.0.1:{port}/") as page:
            expect(page.locator("tbody.pod")).to_have_count(4)
            for name in names:
                expect(page.get_by_role("button", name=f"shop/{name}", exact=True)).to_have_text(f"shop/{name}")
            assert page.locator("#pods img").count() == 0
            assert "owned" not in page.title()
            expect(page.locator("tbody.pod").first).to_contain_text("drift", timeout=WITHIN_MS)
            expect(page.get_by_role("status")).to_contain_text("changed by another program")
            page.get_by_role("button", name=MARKUP).click()
            expect(page.get_by_role("dialog").get_by_role("listitem")).to_have_text(f"explained shop/{MARKUP}")
            page.get_by_role("button", name="Close").click()
            daemon.show(view(*(row("shop", f"pod-{n}", app) for n in range(500) for app in ("", "app"))))
            expect(page.locator("tbody.pod")).to_have_count(500)
            page.wait_for_function("document.querySelectorAll('tbody.pod').length === 500")
            first = page.locator("tbody.pod .pod-name").all_text_contents()
            assert first[:3] == ["shop/pod-0", "shop/pod-1", "shop/pod-2"]
            page.wait_for_timeout(1200)
            tell(f"500 pods: an update is drawn in {page.evaluate('document.body.dataset.drawnMs')} ms")
            with daemon.away():
                expect(page.get_by_role("alert")).to_contain_text("does not answer")
            expect(page.get_by_role("alert")).to_be_hidden()


def test_one_page_too_many_says_so(browser: Browser, tmp_path: Path) -> None:
    """By a server of its own: one that has had pages may not have noticed yet that they are closed."""
    with ExitStack() as stack:
        daemon = stack.enter_context(played(tmp_path / "nodeward.sock"))
        port = stack.enter_context(page_of(daemon.path))
        for _ in range(MOST_PAGES):
            link = stack.enter_context(socket.create_connection(("127.0.0.1", port), WITHIN_MS / 1000))
            next(pictures(port, link))
        one_more = browser.new_page()
        one_more.goto(f"http://127.0.0.1:{port}/")
        alert = one_more.get_by_role("alert")
        expect(alert).to_contain_text(f"{MOST_PAGES} pages are open already", timeout=WITHIN_MS)
        one_more.close()


def test_uplot_is_the_registrys() -> None:
    static = Path(__file__).resolve().parents[3] / "src/nodeward/edges/page/static"
    subprocess.run(["sha256sum", "--check", "--strict", "uplot.sha256"], cwd=static, check=True, timeout=scaled(10.0))
