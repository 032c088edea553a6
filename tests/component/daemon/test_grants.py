"""The journal of grants over real starts of the daemon, and a kubelet whose checkpoint has a form that nobody knows."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

import pytest

from nodeward.aio.clock import SystemClock
from nodeward.aio.hostfs import OsFiles
from nodeward.app.host.boot import BOOT_ID
from nodeward.app.node.grants import decode, encode
from nodeward.cli import client
from nodeward.doubles.kubelet import SimKubelet
from nodeward.proto import kubepod_pb2 as kubepod
from tests.component.daemon.rig import WITHIN_S
from tests.kubelet_views import SimViews

NODEWARD = Path(sys.executable).parent / "nodeward"
TDX = "devices.kubevirt.io/tdx"
GRANTED = {TDX: {"tdx-key-0000": 1, "tdx-key-0001": 2}}
OTHER = "11111111-2222-4333-8444-555555555555"
SETTINGS = """
node_name: one
state_dir: {folder}/state
run_dir: {folder}/run
nri: {{enabled: false}}
kube: {{enabled: false}}
cgroups: {{root: {folder}/cgroups}}
ledger:
  mode: {mode}
  kubelet_dir: {folder}/kubelet
  keys: {{tdx: {{resources: [{tdx}], publisher: device-plugin, publish: {tdx}, capacity_from: fixed, capacity: 4}}}}
"""


def boot() -> str:
    return Path(BOOT_ID).read_text().strip()


@contextmanager
def daemon(folder: Path, boot_id: str = "", mode: str = "enforce") -> Iterator[Path]:
    """The daemon; its log. With `boot_id` the machine seems to have booted since."""
    for name in ("run", "state", "cgroups", "kubelet"):
        (folder / name).mkdir(exist_ok=True)
    config, log = folder / "nodeward.yaml", folder / "log"
    config.write_text(SETTINGS.format(folder=folder, tdx=TDX, mode=mode))
    command = [str(NODEWARD), "node", "--config", str(config)]
    if boot_id:
        (folder / "boot_id").write_text(f"{boot_id}\n")
        bound = f"mount --bind {quote(str(folder / 'boot_id'))} {BOOT_ID}"
        command = ["unshare", "--mount", "sh", "-c", f'{bound} && exec "$@"', "sh", *command]
    with log.open("wb") as written:
        process = subprocess.Popen(command, stdout=written, stderr=written)
    try:
        until(lambda: answers(folder) or process.poll() is not None, "the daemon answers")
        assert process.poll() is None, log.read_text()
        (folder / "pid").write_text(str(process.pid))
        yield log
    finally:
        process.kill()
        process.wait(WITHIN_S)


def answers(folder: Path) -> bool:
    try:
        return bool(client.get("/v1/status", str(folder / "run" / "nodeward.sock")))
    except client.DaemonError:
        return False


def standing(folder: Path) -> str:
    return str(json.loads(client.get("/v1/status", str(folder / "run" / "nodeward.sock")))["keys"][0]["plugin"])


def until(is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def content(folder: Path) -> bytes:
    return (folder / "run" / "grants.journal").read_bytes()


def written(folder: Path, data: bytes) -> Path:
    (folder / "run").mkdir()
    path = folder / "run" / "grants.journal"
    path.write_bytes(data)
    return path


def test_grants_are_kept_over_a_kill_within_a_boot(tmp_path: Path) -> None:
    """Given a journal whose last line is torn, then a start keeps the grants and leaves the rest out."""
    written(tmp_path, encode(GRANTED, boot()) + b'{"resource":')
    with daemon(tmp_path):
        until(lambda: content(tmp_path).endswith(b"\n"), "the journal is written anew")
        assert decode(content(tmp_path), boot()) == GRANTED


def test_a_daemon_that_began_in_observe_offers_by_its_grants_after_a_reload(tmp_path: Path) -> None:
    written(tmp_path, encode(GRANTED, boot()))
    with daemon(tmp_path, mode="observe"):
        config = tmp_path / "nodeward.yaml"
        config.write_text(config.read_text().replace("mode: observe", "mode: enforce"))
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGHUP)
        until(lambda: standing(tmp_path).startswith("waiting"), "the plugin has a list, and waits for kubelet's socket")
        assert decode(content(tmp_path), boot()) == GRANTED


@pytest.mark.skipif(os.geteuid() != 0, reason="only root binds a file over another")
def test_grants_of_an_earlier_boot_are_void(tmp_path: Path) -> None:
    written(tmp_path, encode(GRANTED, boot()))
    with daemon(tmp_path, OTHER):
        until(lambda: OTHER.encode() in content(tmp_path), "the journal is of the new boot")
        assert decode(content(tmp_path), OTHER) == {}
    with daemon(tmp_path):
        until(lambda: boot().encode() in content(tmp_path), "the journal is of this boot again")
        assert decode(content(tmp_path), boot()) == {}


def published(folder: Path) -> tuple[int, str]:
    """How many keys are offered beside those that were granted, and what an operator is told."""
    (row,) = json.loads(client.get("/v1/status", str(folder / "run" / "nodeward.sock")))["keys"]
    return row["published"], " ".join(row["findings"])


async def test_keys_are_offered_once_kubelet_tells_of_its_pods_and_no_more_while_one_may_have_been_given_ids(
    tmp_path: Path,
) -> None:
    """Given a kubelet that does not answer at first; then its Pods API does, with a pod that waits for its sandbox and
    whose ids nobody tells of; then that pod has failed."""
    waits = kubepod.Pod(metadata=kubepod.ObjectMeta(name="vm", namespace="shop", uid="uid-vm"))
    waits.spec.containers.add(name="compute").resources.limits[TDX].string = "1"
    waits.status.phase = "Pending"
    home, cgroups = tmp_path / "kubelet", tmp_path / "cgroups"
    (home / "device-plugins").mkdir(parents=True)
    (home / "device-plugins" / "kubelet_internal_checkpoint").write_text('{"Form": "of a later kubelet"}')
    cgroups.mkdir()
    for name, text in {"controllers": "misc", "procs": "", "subtree_control": ""}.items():
        (cgroups / f"cgroup.{name}").write_text(f"{text}\n")
    for name, amount in {"capacity": 4, "current": 0}.items():
        (cgroups / f"misc.{name}").write_text(f"tdx {amount}\n")

    views = SimViews(str(home), SimKubelet(str(home), OsFiles(), SystemClock()))
    views.put(waits)
    with daemon(tmp_path):

        async def said(amount: int, finding: str) -> None:
            def is_so() -> bool:
                found, text = published(tmp_path)
                return found == amount and finding in text

            await asyncio.to_thread(until, is_so, finding)

        await said(0, "what was read before stands")
        await views.start()
        try:
            await said(0, f"shop/vm asks for {TDX} and may have been given ids that nobody tells of")
            waits.status.phase = "Failed"
            views.put(waits)
            await said(4, "stands in for that")
        finally:
            await views.stop()
