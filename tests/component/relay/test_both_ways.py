"""Facts go both ways between relay and node daemon, two processes; either may be away, or of another version.

The API server is the double; kubelet and runtime are grpcio's.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from nodeward.app.node.pod_facts import SOCKET as FACTS
from nodeward.cli import client
from nodeward.doubles.apiserver import ApiServer
from nodeward.edges.local.relay_line import ask_pulls
from nodeward.proto import cri_pb2 as cri
from nodeward.wire import relay_line
from tests.component.relay.rig import WAIT_S, client_of, log_of, relay_process, runtime_at, wait_for
from tests.component.relay.test_facts import answering
from tests.component.relay.test_limits import call, runtime
from tests.component.relay.test_status import status, status_socket

CANARY = "c4n4ry"
NEWER = b'{"v":2,"pod":{"uid":"u"},"pulls":{"version":"9","pid":1}}\n'


@dataclass(slots=True)
class Node:
    """Settings that both share, and what a user sees of each."""

    folder: Path
    url: str
    nri: str = ""
    """More of the settings of `nri`."""

    @property
    def listen(self) -> Path:
        return self.folder / "cri.sock"

    @property
    def settings(self) -> str:
        path = self.folder / "nodeward.yaml"
        podapi = f"podapi: {{enabled: true, uids: [{os.getuid()}]}}\n"
        kube = f"node_name: n1\nkube: {{url: '{self.url}'}}\nnri: {{socket: '{self.folder}/nri.sock'{self.nri}}}\n"
        folders = f"run_dir: {self.folder}/run\nstate_dir: {self.folder}/state\ncgroups: {{root: {self.folder}}}\n"
        path.write_text(f"{folders}{podapi}{kube}sizing: {{mode: enforce, handlers: [kata]}}\n")
        return str(path)

    @contextmanager
    def daemon(self) -> Iterator[None]:
        """`nodeward node`, once it knows the pod."""
        program = str(Path(sys.executable).parent / "nodeward")
        with (self.folder / "node.log").open("a") as log:
            process = subprocess.Popen([program, "node", "--config", self.settings], stderr=log)
        try:
            wait_for(self.knows, "the pod in the Pod API")
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(WAIT_S)

    @contextmanager
    def relay(self) -> Iterator[None]:
        with relay_process(self.listen, self.folder / "runtime.sock", "--config", self.settings):
            wait_for(status_socket(self.listen).is_socket, "relay.sock")
            yield

    def knows(self) -> bool:
        try:
            return b'"web"' in client.get("/v1/pods", f"{self.folder}/run/podapi.sock")
        except client.DaemonError:
            return False

    def section(self, name: str, **selector: str) -> dict[str, object]:
        """A section of the pod by DescribePod, its value beside its source."""
        asked = {"selector": selector, "fields": [name]}
        section = json.loads(client.podapi(f"{self.folder}/run/podapi.sock", "/v1/DescribePod", asked))[name]
        return {"from": section["source"], **(section["value"] or {})}

    def pulls(self) -> tuple[list[tuple[str, ...]], str]:
        """What the Pod API says of the pod's pulls, and why it is not all."""
        described = client.get("/v1/pods/shop/web?fields=spec", f"{self.folder}/run/podapi.sock")
        assert CANARY.encode() not in described
        section = json.loads(described)["pulls"]
        assert section["complete"] is (not section["why"])
        names = ("image", "sandbox", "status", "image_ref")
        return [tuple(row[name] for name in names) for row in section["value"]["host"]], section["why"]

    def start(self, images: Path | None = None) -> str:
        """Kubelet starts the pod and pulls its image, from `images` where that is another socket; what the relay says
        of the VM's size."""
        config = cri.PodSandboxConfig(annotations={"a": CANARY})
        config.metadata.CopyFrom(cri.PodSandboxMetadata(name="web", uid="u", namespace="shop"))
        config.linux.resources.cpu_shares = 307
        run = cri.RunPodSandboxRequest(config=config, runtime_handler="kata")
        pull = cri.PullImageRequest(auth=cri.AuthConfig(password=CANARY), sandbox_config=config)
        pull.image.image = "reg.io/app:1"
        with client_of(self.listen) as channel, client_of(images or self.listen) as puller:
            call(channel, "RunPodSandbox", run.SerializeToString())
            puller.unary_unary("/runtime.v1.ImageService/PullImage")(pull.SerializeToString(), timeout=WAIT_S)
        return status(self.listen).sizing.last


