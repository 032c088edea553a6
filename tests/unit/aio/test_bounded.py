"""Calls that may hang cost their caller a bounded wait, once."""

import errno
import threading

import pytest

from nodeward.aio.bounded import BoundedCalls

LONG_S = 60.0


def test_a_call_that_hangs_is_late_once_and_busy_until_it_has_come_back() -> None:
    go_on, done = threading.Event(), list[str]()

    def hang() -> None:
        assert go_on.wait(LONG_S)
        done.append("late")

    calls = BoundedCalls("test", 0.05)
    with pytest.raises(OSError, match=r"not done within 0\.05 s: the disk hangs") as late:
        calls(hang)
    with pytest.raises(OSError, match="an earlier call has not come back") as busy:
        calls(lambda: done.append("never"))
    assert (late.value.errno, busy.value.errno) == (errno.ETIMEDOUT, errno.EBUSY)

    go_on.set()
    for thread in [one for one in threading.enumerate() if one.name == "test"]:
        thread.join(LONG_S)
    BoundedCalls("test", LONG_S)(lambda: done.append("other"))
    calls(lambda: done.append("again"))
    assert done == ["late", "other", "again"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), TimeoutError("its own"), KeyError("x")])
def test_what_a_call_raises_is_raised(error: Exception) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        BoundedCalls("test", LONG_S)(fail)
    assert caught.value is error
