"""The operators' socket, played: for names and numbers that no simulated node has."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec

from nodeward.app.host.latest import DecisionRow
from nodeward.model.rows import CgroupRow, ResourceRow
from nodeward.model.view import ComponentRow, NodeView

MIB = 1 << 20
DECIDED = (1, 2)


def row(namespace: str, pod: str, container: str = "", **more: str) -> CgroupRow:
    """A pod's cgroup, or its container's, at half of its limit."""
    one = ResourceRow("sgx_epc", 8 * MIB, 8 * MIB, 4 * MIB, 5 * MIB, 3, 3)
    level = "container" if container else "pod"
    state = more.get("state", "enforced")
    return CgroupRow(level, namespace, pod, container, "", f"/{pod}/{container}", state, "spec", "declared", (one,))


def view(*rows: CgroupRow, ready: bool = True) -> NodeView:
    components = (ComponentRow("kube", ready, "" if ready else "connection refused"),)
    usage = {"sgx_epc": 40 * MIB}
    return NodeView(
        "enforce",
        "containerd 2.4",
        "answers",
        True,
        {"sgx_epc": 512 * MIB},
        usage,
        rows,
        ready=ready,
        components=components,
        seq=DECIDED[-1],
    )


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    view: NodeView


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        place = urlsplit(self.path)
        if place.path == "/v1/status":
            body = msgspec.json.encode(self.server.view)
        elif place.path == "/v1/explain":
            body = msgspec.json.encode([f"explained {parse_qs(place.query)['what'][0]}"])
        else:
            after = int(parse_qs(place.query)["after"][0])
            body = msgspec.json.encode([DecisionRow(n, 0, "PodSeen", "", 1, 0, ()) for n in DECIDED if n > after])
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "page"

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Says nothing."""


class Played:
    """The socket, which can go away."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.view = view(row("shop", "web"), row("shop", "web", "app"))
        self._server: _Server | None = None

    def start(self) -> None:
        self._server = _Server(str(self.path), _Handler)
        self._server.view = self.view
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def show(self, shown: NodeView) -> None:
        """From now on."""
        self.view = shown
        assert self._server is not None
        self._server.view = shown

    def stop(self) -> None:
        if self._server is not None:
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
    made.start()
    try:
        yield made
    finally:
        made.stop()
