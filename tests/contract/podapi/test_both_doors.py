"""The Pod API of a real daemon process: over gRPC by a Go client that knows it by reflection alone, and over HTTP."""

import asyncio
import json
import stat
import subprocess
from pathlib import Path

from google.protobuf import json_format

from nodeward.contracts import podapi_pb2
from nodeward.people import client
from nodeward_sim.doubles.apiserver import ApiServer
from nodeward_sim.doubles.runtime import SimPod, SimRuntime
from tests.component.daemon.test_podapi import pod
from tests.component.daemon.test_service import SETTINGS, service
from tests.patience import scaled
from tests.peers.find import require

WITHIN_S = scaled(30.0)
SERVICE = "nodeward.podapi.v1.PodApi"


async def grpcurl(run: str, *words: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    program = str(require("grpcurl") / "grpcurl")
    command = [program, "-plaintext", *options, f"unix://{run}/podapi-grpc.sock", *words]
    return await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )


async def called(run: str, method: str, request: object) -> subprocess.CompletedProcess[str]:
    limit = ("-max-time", "1") if method == "Watch" else ()
    return await grpcurl(run, f"{SERVICE}/{method}", options=("-d", json.dumps(request), *limit))


async def post(run: str, method: str, request: object) -> bytes:
    body = json.dumps(request).encode()
    return await asyncio.to_thread(client.get, f"/v1/{method}", f"{run}/podapi.sock", "POST", body)


async def hears_alike(run: str) -> None:
    assert stat.S_IMODE(Path(run, "podapi-grpc.sock").stat().st_mode) == 0o600
    listed = await grpcurl(run, "list")
    assert SERVICE in listed.stdout.split(), listed.stderr
    asked = {"selector": {"uid": "u1"}, "fields": ["identity", "containers", "totals", "size", "images", "spec"]}
    over_http = json.loads(await post(run, "DescribePod", asked))
    spec = over_http["spec"]["value"]
    assert spec["spec"]["newField"] == {"deep": [{"$withheld": "not-allowed"}]}
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


async def test_a_go_client_finds_the_service_and_hears_what_http_answers(tmp_path: Path) -> None:
    async with ApiServer() as server:
        requests = {"cpu": "3", "memory": "1Gi"}
        server.add_pod(pod(containers=[{"name": "app", "image": "reg.io/app:1", "resources": {"requests": requests}}]))
        runtime = SimRuntime(tmp_path / "nri.sock")
        await runtime.serve()
        settings = SETTINGS.format(folder=tmp_path).replace("{enabled: false}", f"{{url: '{server.url}'}}")
        (tmp_path / "nodeward.yaml").write_text(f"{settings}node_name: n1\npodapi: {{enabled: true}}\n")
        async with service(tmp_path) as daemon:
            await daemon.manager.until("STATUS=ready")
            await runtime.run_pod(SimPod("u1", "web", "shop"))
            await hears_alike(str(tmp_path / "run"))
        await runtime.close()
