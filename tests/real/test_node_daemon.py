"""The daemon itself on a real containerd: `nodeward node` as a user starts it, asked by the commands a user has.

Enforcement on a real kernel is the VM tier's; here the node is one without the misc controller.
"""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path

from tests.peers.containerd import IMAGE, running_containerd
from tests.peers.cri import container_config, pod_config, remove_pod, start
from tests.peers.daemon import WITHIN_S, daemon, until


def test_the_daemon_shows_pods_of_a_real_containerd_and_its_record_replays() -> None:
    """Given containerd with a running pod, when the daemon starts and stops, then a user's commands tell of it."""
    with (
        tempfile.TemporaryDirectory(prefix="ctd") as runtime_folder,
        tempfile.TemporaryDirectory(prefix="nwd") as own,
        running_containerd(Path(runtime_folder)) as containerd,
    ):
        with containerd.cri() as cri:
            pod = pod_config("web", containerd.cgroup_parent, containerd.folder / "logs")
            sandbox, container = start(cri, pod, container_config("app", IMAGE))
            with daemon(containerd.nri_socket, Path(own)) as node:
                until(lambda: node.containers() == {container}, "the pod is shown")
                assert str(node.shown()["runtime"]).startswith("containerd 2.4")

                assert "no misc controller" in node.command("status").stdout
                told = node.command("explain", "default/web")
                assert told.returncode == 0
                assert "Nobody knows this pod; limits.unknown_pod is unlimited." in told.stdout
                assert node.command("explain", "no/such").returncode == 1

                assert node.process is not None
                second = node.command("node", "--config", str(node.config))
                assert second.returncode == 1
                assert f"is held by process {node.process.pid}" in second.stderr

                remove_pod(cri, sandbox)
                until(lambda: node.rows() == [], "the pod is gone")
                node.process.send_signal(signal.SIGTERM)
                assert node.process.wait(timeout=WITHIN_S) == 0

        replayed = node.command("replay", str(node.record))
        assert replayed.returncode == 0, replayed.stderr
        assert "every decision is the same, byte for byte" in replayed.stdout
        assert node.command("status").returncode == 1
