"""Pods as last known, on a disk that is full, slow or read-only."""

import asyncio
import errno
import logging
from dataclasses import replace

import pytest

from nodeward.app.node import assemble, last_known
from nodeward.app.node.assemble import ensure_folder
from nodeward.app.node.last_known import keep, path_in, read
from nodeward.doubles.kernel import SimKernel
from nodeward.engine.state.pods import KnownSpec, Pods
from nodeward.model.workload import PodUid, Qos, Source
from tests.faults import FaultyFiles
from tests.lanes import InlineLane
from tests.unit.engine.build import EPC, container_spec, pod_spec

FOLDER = "/var/lib/nodeward"


def folders() -> SimKernel:
    kernel = SimKernel({})
    ensure_folder(kernel, FOLDER)
    return kernel


class TurnedClock:
    """Each sleep runs what waits on the lane, and the last one ends the story."""

    def __init__(self, lane: InlineLane, turns: int) -> None:
        self._lane, self._turns = lane, turns

    def now_ns(self) -> int:
        return 0

    def wall_ns(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        self._turns -= 1
        if self._turns < 0:
            raise asyncio.CancelledError
        self._lane.drain()


def test_what_could_not_be_written_is_written_later_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    kernel, lane = folders(), InlineLane()
    files = FaultyFiles(kernel, fail_at=1, fail_errno=errno.ENOSPC)
    spec = pod_spec("u", container_spec("app", 5))
    pods = Pods(specs={PodUid("u"): KnownSpec(spec, 1)}, api_up=True)

    async def life() -> None:
        await keep(lambda: pods, files, lane, FOLDER, TurnedClock(lane, 4))

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(life())
    assert [(pod.name, pod.source) for pod in read(kernel, FOLDER).pods] == [(spec.name, Source.DISK)]
    assert files.calls["replace"] == 2  # and not again for the same pods
    assert caplog.text.count("last-known=not-written") == 1


def test_nothing_is_written_while_the_api_server_has_never_answered() -> None:
    kernel, lane = folders(), InlineLane()

    async def life() -> None:
        await keep(Pods, kernel, lane, FOLDER, TurnedClock(lane, 2))

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(life())
    with pytest.raises(FileNotFoundError):
        kernel.stat(path_in(FOLDER))


def test_a_damaged_file_is_ignored_and_said(caplog: pytest.LogCaptureFixture) -> None:
    kernel = folders()
    for data in (b"", b"{", b"[99, 1, []]", b"[2, 1, [{}]]", b"\xff" * 10):
        kernel.replace(last_known.path_in(FOLDER), data)
        caplog.clear()
        assert read(kernel, FOLDER).pods == ()
        assert "last-known=ignored" in caplog.text


def test_a_folder_that_cannot_be_made_is_said_and_no_end(caplog: pytest.LogCaptureFixture) -> None:
    assemble.ensure_folder(FaultyFiles(SimKernel({}), fail_at=2, fail_errno=errno.ENOSPC), "/data/nodeward")

    assert "folder=missing path=/data error=" in caplog.text


def test_what_pods_request_of_the_cpus_comes_back_and_an_older_release_has_not_said_it() -> None:
    kernel = folders()
    asking = replace(container_spec("app", 5), cpu_m=1500, cpu_limit_m=2000)
    spec = replace(pod_spec("u", asking), qos=Qos.BURSTABLE, pod_level=True, source=Source.DISK)
    data = last_known.encode((spec,), 1)
    kernel.replace(path_in(FOLDER), data)
    assert read(kernel, FOLDER).pods == (spec,)
    for new in (b',"cpu_m":1500', b',"cpu_limit_m":2000', b',"qos":"Burstable"', b',"pod_level":true'):
        assert new in data
        data = data.replace(new, b"")
    kernel.replace(path_in(FOLDER), data)
    (old,) = read(kernel, FOLDER).pods
    assert (old.qos, old.pod_level, old.containers[0].cpu_m, old.containers[0].declared) == (
        None,
        False,
        None,
        {EPC: 5},
    )
