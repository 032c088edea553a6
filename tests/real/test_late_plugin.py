"""Plugins that come late or answer slowly, on a real containerd: which containers it tells them of, and which it loses.

containerd 2.4.2 holds containers back while a plugin synchronizes, so none is lost as long as the plugin answers in
time. A plugin that does not is dropped, and hears nothing of what was created meanwhile or comes later: that is the
whole of what others have reported as containers lost during Synchronize. The cure is to connect again.
"""

import signal
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.peers.containerd import IMAGE, Containerd, NriOptions
from tests.peers.cri import container_config, remove_pod, start
from tests.peers.daemon import WITHIN_S, daemon, until
from tests.rigs.containers import a_containerd, pod_of, run_pod

PATIENCE_S = 2.0
"""How long this containerd waits for a plugin: the default."""


@pytest.fixture(name="containerd", scope="module")
def _containerd() -> Iterator[Containerd]:
    with a_containerd(NriOptions(request_timeout_s=PATIENCE_S)) as runtime:
        yield runtime


DAEMON = "90-nodeward"


def until_called(containerd: Containerd, times: int) -> None:
    until(lambda: containerd.synchronized(DAEMON) == times, f"containerd calls it from now on, for time {times}")


def test_the_daemon_knows_every_pod_that_was_made_while_it_registered(containerd: Containerd) -> None:
    called, is_enough = containerd.synchronized(DAEMON), threading.Event()
    with (
        containerd.cri() as cri,
        tempfile.TemporaryDirectory(prefix="nwd") as own,
        daemon(containerd.nri_socket, Path(own)) as node,
        ThreadPoolExecutor(4) as threads,
    ):
        done: list[str] = []

        def make(thread: int) -> dict[str, str]:
            """Container to pod, of those that it made until it is enough, and of one more."""
            made, last = dict[str, str](), False
            while not last:
                last = is_enough.is_set()
                pod, container = run_pod(containerd, cri, f"stream-{thread}-{len(made)}")
                made[container] = pod
                done.append(container)
            return made

        until_called(containerd, called + 1)
        making = [threads.submit(make, thread) for thread in range(4)]
        try:
            assert node.process is not None
            node.process.kill()
            node.process.wait(timeout=WITHIN_S)
            there = len(done)
            until(lambda: len(done) >= there + 2, "two pods are made while it is away")
            node.start()
            until_called(containerd, called + 2)
        finally:
            is_enough.set()
        pods = {container: pod for one in making for container, pod in one.result().items()}
        until(lambda: node.containers() == set(pods), "it shows every pod")
        for pod in pods.values():
            remove_pod(cri, pod)
        until(lambda: node.rows() == [], "it has forgotten every pod")


def test_a_daemon_that_stalls_in_synchronize_finds_what_was_made_meanwhile(containerd: Containerd) -> None:
    called, failed = containerd.synchronized(DAEMON), containerd.said("failed to synchronize plugin")
    with containerd.cri() as cri, ThreadPoolExecutor(2) as threads, tempfile.TemporaryDirectory(prefix="nwd") as own:
        config = pod_of(containerd, "stubborn")
        deaf = {**container_config("app", IMAGE), "stop_signal": "SIGNAL_SIGWINCH"}
        pod, stubborn = start(cri, config, deaf)
        stopping = threads.submit(cri.call, "StopContainer", {"container_id": stubborn, "timeout": 50})
        until(lambda: containerd.said(f'StopContainer for \\"{stubborn}\\" with timeout') == 1, "it is being stopped")
        with daemon(containerd.nri_socket, Path(own)) as node:
            until(node.registered, "the daemon has answered Configure")
            ready = node.command("status", "--ready")
            assert ready.returncode == 1
            assert "not ready nri" in ready.stdout
            starting = threads.submit(run_pod, containerd, cri, "meanwhile")
            assert node.process is not None
            node.process.send_signal(signal.SIGSTOP)
            with pytest.raises(TimeoutError):
                starting.result(timeout=PATIENCE_S)
            assert not stopping.done(), "nothing is started as long as it is being stopped"

            containerd.ctr("task", "kill", "--signal", "SIGKILL", stubborn)
            stopping.result(timeout=WITHIN_S)
            other, container = starting.result(timeout=WITHIN_S)
            assert containerd.said("failed to synchronize plugin") == failed + 1, "Synchronize took too long"
            assert containerd.synchronized(DAEMON) == called, "the pod was started without the daemon"

            node.process.send_signal(signal.SIGCONT)
            until(lambda: node.containers() == {container}, "the daemon finds the pod")
            assert containerd.synchronized(DAEMON) == called + 1
            for each in (pod, other):
                remove_pod(cri, each)
            until(lambda: node.rows() == [], "it has forgotten both")
