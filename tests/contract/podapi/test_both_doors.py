"""The Pod API of a real daemon process: over gRPC by a Go client that knows it by reflection alone, and over HTTP."""

import asyncio
import json
import stat
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

from google.protobuf import json_format

from nodeward.contracts import podapi_pb2
from nodeward.people import client
from nodeward_sim.doubles.apiserver import ApiServer
from nodeward_sim.doubles.runtime import SimPod, SimRuntime
from tests.component.daemon.test_service import SETTINGS, service
from tests.patience import scaled
from tests.peers.find import require

WITHIN_S = scaled(30.0)
SERVICE = "nodeward.podapi.v1.PodApi"
POD: dict[str, object] = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
    "spec": {
        "nodeName": "n1",
        "newField": 9007199254740993,
        "containers": [
            {"name": "app", "image": "reg.io/app:1", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}
        ],
    },
}


def play(folder: Path, tale: Callable[[str], Awaitable[None]]) -> None:
    async def main() -> None:
        async with ApiServer() as server:
            server.add_pod(POD)
            runtime = SimRuntime(folder / "nri.sock")
            await runtime.serve()
            settings = SETTINGS.format(folder=folder).replace("{enabled: false}", f"{{url: '{server.url}'}}")
            (folder / "nodeward.yaml").write_text(f"{settings}node_name: n1\npodapi: {{enabled: true}}\n")
            async with service(folder) as daemon:
                await daemon.manager.until("STATUS=ready")
                await runtime.run_pod(SimPod("u1", "web", "shop"))
                await tale(str(folder / "run"))
            await runtime.close()

    asyncio.run(main())


async def grpcurl(run: str, *words: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    program = str(require("grpcurl") / "grpcurl")
    command = [program, "-plaintext", *options, f"unix://{run}/podapi-grpc.sock", *words]
    return await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )


async def called(run: str, method: str, request: object) -> subprocess.CompletedProcess[str]:
    limit = ("-max-time", "1") if method == "Watch" else ()
    return await grpcurl(run, f"{SERVICE}/{method}", options=("-d", json.dumps(request), *limit))


def is_connected(path: str) -> bool:
    """Whether the server at this path has a client: the kernel tells its socket with the state 03 (SS_CONNECTED)."""
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    return any((row[5], row[-1]) == ("03", path) for row in rows[1:])


async def post(run: str, method: str, request: object) -> bytes:
    body = json.dumps(request).encode()
    return await asyncio.to_thread(client.get, f"/v1/{method}", f"{run}/podapi.sock", "POST", body)


def test_a_go_client_finds_the_service_and_hears_what_http_answers(tmp_path: Path) -> None:
    async def tale(run: str) -> None:
        assert stat.S_IMODE(Path(run, "podapi-grpc.sock").stat().st_mode) == 0o600
        listed = await grpcurl(run, "list")
        assert SERVICE in listed.stdout.split(), listed.stderr
        asked = {"selector": {"uid": "u1"}, "fields": ["identity", "containers", "totals", "size", "images", "spec"]}
        over_http = json.loads(await post(run, "DescribePod", asked))
        spec = over_http["spec"]["value"]
        assert spec["spec"]["newField"] == {"$withheld": "not-allowed"}
        assert over_http["identity"]["value"]["sandbox"]
        over_grpc = await called(run, "DescribePod", asked)
        heard = json_format.Parse(over_grpc.stdout, podapi_pb2.PodDescription())
        assert json.loads(heard.spec.value) == spec
        over_http["spec"]["value"] = heard.spec.value
        told = json_format.ParseDict(
            {name: one for name, one in over_http.items() if one is not None}, podapi_pb2.PodDescription()
        )
        for one in (heard, told):  # the API server is heard again and again
            for section in (one.identity, one.containers, one.totals):
                section.observed_at = 0
        assert heard == told
        watched = await called(run, "Watch", {})
        assert '"kind": "ADDED"' in watched.stdout
        wrong = await called(run, "DescribePod", {"selector": {}})
        assert "InvalidArgument" in wrong.stderr

    play(tmp_path, tale)


def test_a_shim_that_waits_hears_of_the_daemons_death_at_once_and_the_next_daemon_answers(tmp_path: Path) -> None:
    async def main() -> None:
        settings = SETTINGS.format(folder=tmp_path).replace("nri: {", "nri: {enabled: false, ")
        (tmp_path / "nodeward.yaml").write_text(f"{settings}podapi: {{enabled: true}}\n")
        run, asked = str(tmp_path / "run"), {"selector": {"uid": "u2"}, "wait_ms": 5000}
        async with service(tmp_path) as daemon:
            await daemon.manager.until("READY=1")
            waits = asyncio.create_task(called(run, "DescribePod", asked))
            while not is_connected(f"{run}/podapi-grpc.sock"):
                assert not waits.done()
                await asyncio.sleep(0.02)
            daemon.process.kill()
            assert "Unavailable" in (await waits).stderr
        assert Path(run, "podapi-grpc.sock").exists()
        (tmp_path / "notify").unlink()
        async with service(tmp_path) as daemon:
            await daemon.manager.until("READY=1")
            assert "NotFound" in (await called(run, "DescribePod", {"selector": {"uid": "u2"}})).stderr
            assert await post(run, "ListPods", {}) == b'{"pods":[]}'

    asyncio.run(main())
