"""What the kernel double offers beside the contract: its constructor, its own methods, and sums that always hold."""

import errno
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from nodeward.doubles.kernel import CGROUP_MOUNT, HeldCharge, SimKernel
from nodeward.doubles.misc_controller import MAX, RefusalError, parse_u64

ROOT = CGROUP_MOUNT


def with_misc(capacity: dict[str, int]) -> SimKernel:
    kernel = SimKernel(capacity)
    kernel.write(f"{ROOT}/cgroup.subtree_control", b"+misc")
    return kernel


def test_four_resources_by_default() -> None:
    kernel = with_misc({"tdx": 3, "sgx_epc": 4096})
    kernel.make_cgroup(f"{ROOT}/a")
    assert kernel.read(f"{ROOT}/misc.capacity", 99) == b"sgx_epc 4096\ntdx 3\n"
    kernel.write(f"{ROOT}/a/misc.max", b"sgx_epc 8192\n")
    assert kernel.read(f"{ROOT}/a/misc.max", 99) == b"sgx_epc 8192\ntdx max\n"


def test_kernel_without_the_misc_controller() -> None:
    kernel = SimKernel({}, controllers=("cpu", "pids"))
    assert kernel.read(f"{ROOT}/cgroup.controllers", 99) == b"cpu pids\n"
    assert not [name for name in kernel.listdir(ROOT) if name.startswith("misc")]
    with pytest.raises(FileNotFoundError):
        kernel.write(f"{ROOT}/cgroup.subtree_control", b"+misc")
    with pytest.raises(OSError, match="Invalid argument"):
        kernel.charge(ROOT, "sev", 1)


def test_names_that_no_kernel_has_are_refused() -> None:
    with pytest.raises(ValueError, match="gold"):
        SimKernel({"gold": 1})
    with pytest.raises(ValueError, match="msic"):
        SimKernel({}, controllers=("msic",))


def test_capacity_of_an_unknown_resource() -> None:
    with pytest.raises(OSError, match="Invalid argument") as caught:
        SimKernel({}).set_capacity("gold", 1)
    assert caught.value.errno == errno.EINVAL


def test_make_cgroup_makes_parents_and_may_be_repeated() -> None:
    kernel = SimKernel({})
    kernel.make_cgroup(f"{ROOT}/kubepods.slice/pod.slice/c.scope")
    kernel.make_cgroup(f"{ROOT}/kubepods.slice/pod.slice/c.scope")
    assert kernel.stat(f"{ROOT}/kubepods.slice/pod.slice/c.scope").is_dir
    with pytest.raises(ValueError, match="not beneath"):
        kernel.make_cgroup("/run/x")
    kernel.remove_cgroup(f"{ROOT}/kubepods.slice/pod.slice/c.scope")
    assert "c.scope" not in kernel.listdir(f"{ROOT}/kubepods.slice/pod.slice")


def test_held_charges_tell_orphans() -> None:
    kernel = with_misc({"sev": 9})
    kernel.make_cgroup(f"{ROOT}/a")
    kernel.charge(f"{ROOT}/a", "sev", 2)
    assert kernel.charges() == (HeldCharge(f"{ROOT}/a", "sev", 2, orphaned=False),)
    kernel.remove_cgroup(f"{ROOT}/a")
    assert kernel.charges() == (HeldCharge(f"{ROOT}/a", "sev", 2, orphaned=True),)
    kernel.uncharge(f"{ROOT}/a", "sev", 2)
    assert kernel.charges() == ()
    with pytest.raises(OSError, match=r"out of range") as caught:
        kernel.uncharge(f"{ROOT}/a", "sev", 1)
    assert caught.value.errno == errno.ERANGE


def test_handles_are_small_and_used_again() -> None:
    kernel = with_misc({"sev": 9})
    first, second = kernel.open(f"{ROOT}/misc.capacity"), kernel.open(f"{ROOT}/misc.current")
    assert (first, second) == (3, 4)
    kernel.close(first)
    assert kernel.open(f"{ROOT}/misc.current") == 3


def test_paths_are_checked_as_on_the_host() -> None:
    with pytest.raises(ValueError, match="relative"):
        SimKernel({}).listdir("run")
    assert SimKernel({}).listdir("/sys/fs//cgroup/.") == SimKernel({}).listdir(ROOT)


@pytest.mark.parametrize("number", [0, 1, 7, 8, 9, 4096, MAX - 1, MAX])
def test_numbers_in_every_base(number: int) -> None:
    assert [parse_u64(form) for form in (str(number), hex(number), f"0{number:o}", f"+{number}")] == [number] * 4


