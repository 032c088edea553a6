"""How many keys are free: the sums, and counters that lie. How a sample can be overtaken: together.py."""

import errno
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.core import events as ev
from nodeward.core.modes import Mode
from nodeward.core.workload import ContainerSpec, PodSpec, PodUid
from nodeward.features.keys import device_ids
from nodeward.features.keys.device_ids import GROW_NS
from nodeward.features.keys.rows import KeyRow
from nodeward.features.keys.rule import PodKeys, count, together
from nodeward.features.keys.settings import KeyKind, KeysSettings
from nodeward.features.keys.state import Grant, Offer
from nodeward.features.keys.view import key_rows
from nodeward.features.root import State
from nodeward.features.settings import EngineSettings
from nodeward.neighbours.cgroups.hierarchy import Tree
from nodeward.neighbours.cgroups.keys import KeyReader
from nodeward_sim.doubles.kernel import SimKernel
from tests.faults import FaultyFiles
from tests.unit.features.build import Told, there

NEGATIVE = -1
"""What the kernel's counter is after a refused charge was taken back twice (2**64 - 1 in the file)."""


def claims(*pods: tuple[int, int]) -> list[PodKeys]:
    return [PodKeys(entitled, (charged, charged)) for entitled, charged in pods]


@pytest.mark.parametrize(
    ("pods", "used", "foreign", "free"),
    [
        pytest.param([], 0, 0, 16, id="nobody"),
        pytest.param([(1, 1)] * 4, 4, 0, 12, id="four-promised-and-charged"),
        pytest.param([(1, 1)] * 4, 6, 2, 10, id="two-foreign-beside-four-charged"),
        pytest.param([(1, 0)] * 4, 6, 6, 6, id="four-pending-beside-six-foreign"),
        pytest.param([(1, 3)], 3, 0, 13, id="more-charged-than-promised"),
        pytest.param([(0, 2)], 2, 0, 14, id="charged-without-a-promise"),
        pytest.param([(1, 0)] * 20, 0, 0, 0, id="more-promised-than-there-are"),
        pytest.param([(1, 1)], 0, 0, 15, id="a-charge-that-the-root-does-not-show-yet"),
    ],
)
def test_what_is_free_is_what_nobody_holds_and_nobody_was_promised(
    pods: list[tuple[int, int]], used: int, foreign: int, free: int
) -> None:
    sums = count(16, 0, (used, used), claims(*pods))
    assert (sums.foreign, sums.free) == (foreign, free)


def test_the_keys_of_a_pod_that_cannot_be_read_count_twice_rather_than_not_at_all() -> None:
    assert count(10, 0, (1, 1), [PodKeys(1, ())]).free == 8


def test_no_use_is_taken_for_a_pods_after_one_of_their_counters_went_below_zero() -> None:
    sums = count(10, 1, (3, 3), [PodKeys(1, (NEGATIVE, 0)), PodKeys(2, (2, 2))])
    assert sums.blind
    assert not sums.wrapped
    assert sums.free == 10 - 3 - 3 - 1


amounts = st.integers(0, 6)


@given(
    st.integers(0, 20),
    st.lists(amounts, min_size=1, max_size=3).map(tuple),
    st.lists(st.builds(PodKeys, amounts, st.lists(amounts, max_size=3).map(tuple)), max_size=5),
    st.integers(0, 3),
)
def test_one_more_promise_charge_or_foreign_key_never_frees_one(
    capacity: int, roots: tuple[int, ...], pods: list[PodKeys], reserve: int
) -> None:
    free = count(capacity, reserve, roots, pods).free
    assert 0 <= free <= capacity
    assert count(capacity, reserve, (*roots, max(roots) + 1), pods).free <= free
    assert count(capacity, reserve, roots, [*pods, PodKeys(1, ())]).free <= free
    assert count(capacity, reserve + 1, roots, pods).free <= free
    for place, pod in enumerate(pods):
        more = PodKeys(pod.entitled + 1, pod.charged)
        assert count(capacity, reserve, roots, [*pods[:place], more, *pods[place + 1 :]]).free <= free


