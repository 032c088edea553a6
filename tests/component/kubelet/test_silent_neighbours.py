"""Kubelet's questions beside neighbours that accept and never answer: an API server, kubelet's Pods API and
PodResources, and a checkpoint whose read hangs. The daemon is a process of its own; all is on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from nodeward.aio.clock import SystemClock
from nodeward.aio.hostfs import OsFiles
from nodeward.doubles.kubelet import Asks, SimKubelet
from nodeward.edges.kubelet import pod_resources, pods_api
from nodeward.wire import kubelet_checkpoint
from tests.component.kubelet.node import TDX, WITHIN_S, until

KEYS = 8
SETTINGS = """
node_name: one
state_dir: {folder}/state
run_dir: {folder}/run
nri: {{enabled: false}}
kube: {{url: "http://127.0.0.1:{port}"}}
cgroups: {{root: {folder}/cgroups}}
ledger:
  mode: enforce
  kubelet_dir: {folder}/kubelet
  keys: {{tdx: {{resources: [{tdx}], publisher: device-plugin, publish: {tdx}}}}}
"""


@contextlib.contextmanager
def silent(family: socket.AddressFamily, address: str | tuple[str, int]) -> Iterator[socket.socket]:
    """A socket at which everybody is let in, by the kernel, and nobody answered."""
    with socket.socket(family) as door:
        door.bind(address)
        door.listen(128)
        yield door


@contextlib.asynccontextmanager
async def daemon(folder: Path, port: int) -> AsyncIterator[None]:
    """`nodeward node`, with KEYS keys that nobody uses."""
    for name in ("run", "state", "cgroups"):
        (folder / name).mkdir()
    for name, amount in (("misc.capacity", KEYS), ("misc.current", 0)):
        (folder / "cgroups" / name).write_text(f"tdx {amount}\n")
    config = folder / "nodeward.yaml"
    config.write_text(SETTINGS.format(folder=folder, tdx=TDX, port=port))
    with (folder / "log").open("wb") as log:
        program = str(Path(sys.executable).parent / "nodeward")
        process = await asyncio.create_subprocess_exec(program, "node", "--config", str(config), stderr=log)
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()


@pytest.fixture(name="folder")
def _folder() -> Iterator[Path]:
    """A socket's path has to be short."""
    with tempfile.TemporaryDirectory(prefix="sil") as folder:
        yield Path(folder)


def hang(checkpoint: Path) -> None:
    """Whoever opens the checkpoint from now on waits until somebody writes there, which nobody does."""
    pipe = checkpoint.with_name("pipe")
    os.mkfifo(pipe)
    pipe.rename(checkpoint)


def test_kubelet_is_answered_though_the_api_server_and_all_of_its_own_views_never_answer(folder: Path) -> None:
    """Given a pod with a key, when the next one's container gets the id of its init container, and nobody tells whose
    that is, then kubelet is answered: the id counts once more, and keys are sold for as long as there are any."""
    home = folder / "kubelet"

    async def story(kubelet: SimKubelet) -> None:
        await until(lambda: kubelet.capacity(TDX) == (KEYS, KEYS), "the keys are offered")
        await kubelet.admit("a", TDX, (Asks("app"),))
        hang(home / kubelet_checkpoint.PLACE)
        await kubelet.admit("b", TDX, (Asks("setup", init=True), Asks("app")))
        assert kubelet.held("b", TDX) == ("tdx-key-0001",)
        await until(lambda: kubelet.capacity(TDX) == (KEYS, KEYS), "no id that was granted is withheld")

    async def main() -> None:
        kubelet = SimKubelet(str(home), OsFiles(), SystemClock())
        await kubelet.start()
        for place in (pods_api.PLACE, pod_resources.PLACE):
            (home / place).parent.mkdir()
        with (
            silent(socket.AF_INET, ("127.0.0.1", 0)) as api,
            silent(socket.AF_UNIX, str(home / pods_api.PLACE)) as pods,
            silent(socket.AF_UNIX, str(home / pod_resources.PLACE)) as resources,
        ):
            async with asyncio.timeout(3 * WITHIN_S), daemon(folder, api.getsockname()[1]):
                await story(kubelet)
            for asked in (api, pods, resources):
                asked.setblocking(False)
                asked.accept()[0].close()  # somebody came, or this raises
        await kubelet.stop()

    asyncio.run(main())
