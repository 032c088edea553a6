"""The daemon's own word on each source, with the API server double."""

import asyncio
import errno
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward import __version__
from nodeward.aio.clock import SystemClock
from nodeward.app.node.run import run
from nodeward.doubles.apiserver import ApiServer
from nodeward.doubles.kernel import SimKernel
from nodeward.model.settings import ColdPlugSection, KubeSection, NriSection, PodapiSection, Settings
from nodeward.transport.grpc_unix import Code, GrpcClient, GrpcError
from tests.bad_grpc import send_bad_path
from tests.component.daemon.rig import WITHIN_S, Rig, Trouble, rig


async def until_source(node: Rig, name: str, ready: bool) -> dict[str, object]:
    """Waits until the source is (not) ready; its row."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            view = await node.ask()
            rows = view.get("components")
            for row in rows if isinstance(rows, list) else ():
                if row["name"] == name and row["ready"] is ready:
                    assert isinstance(row, dict)
                    return row
            await asyncio.sleep(0.02)


def test_an_api_server_that_goes_away_is_stale_since_then(tmp_path: Path) -> None:
    async def story() -> None:
        api = ApiServer()
        await api.start()
        port = api.port

        def with_api(settings: Settings) -> Settings:
            return replace(settings, node_name="n", kube=KubeSection(url=api.url))

        async with rig(tmp_path, change=with_api) as node:
            listed = await until_source(node, "kube", True)
            for other in ("nri", "cgroups"):
                await until_source(node, other, True)
            assert (await node.ask())["ready"] is True

            await api.stop()
            lost = await until_source(node, "kube", False)
            assert str(lost["detail"]).startswith("stale: ")
            assert int(str(lost["since_wall_ns"])) > int(str(listed["since_wall_ns"]))
            assert (await node.ask())["ready"] is False
            detail = (await until_source(node, "nri", True))["detail"]
            assert detail == "synchronised with containerd v2.4.2, NRI v0.12.3"

            await api.start(port=port)
            await until_source(node, "kube", True)
            assert (await node.ask())["ready"] is True
        await api.stop()

    asyncio.run(story())


@pytest.mark.parametrize("there", [True, False], ids=["misc", "no-misc"])
def test_a_kernel_without_the_misc_controller_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, there: bool
) -> None:
    caplog.set_level(logging.INFO)

    async def story() -> None:
        lacking = Trouble(("read", "stat"), "misc.capacity", errno.ENOENT)
        async with rig(
            tmp_path, change=lambda given: replace(given, node_name="n7"), troubles=() if there else (lacking,)
        ) as node:
            await until_source(node, "cgroups", True)

    asyncio.run(story())
    said = [(one.levelno, one.getMessage()) for one in caplog.records if one.name.startswith("nodeward.app")]
    assert said[0] == (logging.INFO, f"daemon begins version={__version__} mode=enforce node=n7")
    warned = [text for level, text in said if level == logging.WARNING]
    assert warned == ([] if there else ["this kernel has no misc controller: nothing can be enforced"])


def test_a_source_that_the_settings_switch_off_is_said_to_be_off(tmp_path: Path) -> None:
    """Given pods that were known to an earlier life, then nothing is said to be stale since then either."""

    async def story() -> None:
        async with rig(tmp_path) as node:
            await until_source(node, "nri", True)
            found = await node.ask()
            assert (found["api"], found["api_stale_since"]) == ("off", "")
            assert str(found["runtime"]).startswith("containerd")

            daemon = tmp_path / "other"
            daemon.mkdir()
            settings = replace(node.settings, nri=NriSection(enabled=False), run_dir=str(daemon / "run"))
            other = asyncio.create_task(run(settings, SimKernel({}), SystemClock()))
            beside = replace(node, folder=daemon)
            await until_source(beside, "cgroups", True)
            assert (await beside.ask())["runtime"] == "off"
            other.cancel()
            await asyncio.gather(other, return_exceptions=True)

    asyncio.run(story())


GRPC_SOCKETS = {"podapi-grpc": "podapi-grpc.sock", "cold-plug": "pod-resources.sock"}


@pytest.mark.parametrize(("name", "socket"), GRPC_SOCKETS.items(), ids=GRPC_SOCKETS)
def test_a_grpc_socket_that_a_bad_request_has_ended_answers_again_and_the_daemon_is_not_ready_meanwhile(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, socket: str
) -> None:
    caplog.set_level(logging.INFO)
    path = str(tmp_path / "run" / socket)

    async def is_served() -> bool:
        client = GrpcClient(path)
        with pytest.raises(GrpcError) as said:
            await client.call("/no.Service/Method", b"", WITHIN_S)
        await client.close()
        return said.value.code is Code.UNIMPLEMENTED

    def with_sockets(settings: Settings) -> Settings:
        return replace(settings, podapi=PodapiSection(True), cold_plug=ColdPlugSection(True))

    async def story() -> None:
        async with rig(tmp_path, change=with_sockets) as node, asyncio.timeout(WITHIN_S):
            row = await until_source(node, name, True)
            assert row["detail"] == f"answers at {path}"
            assert await is_served()
            await asyncio.to_thread(send_bad_path, path)
            while caplog.text.count(f"component={name} ready=yes") != 2:
                await asyncio.sleep(0.02)
            assert await is_served()
            assert (await node.ask())["ready"] is True

    asyncio.run(story())
    assert f"component={name} ready=no detail='the gRPC server was ended by a request that it could" in caplog.text


def test_a_runtime_that_goes_and_comes_back_is_said(tmp_path: Path) -> None:
    async def story() -> None:
        async with rig(tmp_path) as node:
            await until_source(node, "nri", True)
            await node.runtime.close()
            assert str((await until_source(node, "nri", False))["detail"]).startswith("lost: ")
            await node.runtime.restart()
            await until_source(node, "nri", True)

    asyncio.run(story())
