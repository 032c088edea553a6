"""The words of the kernel's contract cases: the kernel under test, and the few steps that the cases share.

A case is a function `case_<what>(k)`. It finds an empty, fresh folder `k.base` (a cgroup of its own with misc handed
down to it, see `Double`), the capacities of `CAPACITY`, and nothing charged. It uses `k.files` for everything
that a program does through files, and `k` for what drivers and virtual machines do. It raises AssertionError.

Only the two resources of stock kernels are used, `sev` and `sev_es`. Sources: Documentation/admin-guide/cgroup-v2.rst,
kernel/cgroup/misc.c, kernel/cgroup/cgroup.c, lib/kstrtox.c.
"""

import errno
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from tests.contract.kernel.double import Double
    from tests.contract.kernel.real import Real

CAPACITY: Final[Mapping[str, int]] = {"sev": 10, "sev_es": 5}
MOUNT: Final = "/sys/fs/cgroup"
V1_MOUNT: Final = f"{MOUNT}/misc"


KernelUnderTest: TypeAlias = "Double | Real"
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
