"""The journal of grants over real starts of the daemon: kept within a boot of the machine, void after it.

Another boot is another boot id, bound over the kernel's in a mount namespace of the daemon's own.
"""

from __future__ import annotations

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

from nodeward.app.host.boot import BOOT_ID
from nodeward.app.node.grants import decode, encode
from nodeward.cli import client
from tests.component.daemon.rig import WITHIN_S

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


def row(folder: Path) -> dict[str, object]:
    """What the daemon tells of its one kind of key."""
    found: dict[str, object] = json.loads(client.get("/v1/status", str(folder / "run" / "nodeward.sock")))["keys"][0]
    return found


def standing(folder: Path) -> str:
    """How it stands with the device plugin."""
    return str(row(folder)["plugin"])


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


def test_a_journal_of_another_version_is_left_alone_and_named_in_the_log(tmp_path: Path) -> None:
    path = written(tmp_path, b'{"version":9,"boot":"x"}\n')
    with daemon(tmp_path) as log:
        until(lambda: b"grants=refused" in log.read_bytes(), "the refusal is logged")
        assert f"{path} is of version 9, and version 1 is understood" in log.read_text()
        assert content(tmp_path) == b'{"version":9,"boot":"x"}\n'


def test_a_journal_that_is_removed_under_the_daemon_is_written_anew(tmp_path: Path) -> None:
    path = written(tmp_path, encode(GRANTED, boot()))
    with daemon(tmp_path) as log:
        until((tmp_path / "state" / "grants.boot").exists, "it is noted that a journal is there")
        path.unlink()
        until(path.exists, "the journal is there again")
        assert decode(content(tmp_path), boot()) == GRANTED
        until(lambda: b"grants=written-anew" in log.read_bytes(), "that is logged")


def test_a_journal_that_is_removed_between_two_lives_of_the_daemon_is_told_and_nothing_is_given_out(
    tmp_path: Path,
) -> None:
    """Given a note in the state folder of this boot; without it, as on the first start, nothing is told."""
    with daemon(tmp_path) as log:
        until((tmp_path / "state" / "grants.boot").exists, "it is noted that a journal is there")
        assert "grants=lost" not in log.read_text()
    path = tmp_path / "run" / "grants.journal"
    path.unlink()
    with daemon(tmp_path) as log:
        until(lambda: b"grants=lost" in log.read_bytes(), "the loss is logged")
        offer = row(tmp_path)["offer"]
        assert isinstance(offer, dict)
        assert "removed since the boot" in offer["journal_lost"]
        assert not path.exists(), "a start before it is known what was granted is to tell the same"