def test_number_beyond_64_bits() -> None:
    with pytest.raises(RefusalError) as caught:
        parse_u64(hex(MAX + 1))
    assert caught.value.number == errno.ERANGE


@dataclass(eq=False)
class Holder:
    """The model of one charge: which counters it is in. A counter is an open misc.current: it dies with its state."""

    path: str
    amount: int
    counters: frozenset[int]


class ChargingMachine(RuleBasedStateMachine):
    """Any order of cgroups made and removed, limits, charges and controller switches: counters add up to what is
    held.
    """

    cgroups = Bundle("cgroups")

    @initialize(target=cgroups)
    def start(self) -> str:
        self.kernel = with_misc({"sev": 20})
        self.handles: dict[str, int] = {}
        self.holders: list[Holder] = []
        return ROOT

    @rule(target=cgroups, parent=cgroups, name=st.sampled_from("ab"))
    def make(self, parent: str, name: str) -> str:
        self.kernel.make_cgroup(f"{parent}/{name}")
        return f"{parent}/{name}"

    @rule(cgroup=cgroups)
    def remove(self, cgroup: str) -> None:
        self.attempt(lambda: self.kernel.remove_cgroup(cgroup))

    @rule(cgroup=cgroups, word=st.sampled_from([b"+misc", b"+misc", b"-misc"]))
    def control(self, cgroup: str, word: bytes) -> None:
        self.attempt(lambda: self.kernel.write(f"{cgroup}/cgroup.subtree_control", word))

    @rule(cgroup=cgroups, limit=st.integers(0, 20))
    def limit(self, cgroup: str, limit: int) -> None:
        self.attempt(lambda: self.kernel.write(f"{cgroup}/misc.max", b"sev %d" % limit))

    @rule(cgroup=cgroups, amount=st.integers(1, 12))
    def charge(self, cgroup: str, amount: int) -> None:
        if not self.attempt(lambda: self.kernel.charge(cgroup, "sev", amount)):
            return  # The sums below say that nothing of it was kept.
        levels = [place for place in self.live() if cgroup == place or cgroup.startswith(place + "/")]
        self.holders.append(Holder(cgroup, amount, frozenset(self.counter(place) for place in levels)))
        for place in levels:
            assert self.number(place, "current") <= min(20, self.number(place, "max"))

    @rule(data=st.data())
    def uncharge(self, data: st.DataObject) -> None:
        if not self.holders:
            return
        path = data.draw(st.sampled_from([one.path for one in self.holders]))
        held = [one for one in self.holders if one.path == path]
        amount = data.draw(st.integers(1, sum(one.amount for one in held)))
        self.kernel.uncharge(path, "sev", amount)
        for one in held:
            given = min(amount, one.amount)
            one.amount -= given
            amount -= given
        self.holders = [one for one in self.holders if one.amount]

    @invariant()
    def every_counter_is_the_sum_of_its_holders(self) -> None:
        for place in self.live():
            counter = self.counter(place)
            held = sum(one.amount for one in self.holders if counter in one.counters)
            assert self.number(place, "current") == held, place

    @invariant()
    def parent_is_children_plus_own_plus_orphans(self) -> None:
        live = self.live()
        for place in live:
            below = {self.counter(child) for child in live if child.rpartition("/")[0] == place}
            children = sum(self.number(child, "current") for child in live if child.rpartition("/")[0] == place)
            mine = [
                one.amount for one in self.holders if self.counter(place) in one.counters and not one.counters & below
            ]
            assert self.number(place, "current") == children + sum(mine), place

    def live(self, cgroup: str = ROOT) -> list[str]:
        """Cgroups that have misc, from the root downwards."""
        names = self.kernel.listdir(cgroup)
        if "misc.current" not in names:
            return []
        return [cgroup, *(place for name in "ab" if name in names for place in self.live(f"{cgroup}/{name}"))]

    def counter(self, cgroup: str) -> int:
        """A handle of the misc.current that is there now; never the number of one that died."""
        handle = self.handles.get(cgroup, -1)
        if not self.attempt(lambda: self.kernel.pread(handle, 99)):
            handle = self.handles[cgroup] = self.kernel.open(f"{cgroup}/misc.current")
        return handle

    def number(self, cgroup: str, file: str) -> int:
        if cgroup == ROOT and file == "max":
            return MAX
        word = self.kernel.read(f"{cgroup}/misc.{file}", 99).split()[1]
        return MAX if word == b"max" else int(word)

    def attempt(self, act: Callable[[], object]) -> bool:
        try:
            act()
        except OSError:
            return False
        return True


ChargingMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestCharging = ChargingMachine.TestCase
