"""Use of CPUs from /proc/stat."""

import pytest

from nodeward.doubles.kernel import SimKernel
from nodeward.edges.sysfs import use
from nodeward.wire.errors import WireError

FIRST = b"cpu  9 9 9 9\ncpu0 100 0 100 800 0 0 0 0 50 0\ncpu3 0 0 0 500 100 0 0 0 0 0\nintr 1\n"
SECOND = b"cpu  9 9 9 9\ncpu0 150 0 125 1000 25 0 0 0 90 0\ncpu3 0 0 0 700 100 0 0 0 0 0\ncpu4 1 1 1 1\n"


def test_what_was_busy_between_two_looks() -> None:
    kernel = SimKernel({})
    counters = list[use.Counters]()
    for text in (FIRST, SECOND):
        kernel.replace(use.STAT, text)
        counters.append(use.read(kernel))
    assert use.between(*counters) == {0: 250, 3: 0}
    assert use.between(counters[1], counters[0]) == {}


def test_a_file_that_is_not_the_kernels_is_refused() -> None:
    kernel = SimKernel({})
    kernel.replace(use.STAT, b"cpu 1 2\ncpu99999 1 2 3 4\n")
    with pytest.raises(WireError, match="has no line of a CPU"):
        use.read(kernel)
