"""Cases of the memory and cpu controllers: limits as they read back, where memory is charged, whom the kernel kills."""

import errno
from functools import partial

from nodeward.host.hostfs import is_there
from nodeward.neighbours.cgroups.memory_use import FILE, read_used
from tests.contract.kernel.vocabulary import Case, KernelUnderTest, refused, text

MIB = 1 << 20
WRITES: tuple[tuple[str, str, bytes, str], ...] = (
    ("memory_max", "memory.max", b"max\n", "max\n"),
    ("memory_unit", "memory.max", b"64M\n", "67108864\n"),
    ("memory_small_unit", "memory.max", b"64k", "65536\n"),
    ("memory_pages", "memory.max", b"9000", "8192\n"),
    ("memory_no_digits", "memory.max", b"\n", "0\n"),
    ("cpu_max", "cpu.max", b"max", "max 50000\n"),
    ("cpu_both", "cpu.max", b"150000 100000\n", "150000 100000\n"),
    ("cpu_quota_alone", "cpu.max", b"20000", "20000 50000\n"),
    ("cpu_no_period", "cpu.max", b"max x", "max 50000\n"),
)
REFUSED: tuple[tuple[str, str, bytes], ...] = (
    ("memory_negative", "memory.max", b"-1"),
    ("memory_word", "memory.max", b"much"),
    ("memory_unit_unknown", "memory.max", b"1X"),
    ("cpu_empty", "cpu.max", b"\n"),
    ("cpu_small_quota", "cpu.max", b"999"),
    ("cpu_small_period", "cpu.max", b"max 999"),
    ("cpu_large_period", "cpu.max", b"max 1000001"),
    ("cpu_word", "cpu.max", b"much"),
    ("cpu_negative", "cpu.max", b"-1"),
)


def limited(k: KernelUnderTest, name: str, parent: str = "") -> str:
    above = parent or k.base
    for level in dict.fromkeys((k.mount, above)):
        k.files.write(f"{level}/cgroup.subtree_control", b"+memory +cpu")
    k.files.mkdir(f"{above}/{name}")
    return f"{above}/{name}"


def held(k: KernelUnderTest, cgroup: str) -> int:
    return int(text(k, f"{cgroup}/memory.current"))


def counted(k: KernelUnderTest, cgroup: str, event: str) -> int:
    rows = dict(line.split() for line in text(k, f"{cgroup}/memory.events").splitlines())
    return int(rows[event])


def _taken(file: str, data: bytes, read: str, k: KernelUnderTest) -> None:
    c = limited(k, "c")
    k.files.write(f"{c}/cpu.max", b"20000 50000")
    k.files.write(f"{c}/{file}", data)
    assert text(k, f"{c}/{file}") == read


def _refused(file: str, data: bytes, k: KernelUnderTest) -> None:
    c = limited(k, "c")
    before = text(k, f"{c}/{file}")
    refused(errno.EINVAL, lambda: k.files.write(f"{c}/{file}", data))
    assert text(k, f"{c}/{file}") == before


TABLE: dict[str, Case] = {
    **{f"limit_{name}": partial(_taken, file, data, read) for name, file, data, read in WRITES},
    **{f"limit_refused_{name}": partial(_refused, file, data) for name, file, data in REFUSED},
}


def case_limits_fresh_values(k: KernelUnderTest) -> None:
    c = limited(k, "c")
    assert text(k, f"{c}/memory.max") == "max\n"
    assert text(k, f"{c}/memory.current") == "0\n"
    events = text(k, f"{c}/memory.events").split()[::2]
    assert events[:6] == ["low", "high", "max", "oom", "oom_kill", "oom_group_kill"]  # newer kernels add more
    assert text(k, f"{c}/cpu.max") == "max 100000\n"
    assert text(k, f"{c}/cpu.stat").startswith("usage_usec 0\nuser_usec 0\nsystem_usec 0\n")


def case_limits_not_at_the_root(k: KernelUnderTest) -> None:
    limited(k, "c")
    refused(errno.ENOENT, lambda: k.files.write(f"{k.mount}/memory.max", b"max"))
    refused(errno.ENOENT, lambda: k.files.write(f"{k.mount}/cpu.max", b"max"))


def case_memory_stays_where_it_was_taken(k: KernelUnderTest) -> None:
    a, b = limited(k, "a"), limited(k, "b")
    pid = k.new_process(a, 16 * MIB)
    k.files.write(f"{b}/cgroup.procs", str(pid).encode())
    assert held(k, a) >= 16 * MIB
    assert held(k, b) < MIB


def case_memory_counts_above_and_goes_with_its_process(k: KernelUnderTest) -> None:
    a = limited(k, "a")
    b = limited(k, "b", a)
    pid = k.new_process(b, 16 * MIB)
    assert held(k, a) >= 16 * MIB
    k.end_process(pid)
    assert held(k, a) < 4 * MIB


def case_memory_is_counted_on_each_node(k: KernelUnderTest) -> None:
    """By its lines all that the process took, and none twice. A kernel without NUMA has no such file."""
    c = limited(k, "c")
    k.new_process(c, 16 * MIB)
    found = read_used(k.files, k.mount, {"c": c.removeprefix(k.mount), "gone": "/gone"})
    if not is_there(k.files, f"{c}/{FILE}"):
        assert found == {}
        return
    assert list(found) == ["c"]
    assert found["c"].keys() >= {0, 1}
    assert 16 * MIB <= sum(found["c"].values()) <= held(k, c) + MIB


def case_memory_above_a_limit_is_killed_for(k: KernelUnderTest) -> None:
    """What is full is counted at the level of the limit and above, the kill also where the killed process was."""
    pod = limited(k, "pod")
    vm, other = limited(k, "vm", pod), limited(k, "other", pod)
    k.files.write(f"{pod}/memory.max", b"64M")
    k.outgrow(vm)
    assert [counted(k, cgroup, "oom_kill") for cgroup in (k.base, pod, vm, other)] == [1, 1, 1, 0]
    assert counted(k, pod, "oom") == counted(k, k.base, "oom") > 0
    assert counted(k, vm, "oom") == counted(k, other, "oom") == 0
