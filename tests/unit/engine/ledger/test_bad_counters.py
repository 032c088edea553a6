"""Counters that say too little, nonsense or nothing: no key is called free that is not, and kubelet is offered none.

Given a node of 16 keys: a pod has 2 of the 3 that it was promised, and 3 are in foreign use, so 10 are free. Then the
kernel's files say something else.
"""

import errno
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from nodeward.doubles.kernel import SimKernel
from nodeward.edges.cgroups.hierarchy import Tree
from nodeward.edges.cgroups.keys import KeyReader
from nodeward.engine.show.key_rows import key_rows
from nodeward.engine.state.root import State
from nodeward.model import events as ev
from nodeward.model.settings import CapacitySource, EngineSettings, KeySettings, LedgerSettings, Mode
from nodeward.model.view import KeyRow
from nodeward.model.workload import ContainerSpec, PodSpec, PodUid
from tests.faults import FaultyFiles
from tests.unit.engine.build import Told

ROOT, TDX = "/sys/fs/cgroup", "devices.kubevirt.io/tdx"
NODE, POD, CAPACITY = "/misc.current", "/kubepods/poda/misc.current", "/misc.capacity"
TRUE_FREE = 10
Reads = Callable[[int], bytes]
"""What the n-th read of a file gives."""


class Odd(FaultyFiles):
    """The kernel's files, but for one that says something else."""

    def __init__(self, inner: SimKernel, path: str, said: Reads) -> None:
        super().__init__(inner)
        self._odd, self._said, self._reads = f"{ROOT}{path}", said, 0
        self._handles: dict[int, str] = {}

    def open(self, path: str) -> int:
        handle = super().open(path)
        self._handles[handle] = path
        return handle

    def pread(self, handle: int, max_bytes: int) -> bytes:
        return self._now() if self._handles[handle] == self._odd else super().pread(handle, max_bytes)

    def read(self, path: str, max_bytes: int, *, own: bool = False) -> bytes:
        return self._now() if path == self._odd else super().read(path, max_bytes, own=own)

    def _now(self) -> bytes:
        self._reads += 1
        return self._said(self._reads)


def says(text: str) -> Reads:
    return lambda _: text.encode()


def then(*said: str | int) -> Reads:
    """One after the other, texts and errors; the last one stays."""

    def now(read: int) -> bytes:
        one = said[min(read, len(said)) - 1]
        return fails(one)(read) if isinstance(one, int) else one.encode()

    return now


def fails(number: int) -> Reads:
    def fail(_: int) -> bytes:
        raise OSError(number, "")

    return fail


@dataclass(frozen=True)
class Case:
    """A file, what it says, and what is shown as free: None for unknown."""

    path: str
    said: Reads
    free: int | None


HUGE = f"tdx {2**64 - 1}\n"
CASES = {
    "node: empty": Case(NODE, says(""), None),
    "node: cut short": Case(NODE, says("td"), None),
    "node: cut short in the number": Case(NODE, says("tdx 1"), None),
    "node: no number": Case(NODE, says("tdx many\n"), None),
    "node: other resources only": Case(NODE, says("sgx_epc 4096\nfuture_key 3\n"), None),
    "node: another resource too": Case(NODE, says("future_key 3\ntdx 5\n"), TRUE_FREE),
    "node: below zero": Case(NODE, says(HUGE), 0),
    "node: not text": Case(NODE, says("\0\0\0"), None),
    "node: too large": Case(NODE, says("tdx 5\n" * 9999), None),
    "node: unreadable": Case(NODE, fails(errno.EIO), None),
    "node: forbidden": Case(NODE, fails(errno.EACCES), None),
    "node: shrinks within a sample": Case(NODE, then("tdx 9\n", "tdx 5\n"), TRUE_FREE - 4),
    "node: empty at the first read": Case(NODE, then("", "tdx 5\n"), None),
    "node: empty at the second read": Case(NODE, then("tdx 5\n", ""), None),
    "node: other resources only at the second read": Case(NODE, then("tdx 5\n", "sgx_epc 4096\n"), None),
    "node: unreadable at the second read": Case(NODE, then("tdx 5\n", errno.EIO), None),
    "pod: empty": Case(POD, says(""), TRUE_FREE - 2),
    "pod: cut short": Case(POD, says("tdx"), TRUE_FREE - 2),
    "pod: below zero": Case(POD, says(HUGE), TRUE_FREE - 2),
    "pod: unreadable": Case(POD, fails(errno.EIO), TRUE_FREE - 2),
    "pod: shrinks within a sample": Case(POD, then("tdx 2\n", "tdx 0\n"), TRUE_FREE - 2),
    "pod: more than the node": Case(POD, says("tdx 9\n"), TRUE_FREE - 3),
    "capacity: empty": Case(CAPACITY, says(""), None),
    "capacity: cut short": Case(CAPACITY, says("tdx"), None),
    "capacity: unreadable": Case(CAPACITY, fails(errno.EIO), None),
    "capacity: below zero": Case(CAPACITY, says(HUGE), 0),
    "capacity: less than is used": Case(CAPACITY, says("tdx 4\n"), 0),
}


