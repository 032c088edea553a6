"""The relay before real containerds: streaming calls, restarts of either, and the older CRI.

Where limits are decided the kernel is a folder, and containers are created and never started: the machine's own kernel
has no EPC. What is decided is read from containerd's specification of the container.
"""

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from nodeward.core.pulls import PullsView
from nodeward.features.podapi.effects.pulls import PodPulls
from nodeward.features.podapi.rows import ResolvePullRequest, ResolvePullResponse
from nodeward.features.pods.state import Pods
from nodeward.features.settings import Settings
from nodeward.host.clock import SystemClock
from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.cri.methods import IMAGE as IMAGE_METHODS
from nodeward.neighbours.cri.methods import STREAMING
from nodeward.neighbours.cri.relay_socket import ask_pulls
from tests.component.relay import test_limits as limits
from tests.component.relay.rig import (
    WAIT_S,
    decided_by,
    log_of,
    metered,
    node_process,
    people,
    relay_process,
    scraped,
    socket_to,
    wait_for,
)
from tests.peers.containerd import IMAGE, OLD, Containerd
from tests.peers.cri import Cri, container_config, pods, remove_pod, start
from tests.peers.crisuite import images_served
from tests.peers.nriside import Json, Record, member, text
from tests.peers.ports import free_port
from tests.peers.prometheus import asked, prometheus
from tests.rigs.containers import a_containerd, pod_of
from tests.unit.neighbours.cri.strict import StrictEnd, message, request


@dataclass(slots=True)
class Node:
    daemon: Containerd

    @property
    def socket(self) -> Path:
        return self.daemon.folder / "cri.sock"

    def relayed(self) -> Cri:
        return Cri(self.socket, self.daemon.peer / "proto" / "cri.proto")

    def pod(self, name: str) -> Record:
        return pod_of(self.daemon, name)

    def noted(self, name: str) -> Record:
        """One whose container `app` has a limit by an annotation."""
        return self.pod(name) | {"annotations": {"epc-limit.nri.io/container.app": "8192"}}

    def record(self, container: str) -> str:
        """containerd's of a container, with the specification that runc would be given."""
        return self.daemon.ctr("containers", "info", container).stdout

    def told(self, container: str) -> tuple[Json, Json]:
        """`misc.max` of that, and the CPU's shares."""
        resources = member(json.loads(self.record(container)), "Spec", "linux", "resources")
        assert isinstance(resources, dict)
        return member(resources, "unified", "misc.max"), member(resources, "cpu", "shares")


@pytest.fixture(name="node", scope="module")
def _node() -> Iterator[Node]:
    """One for all tests of this module; each removes its pods."""
    with a_containerd() as daemon, relay_process(daemon.folder / "cri.sock", daemon.cri_socket):
        yield Node(daemon)


@contextmanager
def running_pod(node: Node, cri: Cri, name: str) -> Iterator[tuple[str, str]]:
    pod, container = start(cri, node.pod(name), container_config("app", IMAGE))
    try:
        yield pod, container
    finally:
        remove_pod(cri, pod)


@pytest.mark.parametrize("method", [name for name in STREAMING if name != "GetContainerEvents"])
def test_a_streaming_call_says_the_same_through_the_relay(node: Node, method: str) -> None:
    service = "ImageService" if method in IMAGE_METHODS else "RuntimeService"
    with node.relayed() as relayed, node.daemon.cri() as direct, running_pod(node, relayed, "streamed"):
        told = [
            sorted(key for answer in cri.stream(method, service) for key in _ids(answer)) for cri in (relayed, direct)
        ]
    assert told[0] == told[1]
    assert told[0]


