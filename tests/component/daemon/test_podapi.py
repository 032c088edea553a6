"""The Pod API of a running daemon with an API server: what it answers, whom it refuses, and that no secret leaves."""

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nodeward.cli.pod import command
from nodeward.features.podapi import wiring
from nodeward.features.podapi.door.messages import SERVICE
from nodeward.features.podapi.effects import answers
from nodeward.features.podapi.settings import PodapiSection
from nodeward.features.settings import KubeSection, RecordSection, Settings
from nodeward.people import client
from nodeward_sim.doubles.apiserver import ApiServer
from nodeward_sim.doubles.kube_refusals import Json
from nodeward_sim.doubles.runtime import SimPod
from tests.component.daemon.rig import STATE, WITHIN_S, Rig, rig
from tests.component.kubernetes.support import until

CANARY = "c4n4ry"
PRINTED = (
    "identity  (the pod's spec in the API server)\n  namespace: shop\n  name: web\n",
    "  - name: app\n    role: container\n    cpu_request: 3 CPUs\n    cpu_limit: none\n",
    "gate  (the node daemon's gates)\n  incomplete: gate.mode is off\n",
    "- name: PASSWORD\n            value: withheld (env)\n",
)


def pod(uid: str = "u1", **spec: object) -> Json:
    container: dict[str, object] = {
        "name": "app",
        "image": "reg.io/app:1",
        "args": [CANARY],
        "env": [{"name": "PASSWORD", "value": CANARY}],
        "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": CANARY}]}},
        "resources": {"requests": {"cpu": "3"}},
    }
    volumes = [{"name": "v", "csi": {"driver": "d.io", "volumeAttributes": {"token": CANARY}}}]
    return {
        "metadata": {"name": "web", "namespace": "shop", "uid": uid, "annotations": {"a": CANARY}},
        "spec": {
            "nodeName": "n1",
            "containers": [container],
            "volumes": volumes,
            "imagePullSecrets": [{"name": CANARY}],
            "newField": {"deep": [CANARY]},
            **spec,
        },
    }


POD = pod()


@asynccontextmanager
async def serving(
    folder: Path, uid: int | None = None, pod: Json = POD, nri: bool = True
) -> AsyncIterator[tuple[Rig, ApiServer, str]]:
    async with ApiServer() as server:
        server.add_pod(pod)
        server.nfd.nodes["n1"] = {"status": {"allocatable": {"cpu": "3500m"}}}

        def with_api(settings: Settings) -> Settings:
            kube, served = KubeSection(url=server.url), PodapiSection(True, uids=(os.getuid() if uid is None else uid,))
            record, told = RecordSection(f"{STATE}/record"), replace(settings.nri, enabled=nri)
            return replace(settings, kube=kube, node_name="n1", podapi=served, record=record, nri=told)

        async with rig(folder, change=with_api) as node:
            socket = str(folder / "run" / "podapi.sock")
            await node.until(lambda view: Path(socket).exists() and view.get("ready"))
            yield node, server, socket


async def get(path: str, socket: str) -> bytes:
    return await asyncio.to_thread(client.get, path, socket)


async def described(socket: str, name: str = "web") -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(await get(f"/v1/pods/shop/{name}?fields=spec", socket))
    return found


async def test_a_pod_is_described_without_its_secrets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async with serving(tmp_path) as (node, server, socket):
        reads = "/api/v1/namespaces/shop/pods/web"
        paths = ("/v1/pods", "/v1/pods/shop/web?fields=spec", "/v1/pods/shop/web")
        bodies = await asyncio.gather(*(get(path, socket) for path in paths * 8))
        said = await described(socket)
        amounts = {"cpu_request_m": 3000, "cpu_limit_m": 0, "memory_request": 0, "memory_limit": 0}
        assert said["containers"]["value"] == [{"name": "app", "role": "container", **amounts, "declared": {}}]
        images = [{"container": "app", "image": "reg.io/app:1", "host": [], "guest": []}]
        assert said["images"]["value"] == images
        assert "no relay answers at" in str(said["pulls"]["why"])
        assert "'name': 'v', 'kind': 'csi'" in str(said["volumes"]["value"])
        assert said["spec"]["complete"]
        assert "newField" in json.dumps(said["spec"])
        assert len([path for path in server.requests if path.startswith(reads)]) == 1
        shown = await asyncio.to_thread(CliRunner().invoke, command, ["shop/web", "--spec", "--socket", socket])
        assert shown.exit_code == 0
        for line in PRINTED:
            assert line in shown.output, shown.output
        listed = await asyncio.to_thread(CliRunner().invoke, command, ["--list", "--socket", socket])
        assert [line.split()[:3] for line in listed.output.splitlines()] == [
            ["NAMESPACE", "NAME", "UID"],
            ["shop", "web", "u1"],
        ]
        await node.stop()
        kept = [node.files.read(f"{STATE}/{name}", 1 << 24) for name in node.files.listdir(STATE)]
        assert any(b"web" in one for one in kept)
        assert CANARY.encode() not in b"".join([*bodies, *kept, shown.output.encode(), caplog.text.encode()])


