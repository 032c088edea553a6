"""What `nodeward relay` says of itself on `relay.sock`, to whom, and what people are shown of it; and that no
secret of what kubelet asks and the runtime answers leaves it."""

import json
import os
import re
import signal
import socket
import stat
from base64 import b64decode
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from nodeward.cli import main
from nodeward.contracts import cri_pb2 as cri
from nodeward.neighbours.cri import relay_line
from nodeward.neighbours.cri.flow import FRAME_BYTES
from nodeward.neighbours.cri.rows import DaemonRow, DoorRow
from nodeward.neighbours.formats import http2_frames as h2
from nodeward.neighbours.formats.header_blocks import encode_literals
from tests.component.relay import rig
from tests.component.relay import test_limits as limits
from tests.component.relay.dump_rig import writer_of
from tests.component.relay.test_limits import ANNOTATIONS, kernel
from tests.peers.ports import free_port
from tests.unit.neighbours.cri.strict import request

STRANGE = {
    "no-json": (b"hello\n", "cannot be read"),
    "no-object": (b"[1]\n", "cannot be read"),
    "another-version": (b'{"v":2,"ask":"status"}\n', "version 2 is not known"),
    "no-version": (b'{"ask":"status"}\n', "version None is not known"),
    "another-question": (b'{"v":1,"ask":"secrets"}\n', "'secrets' cannot be asked"),
    "deep": (b'{"v":' + b"[" * 60_000 + b"\n", "cannot be read"),
}


def test_calls_are_told_by_method_and_result_with_what_they_waited(tmp_path: Path) -> None:
    with rig.relayed(tmp_path) as (listen, _, _), rig.client_of(listen) as channel:
        for _ in range(3):
            rig.call(channel, "Version", b"v")
        for name in ("LaterThan37", "EvenLater"):
            rig.call(channel, name)
        with pytest.raises(grpc.RpcError):
            rig.call(channel, "Unknown")
        told = rig.status(listen)
        mode = stat.S_IMODE(rig.status_socket(listen).stat().st_mode)

    assert {row.method: row.results for row in told.calls} == {
        "Version": {"OK": 3},
        "other": {"OK": 2, "UNIMPLEMENTED": 1},
    }
    assert {row.method: row.fates for row in told.calls} == {"Version": {"passed": 3}, "other": {"passed": 3}}
    (passed, held) = told.added
    assert (passed.how, passed.count, held.count) == ("passed", 6, 0)
    assert 0 < passed.sum_ns < 6 * 10**9
    assert told.doors == (DoorRow(str(listen), str(tmp_path / "runtime.sock"), True, 1, 1),)
    assert (told.daemon, told.dump) == (DaemonRow(), None)
    assert mode == 0o600


def test_what_is_held_copied_and_not_yet_written_is_told(tmp_path: Path) -> None:
    part = b"\0" + (1000).to_bytes(4, "big") + bytes(300)
    flags = ("--dump-file", str(tmp_path / "dump"), *limits.kernel(tmp_path))

    def queues() -> dict[str, int]:
        return dict(rig.status(listen).queues)

    with rig.relayed(tmp_path, *flags, behave=limits.runtime) as (listen, _, relay), ExitStack() as stack:
        rig.wait_for(lambda: queues() == {"held": 0, "copied": 0, "dump": 0}, "empty queues")
        writer = writer_of(relay)
        os.kill(writer, signal.SIGSTOP)
        stack.callback(os.kill, writer, signal.SIGCONT)
        with rig.socket_to(listen) as client:
            headers = h2.encode_headers(1, encode_literals(request("CreateContainer")), 0)
            client.sendall(h2.PREFACE + h2.encode_settings({}) + headers + h2.encode(h2.DATA, 0, 1, part))
            rig.wait_for(lambda: queues()["held"] > 0, "held call")
            waits = queues()
        assert (waits["held"], waits["copied"]) == (len(part) + FRAME_BYTES, len(part) - 5)
        with rig.client_of(listen) as channel:
            for _ in range(10):
                rig.call(channel, "Version", bytes(1000))
        rig.wait_for(lambda: queues()["dump"] > 10_000, "messages that wait for the dump")
        stack.close()
        rig.wait_for(lambda: queues() == {"held": 0, "copied": 0, "dump": 0}, "end of all waiting")