def pulled(name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
    if name == "PullImage":
        return cri.PullImageResponse(image_ref="sha256:host").SerializeToString()
    return runtime(name, request, context)


def play(folder: Path, tale: Callable[[Node], None], whole: dict[str, dict[str, str]] | None = None) -> None:
    """Plays it beside an API server that has the pod; `whole`: what it asks as a whole."""
    resources = {"requests": {"cpu": "300m", "memory": "64Mi"}}
    app = {"name": "app", "image": "reg.io/app:1", "resources": resources}
    pod = {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
        "spec": {"nodeName": "n1", "containers": [app], "resources": whole or {}},
    }

    async def story() -> None:
        async with ApiServer() as server:
            server.add_pod(pod)
            with runtime_at(folder / "runtime.sock", pulled):
                await asyncio.to_thread(tale, Node(folder, server.url))

    asyncio.run(story())


def test_what_a_pod_asks_as_a_whole_sizes_its_vm_before_it_has_a_sandbox(tmp_path: Path) -> None:
    def tale(node: Node) -> None:
        with node.daemon(), node.relay():
            totals = node.section("totals", uid="u")
            assert (totals["cpu_request_m"], totals["memory_limit"]) == (2000, 512 << 20)
            asked = {"selector": {"namespace": "shop", "name": "web"}}
            size = json.loads(client.podapi(f"{node.folder}/run/podapi.sock", "/v1/ComputeSize", asked))
            assert (size["cpu_m"], size["memory"]) == (2000, 512 << 20)
            said = node.start()
            assert "cpu_m 0 -> 2000 (the request of the pod as a whole is 2000m)" in said
            assert f"memory 0 -> {512 << 20} (the limit of the pod as a whole is {512 << 20} bytes)" in said

    play(tmp_path, tale, {"requests": {"cpu": "2", "memory": "256Mi"}, "limits": {"memory": "512Mi"}})


def test_each_says_what_the_other_told_and_when_it_is_away_or_another_version(tmp_path: Path) -> None:
    def tale(node: Node) -> None:
        run = node.folder / "run"
        with node.daemon():
            with node.relay():
                assert "memory 0 -> 67108864" in node.start()
                pull = ("reg.io/app:1", "s1", "OK", "sha256:host")
                assert node.pulls() == ([pull], "")
            away = f"no relay answers at {run}/relay.sock; only a relay before the runtime sees pulls"
            assert node.pulls() == ([], away)
            with answering(run / relay_line.SOCKET, lambda _: NEWER):
                pulls, why = node.pulls()
            assert (pulls, "version 2 is not known" in why) == ([], True)
        with node.relay():
            assert "no node daemon told" in node.start()
            with answering(run / FACTS, lambda _: NEWER):
                told = node.start()
            assert "version 2 is not known" in told
            assert "memory 0 ->" not in told
        assert CANARY not in log_of(node.listen) + (node.folder / "node.log").read_text()

    play(tmp_path, tale)


def test_without_nri_the_pod_api_knows_sandboxes_by_the_relay(tmp_path: Path) -> None:
    """What a runtime has reported of its sandbox outlives a restart of the relay."""

    def tale(given: Node) -> None:
        node = Node(given.folder, given.url, ", enabled: false")
        socket = f"{node.folder}/run/podapi.sock"

        def known() -> object:
            return node.section("identity", uid="u")["sandbox"]

        with node.daemon():
            with node.relay():
                node.start()
                wait_for(lambda: known() == "s1", "the sandbox by the relay")
                found = node.section("identity", sandbox="s1")
                assert (found["uid"], found["handler"]) == ("u", "kata")
                assert str(found["from"]).endswith(", and the relay")
                report = {"sandbox": "s1", "vcpus": 2}
                assert json.loads(client.podapi(socket, "/v1/ReportSandbox", report))["known"]
                listed = json.loads(client.get("/v1/pods", socket))
                assert [(one["name"], one["sandbox"]) for one in listed] == [("web", "s1")]
            wait_for(lambda: not known(), "no sandbox without the relay")
            with pytest.raises(client.DaemonError, match="no such pod"):
                node.section("identity", sandbox="s1")
            with node.relay():
                assert not known()
                node.start()
                wait_for(lambda: known() == "s1", "the sandbox by the next relay")
                size = node.section("size", sandbox="s1")
                assert (size["from"], size["vcpus"]) == ("ReportSandbox", 2)

    play(tmp_path, tale)


def test_pulls_of_an_image_service_of_its_own_are_tied_to_the_runtimes_sandboxes(tmp_path: Path) -> None:
    listen, doors = tmp_path / "cri.sock", [tmp_path / f"{name}.sock" for name in ("images", "behind")]
    flags = [f"relay.image_listen={doors[0]}", f"relay.image={doors[1]}", "podapi.enabled=true"]
    sets = [word for flag in flags for word in ("--set", flag)]
    runtimes = (runtime_at(tmp_path / "runtime.sock", pulled), runtime_at(doors[1], pulled))
    with runtimes[0], runtimes[1], relay_process(listen, tmp_path / "runtime.sock", *sets):
        wait_for(status_socket(listen).is_socket, "relay.sock")
        Node(tmp_path, "").start(doors[0])
        seen = asyncio.run(ask_pulls(str(status_socket(listen)), WAIT_S))
    assert [(one.name, one.status) for one in seen.pulls] == [("web", "OK")]
    assert [(one.name, one.id) for one in seen.sandboxes] == [("web", "s1")]
