"""The Pod API of a running daemon with an API server: what it answers, whom it refuses, and that no secret leaves."""

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from nodeward.cli import client
from nodeward.cli.pod import command
from nodeward.doubles.apiserver import ApiServer
from nodeward.doubles.kube_refusals import Json
from nodeward.model.settings import KubeSection, PodapiSection, RecordSection, Settings
from tests.component.daemon.rig import STATE, WITHIN_S, Rig, rig

CANARY = "c4n4ry"


def pod(uid: str = "u1", **spec: object) -> Json:
    """A pod with secrets wherever there can be one."""
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


def play(folder: Path, tale: Callable[[Rig, ApiServer, str], Awaitable[None]], uids: tuple[int, ...]) -> None:
    """Plays the tale on a node with the pod; it is given the Pod API's socket."""

    async def main() -> None:
        async with ApiServer() as server:
            server.add_pod(pod())

            def with_api(settings: Settings) -> Settings:
                kube, served = KubeSection(url=server.url), PodapiSection(True, uids=uids)
                record = RecordSection(f"{STATE}/record")
                return replace(settings, kube=kube, node_name="n1", podapi=served, record=record)

            async with rig(folder, change=with_api) as node:
                socket = str(folder / "run" / "podapi.sock")
                async with asyncio.timeout(WITHIN_S):
                    while not Path(socket).exists() or not (await node.ask()).get("ready"):
                        await asyncio.sleep(0.02)
                await tale(node, server, socket)

    asyncio.run(main())


async def get(path: str, socket: str) -> bytes:
    """An answer, asked for on a thread as the command does."""
    return await asyncio.to_thread(client.get, path, socket)


async def described(socket: str) -> dict[str, dict[str, object]]:
    """The pod with its spec."""
    found: dict[str, dict[str, object]] = json.loads(await get("/v1/pods/shop/web?fields=spec", socket))
    return found


def test_a_pod_is_described_without_its_secrets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Given a pod with secrets, when it is asked for twice, then it is read once, and no answer, log, record or kept
    file has a secret."""
    caplog.set_level(logging.DEBUG)

    async def tale(node: Rig, server: ApiServer, socket: str) -> None:
        reads = "/api/v1/namespaces/shop/pods/web"
        bodies = [
            await get(path, socket) for path in ("/v1/pods", "/v1/pods/shop/web?fields=spec", "/v1/pods/shop/web")
        ]
        said = await described(socket)
        assert said["containers"]["value"] == [
            {
                "name": "app",
                "role": "container",
                "cpu_request_m": 3000,
                "cpu_limit_m": 0,
                "memory_request": 0,
                "memory_limit": 0,
                "declared": {},
            }
        ]
        images = [{"container": "app", "image": "reg.io/app:1", "host": [], "guest": []}]
        assert said["images"]["value"] == images
        assert "no relay answers at" in str(said["pulls"]["why"])
        assert said["volumes"]["value"] == [{"name": "v", "kind": "csi"}]
        assert said["spec"]["complete"]
        assert "newField" in json.dumps(said["spec"])
        assert len([path for path in server.requests if path.startswith(reads)]) == 1
        shown = await asyncio.to_thread(CliRunner().invoke, command, ["shop/web", "--spec", "--socket", socket])
        assert shown.exit_code == 0
        assert "PASSWORD" in shown.output
        await node.stop()
        kept = [node.files.read(f"{STATE}/{name}", 1 << 24) for name in node.files.listdir(STATE)]
        assert any(b"web" in one for one in kept)
        assert CANARY.encode() not in b"".join([*bodies, *kept, shown.output.encode(), caplog.text.encode()])

    play(tmp_path, tale, (os.getuid(),))


def test_a_name_taken_over_never_gets_the_old_pods_spec(tmp_path: Path) -> None:
    async def tale(node: Rig, server: ApiServer, socket: str) -> None:
        assert '"uid": "u1"' in json.dumps((await described(socket))["spec"])
        server.delete_pod("shop", "web")
        server.add_pod(pod("u2"))
        async with asyncio.timeout(WITHIN_S):
            while b'"u2"' not in await get("/v1/pods", socket):
                await asyncio.sleep(0.02)
        assert "u1" not in json.dumps(await described(socket))

    play(tmp_path, tale, (os.getuid(),))


def test_without_the_api_server_or_with_too_large_a_pod_the_spec_is_incomplete(tmp_path: Path) -> None:
    async def tale(node: Rig, server: ApiServer, socket: str) -> None:
        server.faults.refuse.extend([503] * 2)
        spec = (await described(socket))["spec"]
        assert (spec["complete"], spec["value"]) == (False, None)
        assert "503" in str(spec["why"])
        server.faults.refuse.clear()
        server.update_pod(pod(newField="x" * (3 << 20)))
        assert "more than 3145728 bytes" in str((await described(socket))["spec"]["why"])

    play(tmp_path, tale, (os.getuid(),))


def test_a_pod_that_is_not_known_and_a_field_that_is_none_are_refused_without_an_echo(tmp_path: Path) -> None:
    async def tale(_: Rig, server: ApiServer, socket: str) -> None:
        for path, why in ((f"/v1/pods/shop/{CANARY}", "no such pod"), (f"/v1/pods/shop/web?fields={CANARY}", "fields")):
            with pytest.raises(client.DaemonError, match=why) as refused:
                await get(path, socket)
            assert CANARY not in str(refused.value)

    play(tmp_path, tale, (os.getuid(),))


def test_a_user_who_is_not_named_is_refused(tmp_path: Path) -> None:
    async def tale(_: Rig, server: ApiServer, socket: str) -> None:
        with pytest.raises(client.DaemonError, match=r"podapi\.uids"):
            await get("/v1/pods", socket)

    play(tmp_path, tale, (os.getuid() + 1,))