def test_a_runtime_that_is_away_is_told_and_where_calls_are_not_counted_people_are_told_so(tmp_path: Path) -> None:
    listen, behind = tmp_path / "cri.sock", tmp_path / "runtime.sock"
    with rig.relay_process(listen, behind, "--set", "relay.count_calls=false"), rig.client_of(listen) as channel:
        rig.wait_for(rig.status_socket(listen).is_socket, "relay.sock")
        before = rig.status(listen).doors[0].present
        with pytest.raises(grpc.RpcError):
            rig.call(channel, "Version", timeout_s=2.0)
        assert (before, rig.status(listen).doors[0].present) == (None, False)
        with rig.runtime_at(behind), rig.client_of(listen) as later:
            assert rig.call(later, "Version", b"v") == b"v"
            told, shown = rig.status(listen), rig.people(listen, "status").stdout
    assert (told.counted, told.calls, told.doors[0].present) == (False, (), True)
    assert sum(row.count for row in told.added) == 0
    assert "calls are not counted: relay.count_calls is false" in shown
    assert "relayed calls not counted" in rig.log_of(listen)


def test_strangers_and_strange_requests_hold_up_neither_calls_nor_the_next_to_ask(tmp_path: Path) -> None:
    with rig.relayed(tmp_path) as (listen, _, _), rig.client_of(listen) as channel, ExitStack() as stack:
        for what, (line, fault) in STRANGE.items():
            answer: dict[str, object] = json.loads(rig.said(rig.status_socket(listen), line))
            assert (answer["v"], fault in str(answer["error"])) == (1, True), what
        assert rig.said(rig.status_socket(listen), b"x" * (1 << 20)) == b""
        assert rig.status(listen).pid > 0
        for _ in range(1000):
            silent = stack.enter_context(rig.socket_to(rig.status_socket(listen)))
        assert rig.call(channel, "Version", b"v", timeout_s=5.0) == b"v"
        rig.wait_for(lambda: bool(rig.said(rig.status_socket(listen), relay_line.encode_request("status"))), "answer")
        assert silent.recv(1) == b""


def test_the_next_relay_has_the_socket_once_the_one_before_lets_it_go(tmp_path: Path) -> None:
    first, second, behind = tmp_path / "cri.sock", tmp_path / "other.sock", tmp_path / "runtime.sock"
    with rig.runtime_at(behind):
        with rig.relay_process(first, behind):
            rig.wait_for(rig.status_socket(first).is_socket, "relay.sock")
            stack = ExitStack()
            process = stack.enter_context(rig.relay_process(second, behind))
            assert rig.status(first).doors[0].listen == str(first)
        with stack, rig.client_of(second) as channel:
            rig.wait_for(lambda: rig.status_socket(second).is_socket(), "the second's relay.sock")
            assert rig.status(second).pid == process.pid
            assert rig.call(channel, "Version", b"v") == b"v"


# ---- limits, and people


def test_people_see_the_relay_where_there_is_no_daemon(tmp_path: Path) -> None:
    flags = limits.kernel(tmp_path)
    with rig.relayed(tmp_path, *flags, behave=limits.runtime) as (listen, _, _), rig.client_of(listen) as channel:
        limits.call(channel, "CreateContainer", limits.create())
        table = rig.people(listen, "status")
        tree = json.loads(rig.people(listen, "status", "-o", "json").stdout)
        nothing = rig.people(listen, "explain", "default/none")
        drawn = rig.people(listen, "status", "--watch", "--times", "2", "--every", "0.1")
        ready = rig.people(listen, "status", "--ready")
        mapped = Path(f"/proc/{tree['relay']['pid']}/maps").read_text()

    assert not re.findall("grpc/_cython|aiohttp/", mapped), "nor does a relay that asks import either"
    assert "uvloop" in mapped
    assert table.returncode == 0, table.stderr
    assert "no node daemon: nothing is decided, see on_error" in table.stdout
    why = f"no node daemon is at {tmp_path}/run/relay-door.sock"
    assert f"calls are held for containers, and nobody decides them: {why}" in table.stdout
    create = next(line.split() for line in table.stdout.splitlines() if "CreateContainer" in line)
    assert create == ["CreateContainer", "1", "0", "1", "0", "0"]
    assert (tree["rows"], tree["relay"]["daemon"]["wants"]) == ([], ["containers"])
    assert {one["how"]: one["count"] for one in tree["relay"]["added"]}["held"] == 1
    assert [line.split() for line in drawn.stdout.splitlines() if "CreateContainer" in line] == [create] * 2
    assert (nothing.returncode, ready.returncode) == (1, 1)
    assert "no daemon listens at" in nothing.stderr


