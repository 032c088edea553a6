"""The daemon's /metrics, and as exporter alone, which touches nothing of the host; and that no planted secret
leaves it."""

import asyncio
import contextlib
import json
import logging
import os
import re
import socket
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, cast
from urllib.request import urlopen

import pytest
import yaml
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from nodeward.cli import main
from nodeward.contracts import podapi_pb2
from nodeward.core.modes import Mode
from nodeward.features.podapi import wiring
from nodeward.features.podapi.rows import SECTIONS
from nodeward.features.podapi.settings import PodapiSection
from nodeward.features.root import State
from nodeward.features.settings import HookSection, KubeSection, MetricsSection, RecordSection, Settings
from nodeward.host.clock import SystemClock
from nodeward.host.hostfs import ensure_folder
from nodeward.host.runner import Core
from nodeward.people import client
from nodeward.people.rows import HEALTH
from nodeward.programs.node import run as node
from nodeward.settings import load as settings
from nodeward_sim.doubles.apiserver import ApiServer
from nodeward_sim.doubles.kernel import SimKernel
from nodeward_sim.doubles.runtime import SimContainer, SimPod
from tests.component.daemon.rig import EPC, ROOT, STATE, WITHIN_S, Rig, TroubledFiles, changed, rig
from tests.component.kubelet.node import called
from tests.component.kubernetes.support import pod
from tests.pod_fields import Planted
from tests.rigs.stories import under_way
from tests.unit.formats.test_pod_redaction import SHOWN
from tests.unit.people.metrics.build import untold

with_metrics = changed(metrics=MetricsSection(enabled=True, listen="127.0.0.1:0"))


async def port(caplog: pytest.LogCaptureFixture) -> int:
    async with asyncio.timeout(WITHIN_S):
        while not (lines := [line for line in caplog.messages if line.startswith("metrics=served")]):
            await asyncio.sleep(0.02)
    return int(lines[-1].rpartition("=")[2])


async def scraped(at: int) -> set[str]:
    def read() -> str:
        with urlopen(f"http://127.0.0.1:{at}/metrics", timeout=WITHIN_S) as answer:
            body: bytes = answer.read(1 << 24)
        return body.decode()

    text = await asyncio.to_thread(read)
    assert untold(text) == []
    return {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}


