"""Failures at a chosen call: counted, without effect, and final when the process is stopped."""

import errno

import pytest

from nodeward.aio.hostfs import HostFiles
from nodeward.doubles.kernel import SimKernel
from tests.faults import FaultyFiles, Stopped


def three_steps(files: HostFiles) -> None:
    files.mkdir("/run/a")
    files.append("/run/a/log", b"1", True)
    files.replace("/run/a/state", b"2")


def test_without_faults_it_only_counts() -> None:
    files = FaultyFiles(SimKernel({}))
    three_steps(files)
    files.read("/run/a/log", 9)
    assert files.total == 4
    assert dict(files.calls) == {"mkdir": 1, "append": 1, "replace": 1, "read": 1}


@pytest.mark.parametrize("number", [1, 2, 3])
def test_failing_call_has_no_effect_and_later_ones_work(number: int) -> None:
    kernel = SimKernel({})
    files = FaultyFiles(kernel, fail_at=number, fail_errno=errno.ENOSPC)
    with pytest.raises(OSError, match="No space left") as caught:
        three_steps(files)
    assert caught.value.errno == errno.ENOSPC
    assert files.total == number
    left = kernel.listdir("/run/a") if number > 1 else kernel.listdir("/run")
    assert left == {1: [], 2: [], 3: ["log"]}[number]
    files.listdir("/run")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_stopped_process_makes_no_more_calls(number: int) -> None:
    kernel = SimKernel({})
    files = FaultyFiles(kernel, stop_at=number)
    with pytest.raises(Stopped) as caught:
        three_steps(files)
    assert (caught.value.call, caught.value.name) == (number, ["mkdir", "append", "replace"][number - 1])
    with pytest.raises(Stopped):
        files.listdir("/")


def test_stop_is_no_ordinary_exception() -> None:
    assert not issubclass(Stopped, Exception)


def test_every_call_is_passed_on() -> None:
    files = FaultyFiles(SimKernel({"sev": 1}))
    files.mkdir("/sys/fs/cgroup/a")
    files.write("/sys/fs/cgroup/cgroup.subtree_control", b"+misc")
    handle = files.open("/sys/fs/cgroup/a/misc.max")
    assert files.pread(handle, 99) == b"sev max\n"
    files.close(handle)
    files.rmdir("/sys/fs/cgroup/a")
    files.append("/run/x", b"x", False)
    assert files.stat("/run/x").size == 1
    files.unlink("/run/x")
    assert sorted(files.calls) == ["append", "close", "mkdir", "open", "pread", "rmdir", "stat", "unlink", "write"]
