"""Exec, attach, port-forward and logs of a real containerd, asked for past the relay and through it.

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
WAYS = ("direct", "relayed")


@dataclass(frozen=True, slots=True)
class Node:
    daemon: Containerd
    ways: dict[str, Cri]
    logs: Path

    def run(self, name: str, story: str, stdin: bool = False) -> tuple[str, str]:
        container = container_config("app", BOX)
        container |= {"command": ["/busybox", "sh", "-c"], "args": [story], "stdin": stdin}
        pod = pod_of(self.daemon, name)
        return start(self.ways["relayed"], pod, container)


@pytest.fixture(name="node", scope="module")
def _node() -> Iterator[Node]:
    with ExitStack() as stack:
        daemon = stack.enter_context(with_box())
        listen = daemon.folder / "cri.sock"
        with (
            relay_process(listen, daemon.cri_socket),
            Cri(listen, daemon.peer / "proto" / "cri.proto") as relayed,
            daemon.cri() as direct,
        ):
            yield Node(daemon, {"direct": direct, "relayed": relayed}, daemon.folder / "logs")
        assert "lost_sight=0" in log_of(listen)


def test_a_command_in_a_container_speaks_and_ends_the_same_both_ways(node: Node) -> None:
    pod, container = node.run("exec", "while :; do /busybox sleep 1; done")
    for way in WAYS:
        asked: Record = {"container_id": container, "cmd": ["/busybox", "cat"], "stdin": True, "stdout": True}
        url = text(node.ways[way].call("Exec", asked), "url")
        assert followed(node.daemon, url, b"hello\n", awaited=b"hello\n") == {1: b"hello\n"}, way
        short: Record = {"container_id": container, "cmd": ["/busybox", "sh", "-c", "echo out; echo oh >&2; exit 3"]}
        url = text(node.ways[way].call("Exec", {**short, "stdout": True, "stderr": True}), "url")
        said = followed(node.daemon, url)
        ended = json.loads(said.pop(3))
        assert said == {1: b"out\n", 2: b"oh\n"}, way
        assert ended["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}], way
        at_once = node.ways[way].call("ExecSync", {**short, "timeout": 10})
        assert at_once == {"stdout": "b3V0Cg==", "stderr": "b2gK", "exit_code": 3}, way
    remove_pod(node.ways["relayed"], pod)


def test_whoever_attaches_is_read_and_heard_both_ways(node: Node) -> None:
    pod, container = node.run("attach", "while read line; do echo heard $line; done", stdin=True)
    for way in WAYS:
        asked: Record = {"container_id": container, "stdin": True, "stdout": True, "stderr": True}
        url = text(node.ways[way].call("Attach", asked), "url")
        assert followed(node.daemon, url, f"{way}\n".encode(), awaited=b"heard") == {1: f"heard {way}\n".encode()}
    remove_pod(node.ways["relayed"], pod)


def test_a_port_is_forwarded_both_ways(node: Node) -> None:
    served = f"echo served > /page; exec /busybox httpd -f -p 127.0.0.1:{PORT} -h /"
    pod, container = node.run("port", served)
    fetch: list[Json] = ["/busybox", "wget", "-q", "-O", "-", f"http://127.0.0.1:{PORT}/page"]
    asks: Record = {"container_id": container, "cmd": fetch, "timeout": 10}
    wait_for(lambda: "exit_code" not in node.ways["direct"].call("ExecSync", asks), "page at the port")
    for way in WAYS:
        asked: Record = {"pod_sandbox_id": pod, "port": [PORT]}
        url = text(node.ways[way].call("PortForward", asked), "url")
        said = followed(node.daemon, url, b"GET /page HTTP/1.0\r\n\r\n", awaited=b"served\n")
        assert (said[0][:2], said[1]) == (struct.pack("<H", PORT), struct.pack("<H", PORT)), way
        assert said[0][2:].startswith(b"HTTP/1."), way
        assert said[0].endswith(b"\r\n\r\nserved\n"), way
    remove_pod(node.ways["relayed"], pod)


def test_a_log_is_written_by_the_runtime_and_begun_anew_through_the_relay(node: Node) -> None:
    pod, container = node.run("logs", "while :; do echo tick; /busybox sleep 0.05; done")
    log, aside = node.logs / "app.log", node.logs / "app.log.1"
    wait_for(lambda: log.exists() and "stdout F tick\n" in log.read_text(), "line in the log")
    log.rename(aside)
    node.ways["relayed"].call("ReopenContainerLog", {"container_id": container})
    wait_for(lambda: log.exists() and "stdout F tick\n" in log.read_text(), "line in the new log")
    ended = aside.stat().st_size
    size = log.stat().st_size
    wait_for(lambda: log.stat().st_size > size, "further line in the new log")
    assert aside.stat().st_size == ended
    remove_pod(node.ways["relayed"], pod)
