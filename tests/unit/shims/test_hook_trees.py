"""Where the OCI hook finds the misc controller: on cgroup v2 and v1, at the usual place, elsewhere, and nowhere."""

import json
from pathlib import Path

import pytest

from nodeward.aio.hostfs import OsFiles
from nodeward.shims.oci_hook import Options, Outcome, run
from tests.unit.shims.rig import ANNOTATIONS, BUNDLE, CGROUP, EPC, PID, HookRig, no_daemon, said

V1_LINES = "7:cpu,cpuacct:/x\n5:misc:{}\n0::/\n"
MOUNT = "30 20 0:26 / /sys/fs/cgroup/{} rw,nosuid - {} none rw{}\n"


def host(folder: Path, process: str, mounts: str, tree: str) -> OsFiles:
    """A host of plain folders, with the misc controller's files at `tree`; without them for an empty one."""
    config = {"ociVersion": "1.0.2", "linux": {"cgroupsPath": CGROUP}, "annotations": ANNOTATIONS}
    files = {
        f"/proc/{PID}/cgroup": process.format(CGROUP),
        "/proc/self/mountinfo": mounts,
        f"{BUNDLE}/config.json": json.dumps(config),
        **({f"{tree}/misc.capacity": f"{EPC} 65536\n", f"{tree}{CGROUP}/misc.max": ""} if tree else {}),
    }
    for path, text in files.items():
        (folder / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (folder / path[1:]).write_text(text)
    return OsFiles(str(folder))


@pytest.mark.parametrize(
    ("process", "mounts", "tree"),
    [
        pytest.param("0::{}\n", "", "/sys/fs/cgroup", id="v2"),
        pytest.param(V1_LINES, "", "/sys/fs/cgroup/misc", id="v1"),
        pytest.param(
            V1_LINES, MOUNT.format("misc-v1", "cgroup", ",misc"), "/sys/fs/cgroup/misc-v1", id="v1-somewhere-else"
        ),
        pytest.param(
            "7:cpu:/x\n0::{}\n",
            MOUNT.format("cpu", "cgroup", ",cpu") + MOUNT.format("unified", "cgroup2", ""),
            "/sys/fs/cgroup/unified",
            id="v2-beside-v1",
        ),
    ],
)
def test_the_misc_controller_is_found_where_it_is_mounted(tmp_path: Path, process: str, mounts: str, tree: str) -> None:
    files = host(tmp_path, process, mounts, tree)

    def ask(path: str, line: bytes, wait: bool) -> bytes:
        return said({EPC: 4096})

    assert run(HookRig().state(), files, Options("refuse"), ask) == Outcome(0)
    assert (tmp_path / f"{tree[1:]}{CGROUP}/misc.max").read_text() == f"{EPC} 4096\n"


@pytest.mark.parametrize("process", ["0::{}\n", V1_LINES], ids=["v2", "v1"])
@pytest.mark.parametrize("on_error", ["pass", "refuse"])
def test_a_limit_where_no_misc_controller_is_mounted_is_an_error(tmp_path: Path, process: str, on_error: str) -> None:
    other = MOUNT.format("unified", "cgroup2", "") if process == V1_LINES else MOUNT.format("misc", "cgroup", ",misc")
    files = host(tmp_path, process, other, "")

    def ask(path: str, line: bytes, wait: bool) -> bytes:
        return said({EPC: 4096}, on_error=on_error)

    outcome = run(HookRig().state(), files, Options(), ask)
    assert outcome.code == (on_error == "refuse")
    assert f"the limit {EPC} 4096 cannot be set: no misc.capacity at /sys/fs/cgroup" in outcome.said
    assert "Mount it (mount -t cgroup" in outcome.said
    alone = run(HookRig().state(), files, Options("refuse"), no_daemon)
    assert alone == Outcome(0), "nothing declared, nothing to say"