def test_the_daemon_shows_the_relay_in_its_status_and_metrics_while_there_is_one(tmp_path: Path) -> None:
    calls = 'nodeward_relay_calls_total{method="CreateContainer",result="OK"}'
    changed = 'nodeward_relay_decisions_total{method="CreateContainer",outcome="changed"}'
    waited = 'nodeward_relay_added_duration_seconds_count{how="held"}'
    port, listen, behind = free_port(), tmp_path / "cri.sock", tmp_path / "runtime.sock"
    flags = limits.kernel(tmp_path)
    with rig.runtime_at(behind, limits.runtime), rig.node_process(tmp_path, *rig.metered(port)):
        alone = json.loads(rig.people(listen, "status", "-o", "json").stdout)
        rig.wait_for(lambda: bool(rig.metrics(port)), "metrics")
        before = rig.scraped(port)
        with rig.relay_process(listen, behind, *flags), rig.client_of(listen) as channel:
            rig.decided_by(listen)
            limits.call(channel, "RunPodSandbox", b"")
            limits.call(channel, "CreateContainer", limits.create())
            rig.wait_for(lambda: rig.scraped(port).get(calls) == 1.0, "the call in /metrics")
            during = rig.scraped(port)
            both = rig.people(listen, "status")
            top = rig.people(listen, "status", "--watch", "--times", "2", "--every", "0.1")
            why = rig.people(listen, "explain", "default/pod/app")
        rig.wait_for(lambda: rig.scraped(port).get("nodeward_relay_up") == 0.0, "a scrape without relay")

    assert (alone["relay"], alone["alone"]) == (None, "")
    assert before == {"nodeward_relay_up": 0.0, "nodeward_relay_unread_total": 0.0}
    assert (during[changed], during[waited], during["nodeward_relay_decided"]) == (1.0, 1.0, 1.0)
    assert "no node daemon" not in both.stdout + top.stdout
    assert top.stdout.count("CreateContainer") == 2, "a line each time"
    assert "calls are held for containers, and decided by the node daemon (process " in both.stdout
    assert "capacity: sgx_epc" in both.stdout
    assert "  Source: annotation epc-limit.nri.io/container.app." in why.stdout.splitlines()


def test_a_relay_that_hangs_is_told_and_takes_nothing_else_down(tmp_path: Path) -> None:
    port = free_port()
    limits.kernel(tmp_path)
    (tmp_path / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "run" / relay_line.SOCKET))
        deaf.listen(64)
        flags = ("--config", str(tmp_path / "nodeward.yaml"), "--set=relay.limits=false", *rig.metered(port))
        ready = (tmp_path / "run" / "nodeward.sock").is_socket
        with rig.running([rig.NODEWARD, "node", *flags], tmp_path / "node.log", ready):
            rig.wait_for(lambda: " within 2 s" in (tmp_path / "node.log").read_text(), "word in the log")
            text = rig.metrics(port)
            shown = rig.people(tmp_path / "cri.sock", "status")

    assert "nodeward_build_info" in text
    of_relay = [line for line in text.splitlines() if line.startswith("nodeward_relay_")]
    assert of_relay == ["nodeward_relay_up 0"]
    assert "no answer of the relay at" in shown.stdout


TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
SAID = {f"runtime.v1.LinuxContainerResources.{name}" for name in ("cpuset_cpus", "cpuset_mems")}
"""A list of CPUs or memory nodes that cannot be read is named in the log."""
KEPT = {"runtime.v1.RunPodSandboxRequest.runtime_handler"}
"""What is decided by: gates and sizes."""
NOT_DUMPED = {
    *("runtime.v1.KeyValue.value", "runtime.v1.StatusResponse.info", "runtime.v1.ContainerStatusResponse.info"),
    *(f"runtime.v1.AuthConfig.{name}" for name in ("username", "password", "auth", "identity_token", "registry_token")),
    *("runtime.v1.ContainerConfig.command", "runtime.v1.ContainerConfig.args", "runtime.v1.ImageSpec.annotations"),
    *(f"runtime.v1.{of}.annotations" for of in ("ContainerConfig", "PodSandboxConfig", "ContainerStatus")),
    "runtime.v1.UpdateContainerResourcesRequest.annotations",
    *(f"runtime.v1.{of}.labels" for of in ("ContainerConfig", "PodSandboxConfig", "ContainerStatus")),
    *(f"runtime.v1.Windows{kind}SecurityContext.credential_spec" for kind in ("Container", "Sandbox")),
}
"""Of the fields in this story; docs/relay.md promises it. All others are dumped."""
GIVEN = {
    *(f"runtime.v1.PodSandboxMetadata.{name}" for name in ("name", "namespace", "uid")),
    *("runtime.v1.CreateContainerRequest.pod_sandbox_id", "runtime.v1.UpdateContainerResourcesRequest.container_id"),
    "runtime.v1.LinuxPodSandboxConfig.cgroup_parent",
}
"""They have other values."""