@given(
    st.lists(st.builds(PodKeys, amounts, st.lists(st.integers(NEGATIVE, 6), max_size=3).map(tuple)), max_size=5),
    st.lists(st.integers(NEGATIVE, 20), min_size=1, max_size=3).map(tuple),
    st.integers(0, 5),
)
def test_pods_counted_together_count_as_each_by_itself(pods: list[PodKeys], roots: tuple[int, ...], cut: int) -> None:
    assert count(20, 1, roots, [together(pods[:cut]), *pods[cut:]]) == count(20, 1, roots, pods)


A, B = PodUid("a"), PodUid("b")
NAMES = [device_ids.id_name("tdx", number) for number in range(16)]


def offer(granted: int = 0, published: int = 0, size: int = 16, held: device_ids.Held | None = None) -> Offer:
    grants = {name: Grant(1, 1) for name in NAMES[:granted]}
    return Offer(size, grants, published, held=held or {})


def test_a_view_that_says_what_the_one_before_said_leaves_the_tables_as_they_are() -> None:
    """So what was found by a walk over them is kept: a view comes every two seconds."""
    view = {A: (NAMES[0],), B: (NAMES[1],)}
    now = offer(granted=2)
    for second in range(2, 12, 2):
        now = device_ids.viewed(now, dict(view), [B], {}, second * 1_000_000_000, 2)
    after = device_ids.viewed(now, dict(view), [B], {}, 12_000_000_000, 2)
    assert (after.grants is now.grants, after.held is now.held, after.over is now.over) == (True, True, True)
    assert after.passed is now.passed
    assert device_ids.viewed(after, {A: (NAMES[0],)}, [], {}, 14_000_000_000, 2).grants is not now.grants


def test_what_is_published_shrinks_at_once_and_grows_after_samples_that_agree() -> None:
    now = device_ids.publish(offer(published=3), 16, 1, 10)
    assert now.published == 1
    now = device_ids.publish(now, 16, 8, 20)
    now = device_ids.publish(now, 16, 5, 30)
    assert now.published == 1
    assert device_ids.publish(now, 16, 9, 20 + GROW_NS - 1).published == 1
    assert device_ids.publish(now, 16, 9, 20 + GROW_NS).published == 5
    assert device_ids.publish(now, 16, 0, 20 + GROW_NS).published == 0


@given(st.integers(0, 5), st.integers(0, 6), st.dictionaries(st.integers(0, 6), st.integers(0, 2)))
def test_as_many_of_those_that_nobody_was_promised_are_healthy_as_are_published(
    size: int, published: int, times: dict[int, int]
) -> None:
    grants = {NAMES[number]: Grant(1, 1, amount) for number, amount in times.items()}
    listed = dict(device_ids.devices(Offer(size, grants, published), "tdx"))
    beyond = [number for number, amount in times.items() if number >= size and amount]
    assert list(listed) == [NAMES[number] for number in (*beyond, *range(size))]
    rest = [healthy for name, healthy in listed.items() if name not in grants or not grants[name].times]
    assert all(listed[NAMES[number]] for number, amount in times.items() if amount)
    assert rest == [place < published for place in range(len(rest))]