def settings_of(kind: KeySettings) -> EngineSettings:
    return EngineSettings(ledger=LedgerSettings(Mode.OBSERVE, {"tdx": kind}))


def node(files: Callable[[SimKernel], FaultyFiles], kind: KeySettings, kernel: SimKernel | None = None) -> KeyRow:
    """What is shown of the keys, by a real reader over these files."""
    kernel = kernel or SimKernel({"tdx": 16})
    for path in ("/kubepods/poda", "/machine.slice"):
        kernel.make_cgroup(f"{ROOT}{path}")
    for path in ("", "/kubepods"):
        kernel.write(f"{ROOT}{path}/cgroup.subtree_control", b"+misc")
    kernel.charge(f"{ROOT}/kubepods/poda", "tdx", 2)
    kernel.charge(f"{ROOT}/machine.slice", "tdx", 3)
    tell = Told(State(settings=settings_of(kind)))
    containers = (ContainerSpec("vm", declared={TDX: 3}),)
    tell(ev.PodSeen(PodSpec(PodUid("a"), "shop", "a", containers)))
    odd = files(kernel)
    sample = KeyReader(odd, Tree(odd, ROOT)).look(("tdx",), {PodUid("a"): "/kubepods/poda"}, True, 0)
    assert sample is not None
    tell(sample)
    (row,) = key_rows(tell.state, tell.at_ns)
    return row


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_no_more_is_free_than_there_is(case: Case) -> None:
    row = node(lambda kernel: Odd(kernel, case.path, case.said), KeySettings((TDX,)))
    assert row.free == case.free


def test_what_is_free_where_the_files_are_sound() -> None:
    assert node(FaultyFiles, KeySettings((TDX,))).free == TRUE_FREE


def test_a_root_without_a_counter_is_told_from_a_kernel_without_keys() -> None:
    """Given a kernel before 6.6: misc.capacity can be read, and the root has no misc.current."""
    row = node(lambda kernel: Odd(kernel, NODE, fails(errno.ENOENT)), KeySettings((TDX,)))
    assert (row.capacity, row.free) == (16, None)
    assert row.sentence.startswith("the root's misc.current did not show them")


def test_pods_whose_counters_vanish_are_a_finding() -> None:
    row = node(lambda kernel: Odd(kernel, POD, fails(errno.ENOENT)), KeySettings((TDX,)))
    (finding,) = row.findings
    assert finding.startswith(
        "misc.current of 1 pod(s) that were promised keys cannot be read (shop/a): what they hold"
    )


def test_where_the_root_is_hidden_the_settings_number_holds_with_a_warning() -> None:
    """Given kind: no misc.capacity, since what looks like the root is not."""
    kind = KeySettings((TDX,), capacity=16)
    hidden = node(lambda kernel: Odd(kernel, CAPACITY, fails(errno.ENOENT)), kind)
    assert (hidden.capacity, hidden.free) == (16, TRUE_FREE)
    assert any("misc.capacity" in finding and "16" in finding for finding in hidden.findings)
    assert node(FaultyFiles, kind).findings == ()


def test_where_the_root_is_hidden_nfds_number_holds_with_a_warning_too() -> None:
    tell = Told(State(settings=settings_of(KeySettings((TDX,), capacity_from=CapacitySource.NFD))))
    tell(ev.NfdSeen(served=True, worker=True, discovered={"tdx": 9}))
    tell(ev.KeysRead(0, {}, {"tdx": (2, 2)}))
    (row,) = key_rows(tell.state, tell.at_ns)
    assert row.free == 7
    assert "so Node Feature Discovery's 9 is taken for true; what is used outside" in " ".join(row.findings)
