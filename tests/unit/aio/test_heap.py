"""What the allocator keeps: a process's memory after it has freed some, with the setting and without."""

import subprocess
import sys
from pathlib import Path

import pytest

from nodeward.aio import heap

CHURN = """
import sys
from nodeward.aio.heap import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory()
warm = [bytes(100_000) for _ in range(80)]  # below what is mapped by itself, even before the setting
del warm
print(int(open("/proc/self/statm").read().split()[1]) * 4096)
"""


def resident(setting: str) -> int:
    """Bytes of a process that has freed eight million of them."""
    source = Path(heap.__file__).parents[2]
    command = [sys.executable, "-c", CHURN, setting]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(source)}, capture_output=True, text=True, timeout=60, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's setting")
def test_what_was_freed_stays_with_the_process() -> None:
    assert resident("kept") - resident("as it is") > 4_000_000


def test_a_library_without_the_setting_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        """Has no mallopt."""

    monkeypatch.setattr("ctypes.CDLL", lambda _: Library())
    assert heap.keep_freed_memory() is False