async def test_every_counter_of_the_daemon_is_a_metric(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nodeward")

    async with rig(tmp_path, change=with_metrics) as node:
        await node.pod("a")
        health = await node.health()
        assert health
        named = re.compile("|".join(re.sub("{.*?}", "[a-z-]+", name) for name in HEALTH))
        assert [name for name in health if not named.fullmatch(name)] == []
        assert "nodeward_loop_lag_max_seconds" in await scraped(await port(caplog))


async def test_an_address_that_is_held_is_told_with_its_setting_and_served_once_it_is_free(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        listen = f"127.0.0.1:{holder.getsockname()[1]}"
        taken = MetricsSection(enabled=True, listen=listen)
        async with rig(tmp_path, change=changed(metrics=taken)) as node:
            said = f"metrics.listen {listen}: Address already in use; choose another, or stop who holds it"
            await node.until_source("metrics", False, said)
            assert f"component=metrics failed=ListenError error={said}" in caplog.messages
            await node.until_state(await node.pod("a"), "enforced")
            await node.until_ready()
            holder.close()
            await node.until_source("metrics", True, f"served at {listen}")


MANIFEST = Path(__file__).resolve().parents[3] / "deploy/exporter/settings.yaml"
CONTAINER = "c" * 64


class Watched(TroubledFiles):
    def __init__(self, kernel: SimKernel) -> None:
        super().__init__(kernel)
        self.changed: list[str] = []

    def _count(self, name: str, path: str) -> None:
        if name in ("write", "append", "replace", "mkdir", "rmdir", "unlink"):
            self.changed.append(path)


def shipped(folder: Path, url: str, mode: Mode) -> Settings:
    file = folder / "nodeward.yaml"
    file.write_text(yaml.safe_load(MANIFEST.read_text())["data"]["nodeward.yaml"])
    found = settings.load(str(file), {})
    return replace(
        found,
        node_name="n1",
        run_dir=str(folder / "run"),
        kube=replace(found.kube, url=url),
        cgroups=replace(found.cgroups, root=ROOT, period_s=0.1),
        limits=replace(found.limits, mode=mode),
        metrics=replace(found.metrics, listen="127.0.0.1:0"),
    )


async def used(folder: Path) -> dict[str, int]:
    with suppress(client.DaemonError):
        body = await asyncio.to_thread(client.get, "/v1/status", str(folder / "run" / "nodeward.sock"))
        return {
            f"{row['namespace']}/{row['pod']}/{row['container']}": one["usage"]
            for row in json.loads(body)["rows"]
            for one in row["resources"]
            if row["container"] and one["usage"] is not None
        }
    return {}


@pytest.mark.parametrize(("mode", "touches"), [(Mode.OBSERVE, False), (Mode.ENFORCE, True)], ids=str)
async def test_the_exporter_shows_what_a_container_uses_and_changes_no_file_of_the_host(
    tmp_path: Path, mode: Mode, touches: bool
) -> None:
    """No call that changes anything goes below the cgroup root; the same daemon in enforce is what such calls look
    like."""
    kernel = SimKernel({EPC: 1 << 30})
    ensure_folder(kernel, STATE)
    path = f"{ROOT}/kubepods/podu-web"
    kernel.make_cgroup(f"{path}/{CONTAINER}")
    for above in (ROOT, f"{ROOT}/kubepods", path):
        kernel.write(f"{above}/cgroup.subtree_control", b"+misc")
    kernel.charge(f"{path}/{CONTAINER}", EPC, 4096)
    files = Watched(kernel)
    (tmp_path / "run").mkdir()
    async with ApiServer() as server:
        status = {"containerStatuses": [{"name": "c", "containerID": f"containerd://{CONTAINER}"}]}
        server.add_pod({**pod("web"), "status": status})
        async with under_way(node.run(shipped(tmp_path, server.url, mode), files, SystemClock())):
            while await used(tmp_path) != {"default/web/c": 4096}:
                await asyncio.sleep(0.05)
            while touches and not any(path.startswith(ROOT) for path in files.changed):
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.5)  # some more passes of the sampler
    assert any(path.startswith(ROOT) for path in files.changed) is touches, files.changed
    assert any(path.startswith(STATE) for path in files.changed)


SECRET = "s3cr3t"
"""What the runtime is told, where the API server's is a canary with a number."""
OF_STATUS = {
    f"status.{kind}[].{name}"
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    for name in ("name", "containerID")
}
"""The daemon matches containers by their names and ids."""


def planted() -> Planted:
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
    with contextlib.suppress(OSError):
        node.kernel.charge(f"{ROOT}{path}", EPC, 5000)


async def test_no_canary_leaves_a_daemon(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    cores, left, pod = list[Core[State]](), dict[str, bytes](), planted()

    class Noted(wiring.Specs):
        def __init__(self, core: Core[State], *more: Any) -> None:
            cores.append(core)
            super().__init__(core, *more)

    monkeypatch.setattr(wiring, "Specs", Noted)

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
        of_size = podapi_pb2.ComputeSizeRequest(selector=asked.selector)
        for name, request in {"DescribePod": asked, "ComputeSize": of_size}.items():
            path = f"/nodeward.podapi.v1.PodApi/{name}"
            left[path] = await called(run_dir / "podapi-grpc.sock", path, request.SerializeToString())
        left["decisions"] = await asyncio.to_thread(client.get, "/v1/decisions", str(run_dir / "nodeward.sock"))
        assert b"shop/web" in left["decisions"]
        for what in ("shop/web", "shop/web/app"):
            await asyncio.to_thread(command, run_dir / "nodeward.sock", "explain", what)
        for name in ("status", "vms", "status --watch --times 1 -o json", "status -o json"):
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
