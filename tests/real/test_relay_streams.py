"""Exec, attach, port-forward and logs of a real containerd, asked for through the relay.

The runtime answers with a URL of its own server, which leads past the relay; our client follows it.
"""

import json
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.component.relay.rig import log_of, relay_process, wait_for
from tests.peers.containerd import Containerd
from tests.peers.cri import Cri, container_config, remove_pod, start
from tests.peers.nriside import Json, Record, text
from tests.peers.streams import followed
from tests.rigs.containers import BOX, pod_of, with_box

PORT = 7070


@dataclass(frozen=True, slots=True)
class Node:
    daemon: Containerd
    cri: Cri
    logs: Path

    def run(self, name: str, story: str, stdin: bool = False) -> tuple[str, str]:
        container = container_config("app", BOX)
        container |= {"command": ["/busybox", "sh", "-c"], "args": [story], "stdin": stdin}
        return start(self.cri, pod_of(self.daemon, name), container)

    def follow(self, method: str, asked: Record, sent: bytes = b"", awaited: bytes = b"") -> dict[int, bytes]:
        """What comes of the URL with which the runtime answers this."""
        return followed(self.daemon, text(self.cri.call(method, asked), "url"), sent, awaited)


@pytest.fixture(name="node", scope="module")
def _node() -> Iterator[Node]:
    with ExitStack() as stack:
        daemon = stack.enter_context(with_box())
        listen = daemon.folder / "cri.sock"
        with relay_process(listen, daemon.cri_socket), Cri(listen, daemon.peer / "proto" / "cri.proto") as cri:
            yield Node(daemon, cri, daemon.folder / "logs")
        assert "lost_sight=0" in log_of(listen)


def test_a_command_in_a_container_speaks_and_ends(node: Node) -> None:
    pod, container = node.run("exec", "while :; do /busybox sleep 1; done")
    asked: Record = {"container_id": container, "cmd": ["/busybox", "cat"], "stdin": True, "stdout": True}
    assert node.follow("Exec", asked, b"hello\n", awaited=b"hello\n") == {1: b"hello\n"}
    short: Record = {"container_id": container, "cmd": ["/busybox", "sh", "-c", "echo out; echo oh >&2; exit 3"]}
    said = node.follow("Exec", {**short, "stdout": True, "stderr": True})
    ended = json.loads(said.pop(3))
    assert said == {1: b"out\n", 2: b"oh\n"}
    assert ended["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]
    at_once = node.cri.call("ExecSync", {**short, "timeout": 10})
    assert at_once == {"stdout": "b3V0Cg==", "stderr": "b2gK", "exit_code": 3}
    remove_pod(node.cri, pod)


def test_whoever_attaches_is_read_and_heard(node: Node) -> None:
    pod, container = node.run("attach", "while read line; do echo heard $line; done", stdin=True)
    asked: Record = {"container_id": container, "stdin": True, "stdout": True, "stderr": True}
    assert node.follow("Attach", asked, b"us\n", awaited=b"heard") == {1: b"heard us\n"}
    remove_pod(node.cri, pod)


def test_a_port_is_forwarded(node: Node) -> None:
    served = f"echo served > /page; exec /busybox httpd -f -p 127.0.0.1:{PORT} -h /"
    pod, container = node.run("port", served)
    fetch: list[Json] = ["/busybox", "wget", "-q", "-O", "-", f"http://127.0.0.1:{PORT}/page"]
    asks: Record = {"container_id": container, "cmd": fetch, "timeout": 10}
    wait_for(lambda: "exit_code" not in node.cri.call("ExecSync", asks), "page at the port")
    asked: Record = {"pod_sandbox_id": pod, "port": [PORT]}
    said = node.follow("PortForward", asked, b"GET /page HTTP/1.0\r\n\r\n", awaited=b"served\n")
    assert (said[0][:2], said[1]) == (struct.pack("<H", PORT), struct.pack("<H", PORT))
    assert said[0][2:].startswith(b"HTTP/1.")
    assert said[0].endswith(b"\r\n\r\nserved\n")
    remove_pod(node.cri, pod)


def test_a_log_is_written_by_the_runtime_and_begun_anew_through_the_relay(node: Node) -> None:
    pod, container = node.run("logs", "while :; do echo tick; /busybox sleep 0.05; done")
    log, aside = node.logs / "app.log", node.logs / "app.log.1"
    wait_for(lambda: log.exists() and "stdout F tick\n" in log.read_text(), "line in the log")
    log.rename(aside)
    node.cri.call("ReopenContainerLog", {"container_id": container})
    wait_for(lambda: log.exists() and "stdout F tick\n" in log.read_text(), "line in the new log")
    ended = aside.stat().st_size
    size = log.stat().st_size
    wait_for(lambda: log.stat().st_size > size, "further line in the new log")
    assert aside.stat().st_size == ended
    remove_pod(node.cri, pod)
