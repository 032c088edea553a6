"""The daemon itself on a real containerd: `nodeward node` as a user starts it, asked by the commands a user has.

The cgroup root is an empty folder, so no cgroup of this machine is touched: the node is one without the misc
controller, where pods start and are shown, and nothing is enforced. Enforcement on a real kernel is the VM tier's.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.peers.containerd import IMAGE, Containerd, running_containerd
from tests.peers.cri import container_config, pod_config, remove_pod, start

NODEWARD = str(Path(sys.executable).parent / "nodeward")
WITHIN_S = 60.0


def until(true: Callable[[], bool], what: str) -> None:
    """Waits, bounded, for something another process does."""
    end = time.monotonic() + WITHIN_S
    while not true():
        assert time.monotonic() < end, f"not within {WITHIN_S:.0f} s: {what}"
        time.sleep(0.05)


def nodeward(*arguments: str, socket: Path) -> subprocess.CompletedProcess[str]:
    """One command of a user's."""
    environ = {**os.environ, "NODEWARD_SOCKET": str(socket)}
    return subprocess.run([NODEWARD, *arguments], capture_output=True, text=True, timeout=60, env=environ, check=False)


@contextmanager
def daemon(containerd: Containerd, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """`nodeward node` on this containerd."""
    (folder / "cgroup").mkdir(exist_ok=True)
    config = folder / "nodeward.yaml"
    config.write_text(
        f"state_dir: {folder}/state\nrun_dir: {folder}/run\nkube: {{enabled: false}}\n"
        f"nri: {{socket: {containerd.nri_socket}}}\ncgroups: {{root: {folder}/cgroup}}\n"
        f"record: {{path: {folder}/node.record}}\n"
    )
    command = [NODEWARD, "node", "--config", str(config)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=30)


def shown(socket: Path) -> dict[str, object]:
    """What `nodeward status -o json` prints; empty while there is no answer."""
    answer = nodeward("status", "-o", "json", socket=socket)
    found: dict[str, object] = json.loads(answer.stdout) if answer.returncode == 0 else {}
    return found


def test_the_daemon_shows_pods_of_a_real_containerd_and_its_record_replays() -> None:
    """Given containerd with a running pod, when the daemon starts and stops, then a user's commands tell of it."""
    with (
        tempfile.TemporaryDirectory(prefix="ctd") as runtime_folder,
        tempfile.TemporaryDirectory(prefix="nwd") as own,
        running_containerd(Path(runtime_folder)) as containerd,
    ):
        folder = Path(own)
        socket = folder / "run" / "nodeward.sock"
        with containerd.cri() as cri:
            pod = pod_config("web", containerd.cgroup_parent, containerd.folder / "logs")
            sandbox, _ = start(cri, pod, container_config("app", IMAGE))
            with daemon(containerd, folder) as process:
                until(
                    lambda: '"container":"app"' in json.dumps(shown(socket), separators=(",", ":")), "the pod is shown"
                )
                assert str(shown(socket)["runtime"]).startswith("containerd 2.4")

                table = nodeward("status", socket=socket)
                assert "no misc controller" in table.stdout
                rows = shown(socket)["rows"]
                assert isinstance(rows, list)
                name = f"{rows[0]['namespace']}/{rows[0]['pod']}"
                told = nodeward("explain", name, socket=socket)
                assert told.returncode == 0
                assert "Nobody knows this pod; limits.unknown_pod is unlimited." in told.stdout
                assert nodeward("explain", "no/such", socket=socket).returncode == 1

                second = nodeward("node", "--config", str(folder / "nodeward.yaml"), socket=socket)
                assert second.returncode == 1
                assert f"is held by process {process.pid}" in second.stderr

                remove_pod(cri, sandbox)
                until(lambda: shown(socket)["rows"] == [], "the pod is gone")
                process.send_signal(signal.SIGTERM)
                assert process.wait(timeout=30) == 0

        replayed = nodeward("replay", str(folder / "node.record"), socket=socket)
        assert replayed.returncode == 0, replayed.stderr
        assert "every decision is the same, byte for byte" in replayed.stdout
        assert nodeward("status", socket=socket).returncode == 1
