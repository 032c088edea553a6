"""What a container gets with its key: the page's settings in a daemon of its own, beside kubelet's device manager."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from nodeward.aio.clock import SystemClock
from nodeward.aio.hostfs import OsFiles
from nodeward.doubles.kubelet import AdmissionError, Asks, SimKubelet
from tests.component.kubelet.node import TDX, WITHIN_S, until
from tests.pages import typed

KEYS = 4
SEV = "devices.kubevirt.io/sev-esids"
SETTINGS = """
node_name: one
state_dir: {folder}/state
run_dir: {folder}/run
nri: {{enabled: false}}
kube: {{enabled: false}}
cgroups: {{root: {folder}/cgroups}}
"""


@pytest.fixture(name="folder")
def _folder() -> Iterator[Path]:
    """A socket's path has to be short."""
    with tempfile.TemporaryDirectory(prefix="giv") as folder:
        yield Path(folder)


@contextlib.asynccontextmanager
async def node(folder: Path, heading: str, resource: str, device: str = "/dev/sev") -> AsyncIterator[SimKubelet]:
    """Kubelet, and `nodeward node` with what the page types below this heading, but for another device node."""
    for name in ("run", "state", "cgroups", "qgs"):
        (folder / name).mkdir()
    for name, amount in (("misc.capacity", KEYS), ("misc.current", 0)):
        (folder / "cgroups" / name).write_text(f"sev_es {amount}\ntdx {amount}\n")
    page = typed("keys.md", heading).replace("/var/run/tdx-qgs", str(folder / "qgs")).replace("/dev/sev", device)
    config = folder / "nodeward.yaml"
    config.write_text(SETTINGS.format(folder=folder) + f"{page}  kubelet_dir: {folder}/kubelet\n")
    kubelet = SimKubelet(str(folder / "kubelet"), OsFiles(), SystemClock())
    await kubelet.start()
    with (folder / "log").open("wb") as log:
        program = str(Path(sys.executable).parent / "nodeward")
        process = await asyncio.create_subprocess_exec(program, "node", "--config", str(config), stderr=log)
    try:
        await until(lambda: kubelet.capacity(resource) == (KEYS, KEYS), "the keys are offered")
        yield kubelet
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()
        await kubelet.stop()


def played(around: contextlib.AbstractAsyncContextManager[SimKubelet], story: Callable[..., Awaitable[None]]) -> None:
    """Plays it beside this kubelet."""

    async def bounded() -> None:
        async with asyncio.timeout(3 * WITHIN_S), around as kubelet:
            await story(kubelet)

    asyncio.run(bounded())


def test_a_vm_gets_the_quote_services_folder_by_the_pages_example(folder: Path) -> None:
    async def story(kubelet: SimKubelet) -> None:
        await kubelet.admit("a", TDX, (Asks("compute"),))
        (answer,) = kubelet.answers("a", "compute")
        assert [(one.host_path, one.read_only) for one in answer.mounts] == [(str(folder / "qgs"), True)]
        assert list(answer.devices) == []

    played(node(folder, "Offer keys to kubelet", TDX), story)


@pytest.fixture(name="in_dev")
def _in_dev() -> Iterator[Path]:
    """A folder below /dev, where a test may make something."""
    with tempfile.TemporaryDirectory(prefix="giv", dir="/dev/shm") as folder:
        yield Path(folder)


def test_a_vm_gets_the_device_nodes_of_the_pages_example(folder: Path, in_dev: Path) -> None:
    """Given a device node that is one when a pod is admitted, then one that has gone, and a file in its place."""
    device = in_dev / "sev"
    device.symlink_to("/dev/null")

    async def refused(kubelet: SimKubelet, uid: str) -> str:
        with pytest.raises(AdmissionError) as why:
            await kubelet.admit(uid, SEV, (Asks("compute"),))
        return str(why.value)

    async def story(kubelet: SimKubelet) -> None:
        await kubelet.admit("a", SEV, (Asks("compute"),))
        (answer,) = kubelet.answers("a", "compute")
        (given,) = answer.devices
        assert (given.host_path, given.container_path, given.permissions) == (str(device), str(device), "rw")
        device.unlink()
        gone = await refused(kubelet, "b")
        assert f"nodeward: {device}: No such file or directory; ledger.keys.sev_es.devices gives it to each" in gone
        device.touch()
        assert f"nodeward: {device} is not a character device; " in await refused(kubelet, "b")
        assert kubelet.capacity(SEV) == (KEYS, KEYS), "nothing was granted"

    played(node(folder, "Device nodes", SEV, str(device)), story)