async def watch_is_behind(server: ApiServer) -> None:
    server.faults.silent_watches = True
    server.kill_watches()
    asked = len(server.requests)
    await until(lambda: any("watch=" in path for path in server.requests[asked:]), "another watch")


async def test_a_name_taken_over_never_gets_the_old_pods_spec(tmp_path: Path) -> None:
    """Also while the watch has not told yet of the new pod."""
    async with serving(tmp_path) as (_, server, socket):
        assert '"uid": "u1"' in json.dumps((await described(socket))["spec"])
        server.delete_pod("shop", "web")
        server.add_pod(pod("u2"))
        while b'"u2"' not in await get("/v1/pods", socket):
            await asyncio.sleep(0.02)
        await watch_is_behind(server)
        server.delete_pod("shop", "web")
        server.add_pod(pod("u3"))
        said = await described(socket)
        assert '"uid": "u2"' in json.dumps(said["identity"])
        assert "another pod has this name" in str(said["spec"]["why"])
        assert (said["spec"]["value"], "u1" in json.dumps(said)) == (None, False)


def mirror(uid: str, of: str) -> Json:
    notes = {"kubernetes.io/config.hash": of, "kubernetes.io/config.mirror": of}
    return {**pod(), "metadata": {"name": "web-n1", "namespace": "shop", "uid": uid, "annotations": notes}}


async def test_a_static_pods_spec_is_its_mirrors_also_of_one_made_anew(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, server, socket):
        server.add_pod(mirror("m1", "hash"))
        while b'"uid":"hash"' not in await get("/v1/pods", socket):
            await asyncio.sleep(0.02)
        await watch_is_behind(server)
        for uid, of, fits in (("m2", "other", False), ("m3", "hash", True)):
            server.delete_pod("shop", "web-n1")
            server.add_pod(mirror(uid, of))
            spec = (await described(socket, "web-n1"))["spec"]
            assert ("another pod has this name" not in str(spec["why"])) is fits


async def test_each_change_is_read_anew_and_no_read_from_before_it_is_shown(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, server, socket):

        async def told(name: str) -> None:
            while f'"name":"{name}"'.encode() not in await get("/v1/pods/shop/web", socket):
                await asyncio.sleep(0.01)

        for name, more in (("big", "x" * (5 << 19)), ("small", "")):
            before = len(server.requests)
            server.update_pod(pod(containers=[{"name": name}], newField=more))
            await told(name)
            asking = asyncio.create_task(described(socket))
            while "/api/v1/namespaces/shop/pods/web" not in server.requests[before:]:
                await asyncio.sleep(0)
            if more:
                server.update_pod(pod(containers=[{"name": "next"}]))
                await told("next")
                assert '"next"' in json.dumps((await described(socket))["spec"])
            await asking
        metadata = {"name": "web", "namespace": "shop", "uid": "u1", "annotations": {"other": CANARY}}
        server.update_pod({**pod(containers=[{"name": "small"}]), "metadata": metadata})
        while '"other"' not in json.dumps((await described(socket))["spec"]):
            await asyncio.sleep(0.02)


async def test_without_the_api_server_or_with_too_large_a_pod_the_spec_is_incomplete(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, server, socket):
        server.faults.refuse.extend([503] * 2)
        spec = (await described(socket))["spec"]
        assert (spec["complete"], spec["value"]) == (False, None)
        assert "503" in str(spec["why"])
        server.faults.refuse.clear()
        server.update_pod(pod(newField="x" * (3 << 20)))
        assert "more than 3145728 bytes" in str((await described(socket))["spec"]["why"])
        server.update_pod(pod())
        while not (await described(socket))["spec"]["complete"]:
            await asyncio.sleep(0.02)
        server.add_pod({**pod("u9"), "metadata": {"name": "unread", "namespace": "shop", "uid": "u9"}})
        while b'"u9"' not in await get("/v1/pods", socket):
            await asyncio.sleep(0.02)
        await server.stop()
        while (spec := (await described(socket))["spec"])["complete"]:
            await asyncio.sleep(0.02)
        assert "does not answer" in str(spec["why"])
        assert spec["value"] is not None
        unread, its = (await described(socket, "unread"))["spec"], (await described(socket, "unread"))["identity"]
        assert (unread["complete"], unread["value"], its["value"]["uid"]) == (False, None, "u9")


async def post(method: str, request: dict[str, object], socket: str) -> dict[str, object]:
    body = await asyncio.to_thread(client.get, f"/v1/{method}", socket, "POST", json.dumps(request).encode())
    found: dict[str, object] = json.loads(body)
    return found


