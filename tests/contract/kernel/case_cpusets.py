"""Cases of the cpuset controller on eight CPUs, 0 to 7: what is taken of a written list, and what is in effect."""

import errno
from functools import partial

from tests.contract.kernel.vocabulary import Case, KernelUnderTest, refused, text

ALL = "0-7\n"
WRITES: tuple[tuple[str, bytes, str, str], ...] = (
    ("one", b"3", "3\n", "3\n"),
    ("range_and_newline", b"1-2,5\n", "1-2,5\n", "1-2,5\n"),
    ("joined", b"3,1,2", "1-3\n", "1-3\n"),
    ("spaces", b" 1 , 2\n", "1-2\n", "1-2\n"),
    ("blank_between", b"1 2", "1-2\n", "1-2\n"),
    ("empty_parts", b"1,,2,", "1-2\n", "1-2\n"),
    ("leading_zero", b"03", "3\n", "3\n"),
    ("newline_clears", b"\n", "\n", ALL),
)
REFUSED: tuple[tuple[str, bytes, int], ...] = (
    ("word", b"x", errno.EINVAL),
    ("backwards", b"3-1", errno.EINVAL),
    ("half_a_range", b"3-", errno.EINVAL),
    ("negative", b"-1", errno.EINVAL),
    ("hexadecimal", b"0x1", errno.EINVAL),
    ("beyond_every_cpu", b"1-90000", errno.ERANGE),
)


def cpus(k: KernelUnderTest, name: str, parent: str = "") -> str:
    above = parent or k.base
    for level in dict.fromkeys((k.mount, above)):
        if "cpuset" not in text(k, f"{level}/cgroup.subtree_control"):
            k.files.write(f"{level}/cgroup.subtree_control", b"+cpuset")
    k.files.mkdir(f"{above}/{name}")
    return f"{above}/{name}"


def asked(k: KernelUnderTest, cgroup: str) -> str:
    return text(k, f"{cgroup}/cpuset.cpus")


def effective(k: KernelUnderTest, cgroup: str) -> str:
    return text(k, f"{cgroup}/cpuset.cpus.effective")


def put(k: KernelUnderTest, cgroup: str, data: bytes) -> None:
    k.files.write(f"{cgroup}/cpuset.cpus", data)


def _taken(data: bytes, wanted: str, in_effect: str, k: KernelUnderTest) -> None:
    c = cpus(k, "c")
    put(k, c, b"0,7")
    put(k, c, data)
    assert (asked(k, c), effective(k, c)) == (wanted, in_effect)


def _refused(data: bytes, number: int, k: KernelUnderTest) -> None:
    c = cpus(k, "c")
    put(k, c, b"0,7")
    refused(number, lambda: put(k, c, data))
    assert (asked(k, c), effective(k, c)) == ("0,7\n", "0,7\n")


TABLE: dict[str, Case] = {
    **{f"cpus_{name}": partial(_taken, data, wanted, in_effect) for name, data, wanted, in_effect in WRITES},
    **{f"cpus_refused_{name}": partial(_refused, data, number) for name, data, number in REFUSED},
}
