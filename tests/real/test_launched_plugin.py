"""Nodeward as a plugin that containerd starts itself: the connection is a descriptor, the life is the runtime's."""

import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from tests.peers.containerd import Containerd, NriOptions
from tests.peers.cri import remove_pod
from tests.peers.daemon import NODEWARD, WITHIN_S, Daemon, until
from tests.rigs.containers import a_containerd, run_pod

PLUGIN = "10-nodeward"


@pytest.fixture(name="node")
def _node() -> Iterator[Daemon]:
    """A daemon that is configured and not started. Its NRI socket is in the settings and leads nowhere."""
    with tempfile.TemporaryDirectory(prefix="nwd") as folder:
        node = Daemon(Path(folder), Path("/nonexistent/nri.sock"))
        node.configure()
        yield node


@contextmanager
def launching(node: Daemon, required: tuple[str, ...] | None = None) -> Iterator[Containerd]:
    """A containerd with the launcher that docs/limits.md shows, in its folder of plugins."""
    launcher = f"#!/bin/sh\nexec {NODEWARD} node --config {node.config} 2>>{node.folder}/node.log\n"
    options = NriOptions(required_plugins=required, launched={PLUGIN: launcher})
    with a_containerd(options) as runtime:
        yield runtime


def holder(node: Daemon) -> str:
    return (node.folder / "run" / "node.lock").read_text().strip()


def lives(containerd: Containerd, pid: str) -> bool:
    """Whether this process runs in containerd's namespace. What nobody waits for stays as a zombie without program."""
    return (
        subprocess.run(containerd.inside("test", "-e", f"/proc/{pid}/exe"), timeout=WITHIN_S, check=False).returncode
        == 0
    )


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_containerd_starts_the_daemon_and_after_a_restart_another(node: Daemon, end: signal.Signals) -> None:
    with launching(node) as containerd:
        until(lambda: containerd.synchronized(PLUGIN) == 1, "containerd calls the daemon it has started")
        with containerd.cri() as cri:
            before, old = run_pod(containerd, cri, "before")
        until(lambda: node.containers() == {old}, "the first daemon shows the container")
        first = holder(node)

        containerd.stop(end)
        until(lambda: not lives(containerd, first), "the first daemon ends with its runtime")
        containerd.start()

        until(lambda: containerd.synchronized(PLUGIN) == 2, "containerd calls the next daemon")
        assert holder(node) != first
        with containerd.cri() as cri:
            during, new = run_pod(containerd, cri, "during")
            until(lambda: node.containers() == {old, new}, "the second daemon shows both containers")
            for pod in (before, during):
                remove_pod(cri, pod)
        until(lambda: not node.containers(), "no container is left")


def test_no_container_is_refused_at_the_start_when_containerd_launches_the_plugin_it_requires(node: Daemon) -> None:
    with launching(node, required=("nodeward",)) as containerd, containerd.cri() as cri:
        begun: list[tuple[str, str]] = []
        refused: list[str] = []

        def first_pod_starts() -> bool:
            try:
                begun.append(run_pod(containerd, cri, "static"))
            except grpc.RpcError as error:
                refused.append(str(error))
                return False
            return True

        until(first_pod_starts, "the first pod starts")
        assert not [why for why in refused if "not present" in why]
        until(lambda: node.containers() == {begun[0][1]}, "the daemon shows it")
        remove_pod(cri, begun[0][0])