async def test_a_pod_that_is_not_known_yet_is_waited_for_and_its_size_and_report_are_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as (node, server, socket):
        selector: dict[str, object] = {"uid": "u7"}
        asked = {"selector": selector, "fields": ["totals", "gate"], "wait_ms": 5000}
        waits = asyncio.create_task(post("DescribePod", asked, socket))
        await asyncio.sleep(0.2)
        assert not waits.done()
        late = pod("u7")
        late["metadata"] = {"name": "late", "namespace": "shop", "uid": "u7"}
        server.add_pod(late)
        found = await waits
        assert str(found["totals"]).startswith("{'value': {'cpu_request_m': 3000")
        assert "gate.mode is off" in str(found["gate"])
        assert found["spec"] is None
        sandbox = await node.runtime.run_pod(SimPod("u7", "late", "shop"))
        selector["sandbox"] = sandbox
        while (size := await post("ComputeSize", {"selector": selector, "unlimited": "all"}, socket))["cpu_m"] == 3000:
            await asyncio.sleep(0.02)
        assert (size["cpu_m"], size["vcpus"]) == (3500, 4)
        assert "allocatable 3500m by the Node object" in str(size["terms"])
        report = {"sandbox": sandbox, "vcpus": 3, "memory": 1 << 30}
        assert await post("ReportSandbox", report, socket) == {"known": True}
        assert "'vcpus': 3" in str(await post("DescribePod", {"selector": selector, "fields": ["size"]}, socket))
        await node.runtime.remove_pod(sandbox)
        asked = {"selector": {"uid": "u7"}, "fields": ["size"]}
        while "'vcpus': 3" in str(await post("DescribePod", asked, socket)):
            await asyncio.sleep(0.02)
        for method, request, why in WRONG:
            with pytest.raises(client.DaemonError, match=why):
                await post(method, request, socket)
        for path, why in ((f"/v1/pods/shop/{CANARY}", "no such pod"), (f"/v1/pods/shop/web?fields={CANARY}", "fields")):
            with pytest.raises(client.DaemonError, match=why) as refused:
                await get(path, socket)
            assert CANARY not in str(refused.value)


async def asks_for_spec(name: str, socket: str) -> None:
    reader, writer = await asyncio.open_unix_connection(socket)
    writer.write(f"GET /v1/pods/shop/{name}?fields=spec HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n".encode())
    await reader.read(-1)
    writer.close()


async def test_who_waits_for_a_spec_does_not_keep_a_volume_from_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "MOST_ASKING", 2)
    monkeypatch.setitem(answers.SLOW, "spec", 4 * WITHIN_S)

    async with serving(tmp_path) as (_, server, socket):
        slow = pod("u8")
        slow["metadata"] = {"name": "slow", "namespace": "shop", "uid": "u8"}
        server.add_pod(slow)
        while b'"u8"' not in await get("/v1/pods", socket):
            await asyncio.sleep(0.02)
        server.faults.hang_at = "/pods/slow"
        asking = [asyncio.create_task(asks_for_spec("slow", socket)) for _ in range(20)]
        await until(lambda: any(path.endswith("/pods/slow") for path in server.requests), "the read")
        offered: dict[str, object] = {"pod_uid": "u1", "sandbox": "s1", "volumes": [{"volume": "v", "path": "/p"}]}
        assert "was not read within" not in str(await post("OfferVolumes", offered, socket))
        for one in asking:
            one.cancel()
        await asyncio.wait(asking)


SERVED = ", ".join(name for name in SERVICE.methods_by_name if name != "Watch")
WRONG: tuple[tuple[str, dict[str, object], str], ...] = (
    ("Nothing", {}, f"no such method; there are {SERVED}"),
    ("ResolvePull", {"namespace": "", "name": "", "uid": ""}, "namespace, name, uid: none may be empty"),
    ("DescribePod", {}, "selector: names no pod"),
    ("DescribePod", {"selector": {"namespace": "shop"}}, "selector: names no pod"),
    ("DescribePod", {"selector": {"uid": "u" * 513}}, "selector.uid: has more than 512"),
    ("DescribePod", {"selector": {"uid": "u7"}, "wait_ms": 5001}, "wait_ms: is not between 0 and 5000"),
    ("DescribePod", {"selector": {"uid": "u7"}, "fields": ["size", "x"]}, "fields: has one that is no section"),
    ("ComputeSize", {"selector": {"uid": "u7"}, "unlimited": "many"}, "unlimited: is none of"),
    ("ComputeSize", {"selector": {"uid": "u7"}, "keep_cpus": -1}, "keep_cpus: is not between 0 and 4096"),
    ("ReportSandbox", {}, "sandbox: is empty"),
    ("ReportSandbox", {"sandbox": "s", "vcpus": -1}, "none may be below 0"),
    ("ReportSandbox", {"sandbox": "s", "vcpu_tids": [7] * 4097}, "have more than 4096"),
)


async def test_a_user_who_is_not_named_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, os.getuid() + 1) as (_, _, socket):
        with pytest.raises(client.DaemonError, match=r"podapi\.uids"):
            await get("/v1/pods", socket)
