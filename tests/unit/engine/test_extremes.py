"""Pods of 500 containers, names and paths at their limits, and numbers that do not fit where they come from."""

import pytest

from nodeward.doubles.kernel import SimKernel
from nodeward.edges.cgroups.hierarchy import Tree
from nodeward.edges.cgroups.sampler import Reader
from nodeward.edges.nri import mapping
from nodeward.engine.limits import promise as promise_module
from nodeward.engine.pods.budget import Outline
from nodeward.engine.show.view import node_view
from nodeward.model import events as ev
from nodeward.model.decision import Adjustment, Goal, Reason
from nodeward.model.quantity import MAX_VALUE
from nodeward.model.settings import LimitsSettings
from nodeward.model.workload import PodSpec
from nodeward.proto import nri_pb2
from nodeward.wire.cgroup_paths import MAX_PATH
from tests.faults import FaultyFiles
from tests.goals import slots_of, target
from tests.lanes import InlineLane
from tests.unit.engine.build import (
    EPC,
    ManualClock,
    Told,
    container,
    container_spec,
    known,
    node,
    pod_spec,
    sandbox,
    started,
    value_of,
)

ROOT = "/sys/fs/cgroup"
MANY = 500
PATH = "/kubepods/podA/A-app"
LIMIT = target(f"misc.max:{EPC}:{PATH}")


def crowd(declared: int = 1) -> Told:
    """A node on which a pod of 500 containers runs; every other one declares."""
    told = node()
    told(ev.PodSeen(pod_spec("A", *(container_spec(f"c{n}", declared if n % 2 else None) for n in range(MANY)))))
    for n in range(MANY):
        told(started("A", f"c{n}"))
    return told


def test_a_decision_on_one_of_500_containers_asks_for_one_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    told = crowd()
    asked: list[str] = []
    real = promise_module._from_spec

    def counted(spec: PodSpec, name: str, rule: LimitsSettings, known: Outline | None) -> promise_module.Promise:
        asked.append(name)
        return real(spec, name, rule, known)

    monkeypatch.setattr(promise_module, "_from_spec", counted)
    decision = told(started("A", "c7"))
    assert (asked, [goal.value for goal in decision.goals]) == (["c7"], ["1"])
    told(ev.Stopped(sandbox("A"), container("A", "c7")))
    assert asked == ["c7"]
    told(ev.PodSeen(pod_spec("A", *(container_spec(f"c{n}", 2) for n in range(MANY)))))
    assert len(asked) == MANY, "one a container that runs, and each once"


def test_a_cgroup_path_beyond_all_limits_is_no_path() -> None:
    raw = nri_pb2.Container(id="c", pod_sandbox_id="s-A", name="app")
    raw.linux.cgroups_path = "/" + "x" * (MAX_PATH - 1)
    assert len(mapping.container(raw).cgroups_path) == MAX_PATH
    raw.linux.cgroups_path += "x"
    made = mapping.container(raw)
    assert made.cgroups_path == ""

    told = known()
    assert value_of(told(ev.Creating(sandbox("A"), made, ask_id=1))) == Adjustment({"misc.max": "sgx_epc 5"}), (
        "the runtime sets it all the same"
    )
    assert [goal.target for goal in told(ev.Started(sandbox("A"), made)).goals if goal.target.where[-1:] == "c"] == []
    assert list(told.state.limits.wanted) == ["/kubepods/podA"]


def kernel_with_a_container() -> SimKernel:
    kernel = SimKernel({EPC: 1 << 40})
    kernel.make_cgroup(ROOT + PATH)
    kernel.mkdir("/var/lib/nodeward")
    for above in ("", "/kubepods", "/kubepods/podA"):
        kernel.write(f"{ROOT}{above}/cgroup.subtree_control", b"+misc")
    return kernel


class Vanishing(FaultyFiles):
    def __init__(self, kernel: SimKernel, before: int) -> None:
        super().__init__(kernel)
        self._kernel, self._before = kernel, before

    def _count(self, name: str, path: str) -> None:
        super()._count(name, path)
        if self.total == self._before:
            self._kernel.rmdir(ROOT + PATH)


def test_a_cgroup_may_vanish_before_any_call_of_a_reading() -> None:
    whole = FaultyFiles(kernel_with_a_container())
    Reader(whole, Tree(whole, ROOT)).read([PATH], with_root=False)
    for call in range(1, whole.total + 1):
        kernel = kernel_with_a_container()
        reader = Reader(Vanishing(kernel, call), Tree(Vanishing(kernel, call), ROOT))
        assert reader.read([PATH], with_root=False).gone == (PATH,)
        assert (reader.open_files, kernel._handles) == (0, {})


@pytest.mark.parametrize("amount", [MAX_VALUE + 1, 2**64 - 1])
def test_limits_near_the_largest_numbers_are_written_and_read_back(amount: int) -> None:
    kernel = kernel_with_a_container()
    told = node()
    told(started("A", "app", {"epc-limit.nri.io": str(amount)}))
    lane = InlineLane()
    slots = slots_of(lane, kernel, ManualClock())

    def tell(event: ev.Event) -> int:
        told(event)
        return told.state.seq

    slots.connect(tell, lambda: None)
    slots.set([Goal(LIMIT, str(amount), Reason("declared", ("app",)))])
    lane.drain()

    reading = Reader(kernel, Tree(kernel, ROOT)).read([PATH]).readings[PATH]
    assert reading.limit == ({} if amount == 2**64 - 1 else {EPC: amount})
    assert told(ev.Sampled({PATH: reading}, as_of=told.state.seq)).notes == ()
    assert next(row for row in node_view(told.state, told.at_ns, {}).rows if row.cgroup == PATH).state == "enforced"
