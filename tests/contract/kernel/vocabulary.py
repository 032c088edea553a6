"""The words of the kernel's contract cases: the kernel under test, and the few steps that the cases share.

A case is a function `case_<what>(k)`. It finds an empty, fresh folder `k.base` (a cgroup of its own with misc handed
down to it, see `KernelUnderTest`), the capacities of `CAPACITY`, and nothing charged. It uses `k.files` for everything
that a program does through files, and `k` for what drivers and virtual machines do. It raises AssertionError.

Only the two resources of stock kernels are used, `sev` and `sev_es`. Sources: Documentation/admin-guide/cgroup-v2.rst,
kernel/cgroup/misc.c, kernel/cgroup/cgroup.c, lib/kstrtox.c.
"""

import errno
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from nodeward.host.hostfs import HostFiles

CAPACITY: Final[Mapping[str, int]] = {"sev": 10, "sev_es": 5}
MOUNT: Final = "/sys/fs/cgroup"
V1_MOUNT: Final = f"{MOUNT}/misc"


class KernelUnderTest(Protocol):
    """A kernel and the hands of those who charge it."""

    files: HostFiles
    version: int
    """1 where misc is mounted as a cgroup v1 hierarchy, else 2."""
    mount: str
    """Where the tree with the misc controller is mounted."""
    base: str
    """A cgroup made for this case: misc is on in it, no children, no processes."""

    def charge(self, cgroup: str, resource: str, amount: int) -> None:
        """A process in `cgroup` takes `amount`; OSError if refused."""

    def uncharge(self, cgroup: str, resource: str, amount: int) -> None:
        """What was charged at `cgroup` is given back, oldest first."""

    def underflow(self, cgroup: str, resource: str, amount: int) -> None:
        """A driver gives back at `cgroup` what nobody took."""

    def set_capacity(self, resource: str, value: int) -> None:
        """A driver registers what the host has."""

    def offline(self, cpus: str) -> None:
        """These CPUs (a kernel list) are offline from now on, and no others."""

    def new_process(self, cgroup: str, memory: int = 0) -> int:
        """A process that does nothing, moved to `cgroup`; its pid. OSError if it may not live there. With `memory` it
        has taken so much, in this cgroup."""

    def outgrow(self, cgroup: str) -> None:
        """A process in `cgroup` takes memory until the kernel has killed it."""

    def end_process(self, pid: int) -> None:
        """That process has ended and left its cgroup."""


Case = Callable[[KernelUnderTest], None]


def text(k: KernelUnderTest, path: str) -> str:
    return k.files.read(path, 65536).decode()


def refused(number: int, act: Callable[[], object]) -> None:
    try:
        act()
    except OSError as error:
        got = error.errno
        assert got == number, f"errno {errno.errorcode.get(got or 0, got)} instead of {errno.errorcode[number]}"
    else:
        raise AssertionError(f"accepted instead of {errno.errorcode[number]}")


def child(k: KernelUnderTest, name: str, parent: str = "") -> str:
    """A cgroup in `parent` (the case's base) that has misc."""
    above = parent or k.base
    if k.version == 2 and "misc" not in text(k, f"{above}/cgroup.subtree_control"):
        k.files.write(f"{above}/cgroup.subtree_control", b"+misc")
    path = f"{above}/{name}"
    k.files.mkdir(path)
    return path


def limit(k: KernelUnderTest, cgroup: str, line: str) -> None:
    k.files.write(f"{cgroup}/misc.max", line.encode())
