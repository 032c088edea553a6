"""Kubelet's device manager beside a daemon that is a process of its own: what a container gets with its key by the
settings of docs/keys.md, and what is answered while no neighbour answers. All is on real sockets."""

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
from nodeward.doubles.kubelet import AdmissionError, Asks, SimKubelet
from nodeward.edges.kubelet import pod_resources, pods_api
from nodeward.wire import kubelet_checkpoint
from tests.component.kubelet.node import TDX, WITHIN_S, until
from tests.pages import typed
from tests.rigs.stories import told_in

KEYS = 8
SEV = "devices.kubevirt.io/sev-esids"
SETTINGS = """
node_name: one
state_dir: {folder}/state
run_dir: {folder}/run
nri: {{enabled: false}}
kube: {kube}
cgroups: {{root: {folder}/cgroups}}
"""
LEDGER = f"""
ledger:
  mode: enforce
  keys: {{tdx: {{resources: [{TDX}], publisher: device-plugin, publish: {TDX}}}}}
"""


@pytest.fixture(name="folder")
def _folder() -> Iterator[Path]:
    """A socket's path has to be short."""
    with tempfile.TemporaryDirectory(prefix="giv") as folder:
        yield Path(folder)


@contextlib.asynccontextmanager
async def daemon(folder: Path, ledger: str, kube: str = "{enabled: false}") -> AsyncIterator[SimKubelet]:
    """Kubelet, and `nodeward node` with KEYS keys that nobody uses."""
    for name in ("run", "state", "cgroups", "qgs"):
        (folder / name).mkdir()
    for name, amount in (("misc.capacity", KEYS), ("misc.current", 0)):
        (folder / "cgroups" / name).write_text(f"sev_es {amount}\ntdx {amount}\n")
    config = folder / "nodeward.yaml"
    config.write_text(SETTINGS.format(folder=folder, kube=kube) + f"{ledger}  kubelet_dir: {folder}/kubelet\n")
    kubelet = SimKubelet(str(folder / "kubelet"), OsFiles(), SystemClock())
    await kubelet.start()
    with (folder / "log").open("wb") as log:
        program = str(Path(sys.executable).parent / "nodeward")
        process = await asyncio.create_subprocess_exec(program, "node", "--config", str(config), stderr=log)
    try:
        async with asyncio.timeout(3 * WITHIN_S):
            yield kubelet
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()
        await kubelet.stop()


@contextlib.asynccontextmanager
async def quoting(folder: Path) -> AsyncIterator[SimKubelet]:
    """With what the page types to offer keys, but for the folder of the quote service."""
    ledger = typed("keys.md", "Offer keys to kubelet").replace("/var/run/tdx-qgs", str(folder / "qgs"))
    async with daemon(folder, ledger) as kubelet:
        yield kubelet


@told_in(quoting)
async def test_a_vm_gets_the_quote_services_folder_by_the_pages_example(kubelet: SimKubelet, folder: Path) -> None:
    await until(lambda: kubelet.capacity(TDX) == (KEYS, KEYS), "the keys are offered")
    await kubelet.admit("a", TDX, (Asks("compute"),))
    (answer,) = kubelet.answers("a", "compute")
    assert [(one.host_path, one.read_only) for one in answer.mounts] == [(str(folder / "qgs"), True)]
    assert list(answer.devices) == []


@pytest.fixture(name="device")
def _device() -> Iterator[Path]:
    """A device node below a folder of /dev where a test may make something."""
    with tempfile.TemporaryDirectory(prefix="giv", dir="/dev/shm") as folder:
        (Path(folder) / "sev").symlink_to("/dev/null")
        yield Path(folder) / "sev"


@contextlib.asynccontextmanager
async def giving(folder: Path, device: Path) -> AsyncIterator[SimKubelet]:
    """With what the page types to give device nodes, but for another one."""
    ledger = typed("keys.md", "Device nodes").replace("/dev/sev", str(device))
    async with daemon(folder, ledger) as kubelet:
        yield kubelet


@told_in(giving)
async def test_a_vm_gets_the_device_nodes_of_the_pages_example(kubelet: SimKubelet, device: Path) -> None:
    """Given a device node that is one when a pod is admitted, then one that has gone, and a file in its place."""

    async def refused(uid: str) -> str:
        with pytest.raises(AdmissionError) as why:
            await kubelet.admit(uid, SEV, (Asks("compute"),))
        return str(why.value)

    await until(lambda: kubelet.capacity(SEV) == (KEYS, KEYS), "the keys are offered")
    await kubelet.admit("a", SEV, (Asks("compute"),))
    (answer,) = kubelet.answers("a", "compute")
    (given,) = answer.devices
    assert (given.host_path, given.container_path, given.permissions) == (str(device), str(device), "rw")
    device.unlink()
    gone = await refused("b")
    assert f"nodeward: {device}: No such file or directory; ledger.keys.sev_es.devices gives it to each" in gone
    device.touch()
    assert f"nodeward: {device} is not a character device; " in await refused("c")
    assert kubelet.capacity(SEV) == (KEYS, KEYS), "nothing was granted"


@contextlib.contextmanager
def silent(family: socket.AddressFamily, address: str | tuple[str, int]) -> Iterator[socket.socket]:
    """A socket at which everybody is let in, by the kernel, and nobody answered."""
    with socket.socket(family) as door:
        door.bind(address)
        door.listen(128)
        yield door
        door.setblocking(False)
        door.accept()[0].close()  # somebody came, or this raises


@contextlib.asynccontextmanager
async def among_the_silent(folder: Path) -> AsyncIterator[SimKubelet]:
    """An API server, kubelet's Pods API and PodResources that accept and never answer."""
    home = folder / "kubelet"
    for place in (pods_api.PLACE, pod_resources.PLACE):
        (home / place).parent.mkdir(parents=True)
    with (
        silent(socket.AF_INET, ("127.0.0.1", 0)) as api,
        silent(socket.AF_UNIX, str(home / pods_api.PLACE)),
        silent(socket.AF_UNIX, str(home / pod_resources.PLACE)),
    ):
        kube = f'{{url: "http://127.0.0.1:{api.getsockname()[1]}"}}'
        async with daemon(folder, LEDGER, kube) as kubelet:
            yield kubelet


def hang(checkpoint: Path) -> None:
    """Whoever opens the checkpoint from now on waits until somebody writes there, which nobody does."""
    pipe = checkpoint.with_name("pipe")
    os.mkfifo(pipe)
    pipe.rename(checkpoint)


@told_in(among_the_silent)
async def test_kubelet_is_answered_though_the_api_server_and_all_of_its_own_views_never_answer(
    kubelet: SimKubelet, folder: Path
) -> None:
    """Given a pod with a key, when the next one's container gets the id of its init container, and nobody tells whose
    that is, then kubelet is answered: the id counts once more, and keys are sold for as long as there are any."""
    await until(lambda: kubelet.capacity(TDX) == (KEYS, KEYS), "the keys are offered")
    await kubelet.admit("a", TDX, (Asks("app"),))
    hang(folder / "kubelet" / kubelet_checkpoint.PLACE)
    await kubelet.admit("b", TDX, (Asks("setup", init=True), Asks("app")))
    assert kubelet.held("b", TDX) == ("tdx-key-0001",)
    await until(lambda: kubelet.capacity(TDX) == (KEYS, KEYS), "no id that was granted is withheld")
