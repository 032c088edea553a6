"""The daemon as exporter alone: it shows what is used and touches nothing of the host."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from nodeward.aio.clock import SystemClock
from nodeward.app.node import run as node
from nodeward.app.node.assemble import ensure_folder
from nodeward.app.settings import load as settings
from nodeward.doubles.apiserver import ApiServer
from nodeward.doubles.kernel import SimKernel
from nodeward.model.settings import Mode, Settings
from tests.component.daemon.rig import EPC, ROOT, STATE, WITHIN_S, TroubledFiles
from tests.component.kube.support import pod

MANIFEST = Path(__file__).resolve().parents[3] / "deploy/exporter/settings.yaml"
CONTAINER = "c" * 64


class Watched(TroubledFiles):
    """Files that remember what was to be changed, and where."""

    def __init__(self, kernel: SimKernel) -> None:
        super().__init__(kernel)
        self.changes: list[tuple[str, str]] = []

    def write(self, path: str, data: bytes) -> None:
        self.changes.append(("write", path))
        super().write(path, data)

    def append(self, path: str, data: bytes, sync: bool) -> None:
        self.changes.append(("append", path))
        super().append(path, data, sync)

    def replace(self, path: str, data: bytes) -> None:
        self.changes.append(("replace", path))
        super().replace(path, data)

    def mkdir(self, path: str) -> None:
        self.changes.append(("mkdir", path))
        super().mkdir(path)

    def rmdir(self, path: str) -> None:
        self.changes.append(("rmdir", path))
        super().rmdir(path)

    def unlink(self, path: str) -> None:
        self.changes.append(("unlink", path))
        super().unlink(path)


def shipped(tmp_path: Path, url: str) -> Settings:
    """The settings of deploy/exporter, here."""
    file = tmp_path / "nodeward.yaml"
    file.write_text(yaml.safe_load(MANIFEST.read_text())["data"]["nodeward.yaml"])
    found = settings.load(str(file), {})
    return replace(
        found,
        node_name="n1",
        run_dir=str(tmp_path / "run"),
        kube=replace(found.kube, url=url),
        cgroups=replace(found.cgroups, root=ROOT, period_s=0.1),
    )


@asynccontextmanager
async def exporter(tmp_path: Path, mode: Mode, listen: str = "127.0.0.1:0") -> AsyncIterator[Watched]:
    kernel = SimKernel({EPC: 1 << 30})
    ensure_folder(kernel, STATE)
    for path in (f"{ROOT}/kubepods/podu-web", f"{ROOT}/kubepods/podu-web/{CONTAINER}"):
        kernel.make_cgroup(path)
    for path in (ROOT, f"{ROOT}/kubepods", f"{ROOT}/kubepods/podu-web"):
        kernel.write(f"{path}/cgroup.subtree_control", b"+misc")
    kernel.charge(f"{ROOT}/kubepods/podu-web/{CONTAINER}", EPC, 4096)
    files = Watched(kernel)
    (tmp_path / "run").mkdir()
    async with asyncio.timeout(WITHIN_S), ApiServer() as server:
        status = {"containerStatuses": [{"name": "c", "containerID": f"containerd://{CONTAINER}"}]}
        server.add_pod({**pod("web"), "status": status})
        chosen = shipped(tmp_path, server.url)
        chosen = replace(
            chosen, limits=replace(chosen.limits, mode=mode), metrics=replace(chosen.metrics, listen=listen)
        )
        task = asyncio.create_task(node.run(chosen, files, SystemClock()))
        try:
            yield files
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def status(tmp_path: Path) -> dict[str, object]:
    """What the operators' socket shows; empty before it is there."""
    try:
        reader, writer = await asyncio.open_unix_connection(tmp_path / "run" / "nodeward.sock", limit=1 << 24)
    except OSError:
        return {}
    writer.write(b"GET /v1/status HTTP/1.0\r\nHost: nodeward\r\n\r\n")
    body = (await reader.read(-1)).partition(b"\r\n\r\n")[2]
    writer.close()
    found: dict[str, object] = json.loads(body) if body else {}
    return found


async def rows(tmp_path: Path) -> list[dict[str, object]]:
    """The rows of it."""
    found = (await status(tmp_path)).get("rows")
    return found if isinstance(found, list) else []


def used(shown: list[dict[str, object]]) -> dict[str, int]:
    """What each container uses."""
    found: dict[str, int] = {}
    for row in shown:
        resources = row["resources"]
        assert isinstance(resources, list)
        for one in resources:
            if row["container"] and one["usage"] is not None:
                found[f"{row['namespace']}/{row['pod']}/{row['container']}"] = one["usage"]
    return found


@pytest.mark.parametrize(("mode", "touches"), [(Mode.OBSERVE, False), (Mode.ENFORCE, True)], ids=lambda x: str(x))
def test_the_exporter_shows_what_a_container_uses_and_changes_no_file_of_the_host(
    tmp_path: Path, mode: Mode, touches: bool
) -> None:
    """Given the settings of deploy/exporter, then no call that changes anything goes below the cgroup root; the same
    daemon in enforce is what such calls look like."""

    async def story() -> None:
        async with exporter(tmp_path, mode) as files:
            while used(await rows(tmp_path)) != {"default/web/c": 4096}:
                await asyncio.sleep(0.05)
            while touches and not any(path.startswith(ROOT) for _, path in files.changes):
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.5)  # some more passes of the sampler
        assert any(path.startswith(ROOT) for _, path in files.changes) is touches, files.changes
        assert any(path.startswith(STATE) for _, path in files.changes)

    asyncio.run(story())


def test_an_exporter_whose_address_is_held_is_not_ready(tmp_path: Path) -> None:
    """Given a stranger at metrics.listen, then the exporter, all of whose other sources are ready, is not."""

    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as holder:
            listen = f"127.0.0.1:{holder.getsockname()[1]}"
            async with exporter(tmp_path, Mode.OBSERVE, listen):
                wanted = {"cgroups": True, "kube": True, "metrics": False}
                while (found := sources(shown := await status(tmp_path))) != wanted:
                    await asyncio.sleep(0.05)
            assert shown["ready"] is False, found

    asyncio.run(story())


def sources(shown: dict[str, object]) -> dict[str, bool]:
    """Which sources are ready."""
    components = shown.get("components")
    return {row["name"]: row["ready"] for row in components} if isinstance(components, list) else {}