def _ids(value: object) -> Iterator[str]:
    """Every id in an answer: what a statistic measures differs from one moment to the next, whom it is of does not."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("id", "pod_sandbox_id"):
                yield str(inner)
            else:
                yield from _ids(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _ids(inner)


def answers(cri: Cri) -> bool:
    """Whether a call succeeds; UNAVAILABLE is the only other thing that may happen to it."""
    try:
        return bool(cri.call("Version"))
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.UNAVAILABLE:
            raise
        time.sleep(0.05)
        return False


def test_a_kubelets_connection_and_its_pods_outlive_kills_of_the_relay_and_restarts_of_containerd(node: Node) -> None:
    listen, runtime = node.daemon.folder / "again.sock", node.daemon.cri_socket
    cri = Cri(listen, node.daemon.peer / "proto" / "cri.proto")
    with relay_process(listen, runtime) as relay:
        cri.__enter__()
        _, container = start(cri, node.pod("outlives"), container_config("app", IMAGE))
        relay.kill()
        relay.wait(WAIT_S)
        assert not answers(cri)
    with relay_process(listen, runtime):
        wait_for(lambda: answers(cri), "answer of the second relay")
    assert not answers(cri)
    with relay_process(listen, runtime), cri:
        wait_for(lambda: answers(cri), "answer of the third relay")
        for how in (signal.SIGTERM, signal.SIGKILL):
            node.daemon.stop(how)
            assert not answers(cri)
            node.daemon.start()
            wait_for(lambda: answers(cri), "answer after containerd's restart")
        status = cri.call("ContainerStatus", {"container_id": container})
        assert member(status, "status", "state") == "CONTAINER_RUNNING"
        for pod in pods(cri):
            remove_pod(cri, pod)
    assert "lost_sight=0" in log_of(listen)


def created(cri: Cri, pod: Record, container: Record, behind: bytes = b"") -> tuple[str, str]:
    sandbox = text(cri.call("RunPodSandbox", {"config": pod}), "pod_sandbox_id")
    asked: Record = {"pod_sandbox_id": sandbox, "config": container, "sandbox_config": pod}
    return sandbox, text(cri.call("CreateContainer", asked, behind), "container_id")


def test_containerd_takes_all_that_a_proxy_loses_or_reorders_beside_the_limit(node: Node, tmp_path: Path) -> None:
    listen = tmp_path / "cri.sock"
    ids: Record = {"host_id": 100000, "container_id": 0, "length": 65536}
    mapped: Record = {"container_path": "/mapped", "host_path": str(tmp_path), "uidMappings": [ids]}
    mapped["gidMappings"] = mapped["uidMappings"]
    read_only: Record = {"container_path": "/ro", "host_path": str(tmp_path), "readonly": True}
    read_only["recursive_read_only"] = True
    image: Record = {"container_path": "/image", "image": {"image": IMAGE}, "readonly": True}
    container = container_config("app", IMAGE)
    container["mounts"] = [mapped, read_only, image]
    container["envs"] = [{"key": key, "value": value} for key, value in (("B", "MQ=="), ("A", "Mg=="), ("B", "Mw=="))]
    with (
        relay_process(listen, node.daemon.cri_socket, *limits.kernel(tmp_path)),
        node_process(tmp_path),
        Cri(listen, node.daemon.peer / "proto" / "cri.proto") as cri,
    ):
        decided_by(listen)
        sandbox, made = created(cri, node.noted("odd"), container, limits.UNKNOWN)
        spec = json.loads(node.record(made))["Spec"]
        remove_pod(cri, sandbox)

    mounts = {one["destination"]: one for one in spec["mounts"]}
    shown = [mounts[path] for path in ("/mapped", "/ro", "/image")]
    assert [one for one in spec["process"]["env"] if one[:2] in ("A=", "B=")] == ["B=1", "A=2", "B=3"]
    assert shown[0]["uidMappings"] == shown[0]["gidMappings"] == [{"containerID": 0, "hostID": 100000, "size": 65536}]
    assert "rro" in shown[1]["options"]
    assert "/image-volumes/" in shown[2]["source"]
    assert spec["linux"]["resources"]["unified"] == {"misc.max": "sgx_epc 8192"}


def test_a_daemon_behind_the_next_relay_knows_what_containerd_has(node: Node, tmp_path: Path) -> None:
    listen = tmp_path / "cri.sock"
    flags, proto, line = limits.kernel(tmp_path), node.daemon.peer / "proto" / "cri.proto", "sgx_epc 8192"
    with relay_process(listen, node.daemon.cri_socket, *flags) as relay, node_process(tmp_path):
        decided_by(listen)
        with Cri(listen, proto) as cri:
            sandbox, made = created(cri, node.noted("before"), container_config("app", IMAGE))
            assert node.told(made) == (line, 10)
        relay.kill()
        relay.wait(WAIT_S)
    update: Record = {"container_id": made, "linux": {"cpu_shares": 512, "unified": {"misc.max": "sgx_epc 4096"}}}
    with relay_process(listen, node.daemon.cri_socket, *flags), node_process(tmp_path), Cri(listen, proto) as cri:
        decided_by(listen)
        assert "relay=listed sandboxes=1 containers=1 by=v1" in (tmp_path / "node.log").read_text()
        why = people(listen, "explain", made).stdout
        cri.call("UpdateContainerResources", update)
        told, top = node.told(made), people(listen, "status", "--watch", "--times", "1").stdout
        with node.daemon.cri() as direct:
            remove_pod(direct, sandbox)
    assert "  Source: annotation epc-limit.nri.io/container.app." in why.splitlines()
    assert told == (line, 512)
    assert ["UpdateContainerResources", "1", "0", "1", "1", "0"] in [shown.split() for shown in top.splitlines()]


def test_prometheus_draws_what_is_decided_before_containerd(node: Node, tmp_path: Path) -> None:
    listen, port = tmp_path / "cri.sock", free_port()
    with (
        relay_process(listen, node.daemon.cri_socket, *limits.kernel(tmp_path)),
        node_process(tmp_path, "--set=limits.mode=observe", *metered(port)),
        Cri(listen, node.daemon.peer / "proto" / "cri.proto") as cri,
    ):
        decided_by(listen)
        with running_pod(node, cri, "seen"), prometheus(tmp_path, port) as server:
            for query in asked("nodeward_relay_decisions"):
                server.until(query)
        shown = scraped(port)
    assert shown['nodeward_relay_decisions_total{method="CreateContainer",outcome="allowed"}'] == 1.0
    assert 0 < shown['nodeward_relay_added_duration_seconds_sum{how="held"}'] < WAIT_S


def resolved(node: Node, folder: Path, name: str, attempt: int = 0) -> ResolvePullResponse:
    """Whose pull it is, by the node daemon's part beside that relay and containerd's own configuration."""
    etc = folder / "etc" / "containerd"
    etc.mkdir(parents=True, exist_ok=True)
    (etc / "config.toml").write_bytes((node.daemon.folder / "config.toml").read_bytes())
    pulls = PodPulls(Settings(run_dir=f"{folder}/run"), OsFiles(str(folder)), SystemClock(), Pods)
    asked = ResolvePullRequest("default", name, f"uid-{name}", attempt, "localhost/busybox:1")
    return asyncio.run(pulls.resolve(asked))


def test_each_pull_is_tied_to_its_sandbox_and_after_a_relays_restart_too(node: Node, tmp_path: Path) -> None:
    listen, place = tmp_path / "cri.sock", tmp_path / "run" / "relay.sock"
    proto = node.daemon.peer / "proto" / "cri.proto"
    chosen = ("--set", "podapi.enabled=true")

    def seen() -> PullsView:
        return asyncio.run(ask_pulls(str(place), WAIT_S))

    with images_served(node.daemon):
        with relay_process(listen, node.daemon.cri_socket, *chosen) as relay, Cri(listen, proto) as cri:
            wait_for(place.is_socket, "relay.sock")
            assert resolved(node, tmp_path, "pulls").state == "PENDING"
            pod = node.pod("pulls")
            sandbox = text(cri.call("RunPodSandbox", {"config": pod}), "pod_sandbox_id")
            ask: Record = {"image": {"image": "localhost/busybox:1"}, "sandbox_config": pod}
            got = text(cri.call("PullImage", ask, service="ImageService"), "image_ref")
            with pytest.raises(grpc.RpcError) as failed:
                cri.call("PullImage", ask | {"image": {"image": "localhost/nothing:1"}}, service="ImageService")
            first = seen()
            relay.kill()
            relay.wait(WAIT_S)
        with relay_process(listen, node.daemon.cri_socket, *chosen), Cri(listen, proto) as cri:
            wait_for(place.is_socket, "relay.sock")
            assert resolved(node, tmp_path, "pulls").state == "PENDING"
            cri.call("ListPodSandbox")
            again = resolved(node, tmp_path, "pulls")
            metadata: Record = {"name": "pulls", "uid": "uid-pulls", "namespace": "default", "attempt": 1}
            later = text(cri.call("RunPodSandbox", {"config": pod | {"metadata": metadata}}), "pod_sandbox_id")
            stale, new = resolved(node, tmp_path, "pulls"), resolved(node, tmp_path, "pulls", 1)
            for one in (sandbox, later):
                remove_pod(cri, one)
            assert resolved(node, tmp_path, "pulls", 1).state == "PENDING"

    code = failed.value.code().name
    assert [(one.name, one.attempt, one.image, one.status, one.image_ref) for one in first.pulls] == [
        ("pulls", 0, "localhost/busybox:1", "OK", got),
        ("pulls", 0, "localhost/nothing:1", code, ""),
    ]
    assert all(0 < one.began < one.ended for one in first.pulls)
    assert [(one.id, one.name, one.attempt) for one in first.sandboxes] == [(sandbox, "pulls", 0)]
    assert (again.state, again.sandbox, again.mode) == ("RESOLVED", sandbox, "HOST")
    assert again.mode_why == "handler runc starts no VM"
    assert (stale.state, stale.sandbox, stale.why) == ("STALE", sandbox, "attempt 1 of this pod exists")
    assert (new.state, new.sandbox) == ("RESOLVED", later)


@pytest.mark.nightly
def test_the_older_cri_of_an_older_containerd_passes_too() -> None:
    with a_containerd(release=OLD) as daemon:
        listen = daemon.folder / "cri.sock"
        with relay_process(listen, daemon.cri_socket):
            told = []
            for path in (listen, daemon.cri_socket):
                with grpc.insecure_channel(f"unix:{path}") as channel:
                    told.append(channel.unary_unary("/runtime.v1alpha2.RuntimeService/Version")(b"", timeout=WAIT_S))
            assert told[0] == told[1]
            assert OLD.version.encode() in told[0]
            assert OLD.version.encode() in without_slash(listen)
        assert "relayed calls Version=2" in log_of(listen)


def without_slash(path: Path) -> bytes:
    """What Version answers to a client that leaves out the first slash of its path. containerd 2.4 would refuse it."""
    end = StrictEnd(client=True)
    named = (b":path", b"runtime.v1.RuntimeService/Version")
    end.headers(1, [named if name == b":path" else (name, value) for name, value in request("Version")])
    end.data(1, message(b""), end=True)
    with socket_to(path) as link:
        while not end.streams[1].got_end:
            link.sendall(end.take())
            end.feed(link.recv(65_536))
    return bytes(end.streams[1].body)
