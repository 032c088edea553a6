"""Sizes of VMs by their pods' specs through the relay, and what the daemon tells of pods by it.

Daemon and relay are the real ones, on one `run_dir`; kubelet and runtime are grpcio's.
"""

import asyncio
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from nodeward.contracts import cri_pb2 as cri
from nodeward.neighbours.cri import relay_line
from nodeward.neighbours.cri.relay_socket import ask_pulls
from nodeward.people import client
from nodeward_sim.doubles.apiserver import ApiServer
from tests.component.relay import rig
from tests.component.relay.test_limits import call, runtime


def newer(peer: socket.socket) -> None:
    """A relay of a later version, which answers any line."""
    peer.makefile("rb").readline()
    peer.sendall(b'{"v":2,"pod":{"uid":"u"},"pulls":{"version":"9","pid":1}}\n')


CANARY = "c4n4ry"


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
        with rig.running([rig.NODEWARD, "node", "--config", self.settings], self.folder / "node.log", self.knows):
            yield

    @contextmanager
    def relay(self) -> Iterator[None]:
        with rig.relay_process(self.listen, self.folder / "runtime.sock", "--config", self.settings):
            rig.wait_for(rig.status_socket(self.listen).is_socket, "relay.sock")
            yield

    def decides(self) -> None:
        rig.wait_for(
            lambda: rig.log_of(self.listen).count("daemon=answers") > rig.log_of(self.listen).count("daemon=away"), "it"
        )

    def knows(self) -> bool:
        try:
            return b'"web"' in client.get("/v1/pods", f"{self.folder}/run/podapi.sock")
        except client.DaemonError:
            return False

    def section(self, name: str, **selector: str) -> dict[str, object]:
        asked = {"selector": selector, "fields": [name]}
        section = json.loads(client.podapi(f"{self.folder}/run/podapi.sock", "/v1/DescribePod", asked))[name]
        return {"from": section["source"], **(section["value"] or {})}

    def pulls(self) -> tuple[list[tuple[str, ...]], str]:
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
        with rig.client_of(self.listen) as channel, rig.client_of(images or self.listen) as puller:
            call(channel, "RunPodSandbox", run.SerializeToString())
            puller.unary_unary("/runtime.v1.ImageService/PullImage")(pull.SerializeToString(), timeout=rig.WAIT_S)
        shown = rig.people(self.listen, "status", "-o", "json")
        return str(json.loads(shown.stdout)["sizing"]["last"])


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
            with rig.runtime_at(folder / "runtime.sock", pulled):
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
            node.decides()
            said = node.start()
            assert "cpu_m 0 -> 2000 (the request of the pod as a whole is 2000m)" in said
            assert f"memory 0 -> {512 << 20} (the limit of the pod as a whole is {512 << 20} bytes)" in said

    play(tmp_path, tale, {"requests": {"cpu": "2", "memory": "256Mi"}, "limits": {"memory": "512Mi"}})


def test_pulls_are_told_while_a_relay_answers_and_why_not_else(tmp_path: Path) -> None:
    def tale(node: Node) -> None:
        run = node.folder / "run"
        with node.daemon():
            with node.relay():
                node.decides()
                assert "memory 0 -> 67108864" in node.start()
                pull = ("reg.io/app:1", "s1", "OK", "sha256:host")
                assert node.pulls() == ([pull], "")
            away = f"no relay answers at {run}/relay.sock; only a relay before the runtime sees pulls"
            assert node.pulls() == ([], away)
            with rig.in_its_place(run / relay_line.SOCKET, newer):
                pulls, why = node.pulls()
            assert (pulls, "version 2 is not known" in why) == ([], True)
        assert CANARY not in rig.log_of(node.listen) + (node.folder / "node.log").read_text()

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
                rig.wait_for(lambda: known() == "s1", "the sandbox by the relay")
                found = node.section("identity", sandbox="s1")
                assert (found["uid"], found["handler"]) == ("u", "kata")
                assert str(found["from"]).endswith(", and the relay")
                report = {"sandbox": "s1", "vcpus": 2}
                assert json.loads(client.podapi(socket, "/v1/ReportSandbox", report))["known"]
                listed = json.loads(client.get("/v1/pods", socket))
                assert [(one["name"], one["sandbox"]) for one in listed] == [("web", "s1")]
            rig.wait_for(lambda: not known(), "no sandbox without the relay")
            with pytest.raises(client.DaemonError, match="no such pod"):
                node.section("identity", sandbox="s1")
            with node.relay():
                assert not known()
                node.start()
                rig.wait_for(lambda: known() == "s1", "the sandbox by the next relay")
                size = node.section("size", sandbox="s1")
                assert (size["from"], size["vcpus"]) == ("ReportSandbox", 2)

    play(tmp_path, tale)


def test_pulls_of_an_image_service_of_its_own_are_tied_to_the_runtimes_sandboxes(tmp_path: Path) -> None:
    listen, doors = tmp_path / "cri.sock", [tmp_path / f"{name}.sock" for name in ("images", "behind")]
    flags = [f"relay.image_listen={doors[0]}", f"relay.image={doors[1]}", "podapi.enabled=true"]
    sets = [word for flag in flags for word in ("--set", flag)]
    runtimes = (rig.runtime_at(tmp_path / "runtime.sock", pulled), rig.runtime_at(doors[1], pulled))
    with runtimes[0], runtimes[1], rig.relay_process(listen, tmp_path / "runtime.sock", *sets):
        rig.wait_for(rig.status_socket(listen).is_socket, "relay.sock")
        Node(tmp_path, "").start(doors[0])
        seen = asyncio.run(ask_pulls(str(rig.status_socket(listen)), rig.WAIT_S))
    assert [(one.name, one.status) for one in seen.pulls] == [("web", "OK")]
    assert [(one.name, one.id) for one in seen.sandboxes] == [("web", "s1")]