# ---- counters that say too little, nonsense or nothing: no key is called free that is not ----------------------------


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
    "sound": Case("", says(""), TRUE_FREE),
    "node: empty": Case(NODE, says(""), None),
    "node: cut short": Case(NODE, says("td"), None),
    "node: cut short in the number": Case(NODE, says("tdx 1"), None),
    "node: no number": Case(NODE, says("tdx many\n"), None),
    "node: other resources only": Case(NODE, says("sgx_epc 4096\nfuture_key 3\n"), None),
    "node: another resource too": Case(NODE, says("future_key 3\ntdx 5\n"), TRUE_FREE),
    "node: below zero": Case(NODE, says(HUGE), 0),
    "node: below zero at the first read": Case(NODE, then(HUGE, "tdx 5\n"), 0),
    "node: not text": Case(NODE, says("\0\0\0"), None),
    "node: too large": Case(NODE, says("tdx 5\n" * 9999), None),
    "node: unreadable": Case(NODE, fails(errno.EIO), None),
    "node: shrinks within a sample": Case(NODE, then("tdx 9\n", "tdx 5\n"), TRUE_FREE - 4),
    "node: empty at the first read": Case(NODE, then("", "tdx 5\n"), None),
    "node: empty at the second read": Case(NODE, then("tdx 5\n", ""), None),
    "node: other resources only at the second read": Case(NODE, then("tdx 5\n", "sgx_epc 4096\n"), None),
    "node: unreadable at the second read": Case(NODE, then("tdx 5\n", errno.EIO), None),
    "pod: empty": Case(POD, says(""), TRUE_FREE - 2),
    "pod: cut short": Case(POD, says("tdx"), TRUE_FREE - 2),
    "pod: below zero": Case(POD, says(HUGE), TRUE_FREE - 2),
    "pod: grows within a sample": Case(POD, then("tdx 2\n", "tdx 5\n"), TRUE_FREE - 2),
    "pod: unreadable": Case(POD, fails(errno.EIO), TRUE_FREE - 2),
    "pod: shrinks within a sample": Case(POD, then("tdx 2\n", "tdx 0\n"), TRUE_FREE - 2),
    "pod: more than the node": Case(POD, says("tdx 9\n"), TRUE_FREE - 3),
    "capacity: empty": Case(CAPACITY, says(""), None),
    "capacity: cut short": Case(CAPACITY, says("tdx"), None),
    "capacity: unreadable": Case(CAPACITY, fails(errno.EIO), None),
    "capacity: below zero": Case(CAPACITY, says(HUGE), 0),
    "capacity: less than is used": Case(CAPACITY, says("tdx 4\n"), 0),
}


def node(files: Callable[[SimKernel], FaultyFiles], kind: KeyKind, kernel: SimKernel | None = None) -> KeyRow:
    """What is shown of the keys, by a real reader over these files."""
    kernel = kernel or SimKernel({"tdx": 16})
    for path in ("/kubepods/poda", "/machine.slice"):
        kernel.make_cgroup(f"{ROOT}{path}")
    for path in ("", "/kubepods"):
        kernel.write(f"{ROOT}{path}/cgroup.subtree_control", b"+misc")
    kernel.charge(f"{ROOT}/kubepods/poda", "tdx", 2)
    kernel.charge(f"{ROOT}/machine.slice", "tdx", 3)
    tell = Told(State(settings=EngineSettings(keys=KeysSettings(Mode.OBSERVE, {"tdx": kind}))))
    containers = (ContainerSpec("vm", declared={TDX: 3}),)
    tell(ev.PodSeen(PodSpec(PodUid("a"), "shop", "a", containers)))
    odd = files(kernel)
    tell(there(KeyReader(odd, Tree(odd, ROOT)).look(("tdx",), {PodUid("a"): "/kubepods/poda"}, True, 0)))
    (row,) = key_rows(tell.state, tell.at_ns)
    return row


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_no_more_is_free_than_there_is(case: Case) -> None:
    row = node(lambda kernel: Odd(kernel, case.path, case.said), KeyKind((TDX,)))
    assert row.free == case.free


def test_a_root_without_a_counter_is_told_from_a_kernel_without_keys() -> None:
    row = node(lambda kernel: Odd(kernel, NODE, fails(errno.ENOENT)), KeyKind((TDX,)))
    assert (row.capacity, row.free) == (16, None)
    assert row.sentence.startswith("the root's misc.current did not show them")


def test_pods_whose_counters_vanish_are_a_finding() -> None:
    row = node(lambda kernel: Odd(kernel, POD, fails(errno.ENOENT)), KeyKind((TDX,)))
    (found,) = row.findings
    assert found.startswith("misc.current of 1 pod(s) that were promised keys cannot be read (shop/a): what they hold")


def test_where_the_root_is_hidden_the_settings_number_holds_with_a_warning() -> None:
    """Given kind: no misc.capacity, since what looks like the root is not."""
    kind = KeyKind((TDX,), capacity=16)
    hidden = node(lambda kernel: Odd(kernel, CAPACITY, fails(errno.ENOENT)), kind)
    assert (hidden.capacity, hidden.free) == (16, TRUE_FREE)
    assert any("misc.capacity" in finding and "16" in finding for finding in hidden.findings)
    assert node(FaultyFiles, kind).findings == ()
