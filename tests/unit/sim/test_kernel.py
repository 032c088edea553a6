"""The kernel double's sums, which always hold. What else it does: tests/contract/kernel."""

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from nodeward.doubles.kernel import CGROUP_MOUNT, SimKernel
from nodeward.doubles.misc_controller import MAX

ROOT = CGROUP_MOUNT


def with_misc(capacity: dict[str, int]) -> SimKernel:
    kernel = SimKernel(capacity)
    kernel.write(f"{ROOT}/cgroup.subtree_control", b"+misc")
    return kernel


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
