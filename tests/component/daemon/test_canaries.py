"""No planted secret leaves a running daemon: a canary in every field of a pod, at the API server and at the runtime."""

import asyncio
import contextlib
import json
import logging
import os
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, cast
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from nodeward.app.host.core import Core
from nodeward.app.node import podapi
from nodeward.cli import client, main
from nodeward.doubles.apiserver import ApiServer
from nodeward.doubles.runtime import SimContainer, SimPod
from nodeward.model.podapi import SECTIONS
from nodeward.model.settings import HookSection, KubeSection, MetricsSection, PodapiSection, RecordSection, Settings
from nodeward.proto import podapi_pb2
from nodeward.transport.grpc_unix import GrpcClient
from tests.component.daemon.rig import EPC, ROOT, STATE, WITHIN_S, Rig, rig
from tests.component.daemon.test_metrics import port
from tests.pod_fields import Planted
from tests.unit.wire.test_pod_redaction import SHOWN

SECRET = "s3cr3t"
"""What the runtime is told, where the API server's is a canary with a number."""
OF_STATUS = {
    f"status.{kind}[].{name}"
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    for name in ("name", "containerID")
}
"""The daemon matches containers by their names and ids."""


def planted() -> Planted:
    """A pod of this node, whose container `app` declares EPC."""
    found = Planted()
    pod: Any = found.pod
    pod["metadata"] |= {"name": "web", "namespace": "shop", "uid": "u1"}
    pod["spec"]["nodeName"] = "n1"
    pod["spec"]["containers"][0] |= {"name": "app", "resources": {"limits": {"sgx.intel.com/epc": "4096"}}}
    pod["newField"] = {"deep": [pod["status"]["message"]]}
    return found


async def refused_charge(node: Rig) -> None:
    """The pod with secrets for the runtime, one of whose charges is refused: that is a Kubernetes Event."""
    notes = {"a": SECRET, "nodeward.io/other": SECRET}
    sandbox = await node.runtime.run_pod(SimPod("u1", "web", "shop", annotations=notes, labels={"l": SECRET}))
    asked = SimContainer("app", args=(SECRET,), env=(f"PASSWORD={SECRET}",), annotations={"c": SECRET})
    made = await node.runtime.create_container(sandbox, asked)
    await node.runtime.start(made)
    path = f"/kubepods/podu1/{made}"
    await node.until_state(path, "enforced")
    with node.files.lock, contextlib.suppress(OSError):
        node.kernel.charge(f"{ROOT}{path}", EPC, 5000)


async def test_no_canary_leaves_a_daemon(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    cores, left, pod = list[Core](), dict[str, bytes](), planted()

    class Noted(podapi.Specs):
        def __init__(self, core: Core, *more: Any) -> None:
            cores.append(core)
            super().__init__(core, *more)

    monkeypatch.setattr(podapi, "Specs", Noted)

    def command(socket: Path, *words: str) -> None:
        said = CliRunner().invoke(main.cli, [*words, "--socket", str(socket)])
        left[" ".join(words)] = said.output.encode() + repr(said.exception).encode()

    async def tale(node: Rig, server: ApiServer, metrics: int) -> None:
        run_dir = node.folder / "run"
        await refused_charge(node)
        while not server.events:
            await asyncio.sleep(0.02)
        left["events"] = json.dumps(list(server.events.values())).encode()
        for path in ("/v1/pods", "/v1/pods/shop/web", "/v1/pods/shop/web?fields=spec"):
            left[path] = await asyncio.to_thread(client.get, path, str(run_dir / "podapi.sock"))
        asked = podapi_pb2.DescribePodRequest(selector={"namespace": "shop", "name": "web"}, fields=SECTIONS)
        over_grpc = GrpcClient(str(run_dir / "podapi-grpc.sock"))
        of_size = podapi_pb2.ComputeSizeRequest(selector=asked.selector)
        for name, request in {"DescribePod": asked, "ComputeSize": of_size}.items():
            path = f"/nodeward.podapi.v1.PodApi/{name}"
            left[path] = await over_grpc.call(path, request.SerializeToString(), WITHIN_S)
        await over_grpc.close()
        left["decisions"] = await asyncio.to_thread(client.get, "/v1/decisions", str(run_dir / "nodeward.sock"))
        assert b"shop/web" in left["decisions"]
        for what in ("shop/web", "shop/web/app"):
            await asyncio.to_thread(command, run_dir / "nodeward.sock", "explain", what)
        for name in ("status", "sandboxes", "top --times 1 -o json", "status -o json"):
            await asyncio.to_thread(command, run_dir / "nodeward.sock", *name.split())
        await asyncio.to_thread(command, run_dir / "podapi.sock", "pod", "shop/web", "--spec")
        bundle, off = node.folder / "bundle.tar.gz", ("--set", "kube.enabled=false")
        await asyncio.to_thread(command, run_dir / "nodeward.sock", "doctor", *off, "--bundle", str(bundle))
        with tarfile.open(bundle) as packed:
            for member in filter(tarfile.TarInfo.isfile, packed):
                left[member.name] = cast(IO[bytes], packed.extractfile(member)).read()
        left["metrics"] = await asyncio.to_thread(lambda: urlopen(f"http://127.0.0.1:{metrics}/metrics").read())
        left["state"] = repr(cores[0].state).encode()

    async with ApiServer() as server:
        server.add_pod(pod.pod)

        def with_all(settings: Settings) -> Settings:
            return replace(
                settings,
                kube=KubeSection(url=server.url),
                node_name="n1",
                podapi=PodapiSection(True, uids=(os.getuid(),)),
                record=RecordSection(f"{STATE}/record"),
                metrics=MetricsSection(enabled=True, listen="127.0.0.1:0"),
                hook=HookSection(True, str(tmp_path / "run")),
            )

        async with rig(tmp_path, change=with_all) as node:
            await tale(node, server, await port(caplog))
            await node.stop()
            for folder in (STATE, str(tmp_path / "run"), str(tmp_path / "run" / "pods")):
                for name in node.files.listdir(folder):
                    with contextlib.suppress(IsADirectoryError):
                        left[f"{folder}/{name}"] = node.files.read(f"{folder}/{name}", 1 << 24)
    left["log"] = caplog.text.encode()
    assert pod.found_in(left["state"]) >= {"spec.initContainers[].name", "status.containerStatuses[].containerID"}
    assert {"record", "pods.json", "hook.json", "u1.json", "findings.json", "status.json"} <= {
        name.rpartition("/")[2] for name in left
    }
    leaks: Mapping[str, set[str]] = {name: pod.found_in(one) - SHOWN - OF_STATUS for name, one in left.items()}
    assert {name: paths for name, paths in leaks.items() if paths} == {}
    assert [name for name, one in left.items() if SECRET.encode() in one] == []