class Planted:
    def __init__(self) -> None:
        self.fields: list[str] = []

    def found_in(self, text: bytes) -> set[str]:
        return {self.fields[int(number)] for number in re.findall(rb"c4n4ry(\d{4})x", text)}

    def fill(self, message: Any) -> Any:
        """One item in each list, one key in each map."""
        for field in message.DESCRIPTOR.fields:
            at = getattr(message, field.name)
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                if field.message_type.fields_by_name["value"].type in TEXTS:
                    at["key"] = self._canary(field)
            elif field.message_type is not None:
                self.fill(at.add() if field.is_repeated else at)
                if not field.is_repeated:
                    at.SetInParent()
            elif field.type in TEXTS:
                said = self._canary(field)
                value = said.encode() if field.type == FieldDescriptor.TYPE_BYTES else said
                at.append(value) if field.is_repeated else setattr(message, field.name, value)
        return message

    def _canary(self, field: FieldDescriptor) -> str:
        self.fields.append(field.full_name)
        return f"c4n4ry{len(self.fields) - 1:04}x"


def test_no_canary_leaves_a_relay_that_dumps_and_a_daemon_that_decides_sizes_and_records(tmp_path: Path) -> None:
    planted = Planted()

    def runtime(name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        replies: dict[str, Callable[[], Message]] = {
            "RunPodSandbox": lambda: cri.RunPodSandboxResponse(pod_sandbox_id="s1"),
            "CreateContainer": lambda: cri.CreateContainerResponse(container_id="c1"),
            "ContainerStatus": lambda: planted.fill(cri.ContainerStatusResponse()),
            "Status": lambda: planted.fill(cri.StatusResponse()),
        }
        return replies[name]().SerializeToString() if name in replies else b""

    def sandbox_named(config: Any) -> None:
        config.metadata.CopyFrom(cri.PodSandboxMetadata(name="pod", uid="u", namespace="default"))
        config.annotations.update(ANNOTATIONS)
        config.linux.cgroup_parent = "/kubepods/podu"

    listen, behind, dump = tmp_path / "cri.sock", tmp_path / "runtime.sock", tmp_path / "dump"
    flags = (*kernel(tmp_path), "--log-level", "debug", "--dump-file", str(dump))
    settings = tmp_path / "nodeward.yaml"
    settings.write_text(f"{settings.read_text()}sizing: {{mode: enforce}}\n")
    run = planted.fill(cri.RunPodSandboxRequest())
    create, update = planted.fill(cri.CreateContainerRequest()), planted.fill(cri.UpdateContainerResourcesRequest())
    pull = planted.fill(cri.PullImageRequest())
    for config in (run.config, create.sandbox_config, pull.sandbox_config):
        sandbox_named(config)
    create.pod_sandbox_id, create.config.metadata.name, update.container_id = "s1", "app", "c1"
    for linux in (create.config.linux.resources, update.linux):
        linux.cpuset_cpus = ""
    record = ("--record", f"{tmp_path}/record", "--log-level", "debug")
    with (
        rig.runtime_at(behind, runtime),
        rig.relay_process(listen, behind, *flags),
        rig.node_process(tmp_path, *record),
    ):
        rig.decided_by(listen)
        with rig.client_of(listen) as channel:
            for request in (run, create, update):
                rig.call(channel, request.DESCRIPTOR.name.removesuffix("Request"), request.SerializeToString())
            channel.unary_unary("/runtime.v1.ImageService/PullImage")(pull.SerializeToString(), timeout=rig.WAIT_S)
            rig.call(channel, "ContainerStatus")
            rig.call(channel, "Status")
        rig.wait_for(rig.status_socket(listen).is_socket, "relay.sock")
        rig.wait_for(lambda: dump.exists() and b" Status <= " in dump.read_bytes(), "the last answer in the dump")
        shown = [rig.people(listen, *words).stdout for words in (("status",), ("status", "-o", "json"), ("cpus",))]
    again = CliRunner().invoke(main.cli, ["replay", str(tmp_path / "record")])
    assert again.output.endswith("every decision is the same, byte for byte\n"), again.output
    left = {name: (tmp_path / name).read_bytes() for name in ("record", "cri.log", "node.log")}
    left |= {str(path): path.read_bytes() for path in tmp_path.glob("*/**/*") if path.is_file()}
    left["status"] = "".join(shown).encode()
    dumped = dump.read_bytes()
    dumped += b"".join(b64decode(one) for one in re.findall(rb'"([A-Za-z0-9+/]{16}=?=?)"', dumped))
    assert {name: told for name, one in left.items() if (told := planted.found_in(one) - SAID - KEPT)} == {}
    assert set(planted.fields) - planted.found_in(dumped) == NOT_DUMPED | GIVEN
