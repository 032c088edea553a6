"""The core, its slots and a kernel double, whatever happens in whatever order."""

import errno
from collections.abc import Awaitable
from dataclasses import dataclass, replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nodeward.app.host.core import Core
from nodeward.doubles.kernel import SimKernel
from nodeward.edges.cgroups.hierarchy import Tree
from nodeward.edges.cgroups.sampler import Reader
from nodeward.engine.pods.found import is_known
from nodeward.engine.state.root import State
from nodeward.model import events as ev
from nodeward.model.decision import Final
from nodeward.model.workload import ContainerId, PodUid, Role
from tests.goals import slots_of
from tests.lanes import InlineLane
from tests.unit.engine.build import EPC, SECOND, ManualClock, container, container_spec, pod_spec, sandbox

ROOT = "/sys/fs/cgroup"
PODS = ("A", "B", "C")
ROLES = {"init": Role.INIT, "side": Role.SIDECAR, "app": Role.REGULAR, "db": Role.REGULAR}
ORDERS = (("app", "db"), ("init", "side", "app", "db"), ("side", "init", "app", "db"))
"""Which containers a pod has, in the order of its spec."""
pods = st.sampled_from(PODS)
names = st.sampled_from(tuple(ROLES))
amounts = st.none() | st.sampled_from([0, 4, 9])
init_amounts = st.none() | st.sampled_from([4, 30])


@dataclass(slots=True)
class Asked:
    """What a pod asks for, and what that promises: worked out here for each order, on purpose not with the engine's
    code."""

    declared: dict[str, int | None]
    """By container, in the order of the spec."""
    overhead: int = 0

    @property
    def declares(self) -> bool:
        """Whether the pod names the resource at all; a RuntimeClass without overhead does not."""
        return self.overhead > 0 or any(amount is not None for amount in self.declared.values())

    def promised(self, name: str) -> int:
        """What the container is promised, in a pod that declares."""
        return self.declared[name] or 0

    @property
    def budget(self) -> int:
        """What the pod is promised: its most demanding moment, and the overhead beside it."""
        running = self.promised("app") + self.promised("db")
        if "init" not in self.declared:
            return running + self.overhead
        side, init = self.promised("side"), self.promised("init")
        beside_init = side if list(self.declared).index("side") < list(self.declared).index("init") else 0
        return max(beside_init + init, side + running) + self.overhead


class NoFacts:
    async def fetch(self, fact: str, key: str) -> str:
        return "nobody answers"


async def no_commit(record: str) -> str:
    return record


class NodeMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.kernel, self.clock, self.lane = SimKernel({EPC: 1000}), ManualClock(), InlineLane()
        self.kernel.make_cgroup(f"{ROOT}/kubepods")
        self.kernel.mkdir("/var/lib/nodeward")
        self.slots = slots_of(self.lane, self.kernel, self.clock)
        self.core = Core(State(), self.clock, self.slots, NoFacts(), no_commit)
        self.core.tell(ev.CapacityRead(controller=True, capacity={EPC: 1000}))
        self.reader = Reader(self.kernel, Tree(self.kernel, ROOT))
        self.asked: dict[str, Asked] = {}
        self.running: dict[str, list[str]] = {}
        self.reached: dict[str, int] = {}

    def where(self, uid: str, name: str) -> str:
        return f"{ROOT}{container(uid, name).cgroups_path}"

    def held(self, path: str) -> int:
        """What is charged to this cgroup and to those below it."""
        charges = self.kernel.charges()
        return sum(one.amount for one in charges if one.path == path or one.path.startswith(f"{path}/"))

    @rule(
        uid=pods,
        app=amounts,
        db=amounts,
        known=st.booleans(),
        told=st.booleans(),
        init=init_amounts,
        side=amounts,
        order=st.sampled_from(ORDERS),
        overhead=st.sampled_from([0, 3]),
    )
    def pod_comes(
        self,
        uid: str,
        app: int | None,
        db: int | None,
        known: bool,
        told: bool,
        init: int | None = None,
        side: int | None = None,
        order: tuple[str, ...] = ORDERS[0],
        overhead: int = 0,
    ) -> None:
        if uid in self.asked:
            return
        declared = {"app": app, "db": db, "init": init, "side": side}
        self.asked[uid] = Asked({name: declared[name] for name in order}, overhead)
        self.running[uid] = []
        self.kernel.make_cgroup(f"{ROOT}/kubepods/pod{uid}")
        if told or sandbox(uid).id in self.core.state.pods.ended:
            self.core.tell(ev.SandboxStarted(sandbox(uid)))
        if known:
            self.spec_comes(uid)

    @rule(uid=pods)
    def spec_comes(self, uid: str) -> None:
        if uid in self.asked:
            asked = self.asked[uid]
            containers = [container_spec(name, epc, ROLES[name]) for name, epc in asked.declared.items()]
            ids = {name: str(container(uid, name).id) for name in self.running[uid]}
            spec = pod_spec(uid, *containers, overhead=asked.overhead)
            self.core.tell(ev.PodSeen(replace(spec, container_ids=ids)))

    @rule(uid=pods, app=amounts)
    def spec_changes(self, uid: str, app: int | None) -> None:
        if uid in self.asked:
            self.asked[uid].declared["app"] = app
            self.reached = {}
            self.spec_comes(uid)

    @rule(uid=pods, name=names, ends=st.sampled_from(["started", "failed", "silence"]))
    def container_is_created(self, uid: str, name: str, ends: str) -> None:
        if uid not in self.asked or name not in self.asked[uid].declared or name in self.running[uid]:
            return
        answer = self.core.ask(ev.Creating(sandbox(uid), container(uid, name)), SECOND)
        assert isinstance(answer, Final | Awaitable)
        assert isinstance(answer, Final), "the API server is away, so nothing is waited for"
        if ends == "failed":  # NRI has no word for it: the runtime stops and removes what was never there
            self.core.tell(ev.Stopped(sandbox(uid), container(uid, name)))
            self.core.tell(ev.Removed(sandbox(uid).id, container(uid, name).id))
        if ends == "started":
            self.kernel.make_cgroup(self.where(uid, name))
            self.running[uid].append(name)
            self.core.tell(ev.Created(sandbox(uid), container(uid, name)))
            self.core.tell(ev.Started(sandbox(uid), container(uid, name)))

    @rule(uid=pods, name=names)
    def container_is_lost(self, uid: str, name: str) -> None:
        """The runtime tells nothing of it, not even that the pod is there."""
        if uid not in self.asked or name not in self.asked[uid].declared or name in self.running[uid]:
            return
        if container(uid, name).id in self.core.state.pods.ended:
            return
        self.kernel.make_cgroup(self.where(uid, name))
        self.running[uid].append(name)

    @rule(uid=pods, name=names)
    def container_stops(self, uid: str, name: str) -> None:
        if name not in self.running.get(uid, ()):
            return
        path = self.where(uid, name)
        for held in self.kernel.charges():
            if held.path == path:
                self.kernel.uncharge(path, EPC, held.amount)
        self.kernel.remove_cgroup(path)
        self.running[uid].remove(name)
        self.reached.pop(path, None)
        self.core.tell(ev.Stopped(sandbox(uid), container(uid, name)))
        self.core.tell(ev.Removed(sandbox(uid).id, container(uid, name).id))

    @rule(uid=pods, spec_first=st.booleans())
    def pod_goes(self, uid: str, spec_first: bool) -> None:
        if uid not in self.asked:
            return
        for name in list(self.running[uid]):
            self.container_stops(uid, name)
        self.kernel.remove_cgroup(f"{ROOT}/kubepods/pod{uid}")
        self.reached.pop(f"{ROOT}/kubepods/pod{uid}", None)
        steps: list[ev.Event] = [ev.SandboxStopped(sandbox(uid)), ev.SandboxRemoved(sandbox(uid))]
        steps.insert(0 if spec_first else 2, ev.PodGone(PodUid(uid)))
        for event in steps:
            self.core.tell(event)
        del self.asked[uid], self.running[uid]

    @rule(uid=pods, name=names, amount=st.integers(1, 12))
    def charge(self, uid: str, name: str, amount: int) -> None:
        if name not in self.running.get(uid, ()):
            return
        path = self.where(uid, name)
        try:
            self.kernel.charge(path, EPC, amount)
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.EINVAL):
                raise
            return
        for level in (path, path.rpartition("/")[0]):
            if level in self.reached:
                held = self.held(level)
                assert held <= self.reached[level], f"{level} holds {held}, promised {self.reached[level]}"

    @rule(uid=pods, name=names, text=st.sampled_from(["max", "1", "77"]))
    def somebody_writes(self, uid: str, name: str, text: str) -> None:
        if name in self.running.get(uid, ()):
            try:
                self.kernel.write(f"{self.where(uid, name)}/misc.max", f"{EPC} {text}".encode())
            except OSError:
                return
            self.reached.pop(self.where(uid, name), None)

    @rule(amount=st.sampled_from([0, 500, 1000]))
    def capacity_changes(self, amount: int) -> None:
        self.kernel.set_capacity(EPC, amount)
        self.reached = {}

    @rule(most=st.integers(1, 3))
    def lane_works(self, most: int) -> None:
        self.lane.drain(most)

    @rule()
    def sample(self) -> None:
        as_of = self.core.seq()
        seen = self.reader.read(list(self.core.state.limits.wanted))
        if seen.capacity is not None:
            self.core.tell(seen.capacity)
        self.core.tell(ev.Sampled(readings=seen.readings, as_of=as_of, gone=seen.gone))
        there = [(container(uid, name), PodUid(uid)) for uid, names_ in self.running.items() for name in names_]
        lost = tuple(
            ev.FoundCgroup(one.cgroups_path, one.id, uid)
            for one, uid in there
            if not is_known(self.core.state.pods, one.id)
        )
        if lost:
            self.core.tell(ev.CgroupsFound(lost, as_of))

    def settle(self) -> None:
        self.clock.ns += 301 * SECOND  # repairs are allowed again, creates of which nothing came are given up
        for _ in range(2):
            self.lane.drain()
            self.sample()
            self.core.wake()
        self.lane.drain()

    @rule()
    def after_settling_limits_are_in_the_kernel(self) -> None:
        self.settle()
        known = self.core.state.pods.specs
        if not self.core.state.limits.capacity:
            return
        for uid, there in self.running.items():
            if PodUid(uid) not in known or PodUid(uid) not in self.core.state.pods.sandbox_of:
                continue
            self.spec_comes(uid)  # the status names containers that were found by their cgroups
            self.settle()
            asked = self.asked[uid]
            wanted = {f"{ROOT}/kubepods/pod{uid}": asked.budget}
            wanted |= {self.where(uid, name): asked.promised(name) for name in there}
            for path, limit in wanted.items():
                if asked.declares:
                    text = self.kernel.read(f"{path}/misc.max", 999).decode()
                    assert text == f"{EPC} {limit}\n", (path, text, limit)
                    if self.held(path) <= limit:
                        self.reached[path] = limit

    @precondition(lambda self: not self.asked)
    @rule()
    def nothing_is_left_of_nothing(self) -> None:
        self.settle()
        state = self.core.state
        assert not (state.pods.specs)
        assert not (state.pods.sandboxes)
        assert not (state.pods.containers)
        assert not (state.pods.by_pod)
        assert not (state.pods.sandbox_of)
        assert not (state.limits.wanted)
        assert not (state.limits.readings)
        assert not (state.asks)
        assert self.slots.count <= 2, "only the controller of the two cgroups that outlive pods"
        self.sample()
        assert self.reader.open_files == 0

    @invariant()
    def indexes_are_what_they_are_recomputed_to_be(self) -> None:
        pods = self.core.state.pods
        by_pod: dict[PodUid, list[ContainerId]] = {}
        for one, known in pods.containers.items():
            by_pod.setdefault(known.pod_uid, []).append(one)
        assert {uid: sorted(ids) for uid, ids in pods.by_pod.items()} == {
            uid: sorted(ids) for uid, ids in by_pod.items()
        }
        assert pods.sandbox_of == {known.sandbox.pod_uid: sid for sid, known in pods.sandboxes.items()}
        assert not pods.creating.keys() & pods.containers.keys()
        assert self.core.faults == {}

    def teardown(self) -> None:
        for uid in list(self.asked):
            self.pod_goes(uid, False)
        self.nothing_is_left_of_nothing()


NodeMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestNodeMachine = NodeMachine.TestCase


def test_a_limit_that_is_to_be_taken_back_ends_with_its_pod() -> None:
    """The history in which the machine found a goal that was tried for ever."""
    machine = NodeMachine()
    machine.pod_comes(uid="B", app=0, db=None, known=True, told=True)
    machine.after_settling_limits_are_in_the_kernel()
    machine.spec_changes(uid="B", app=None)
    machine.pod_goes(uid="B", spec_first=False)
    machine.nothing_is_left_of_nothing()
    machine.indexes_are_what_they_are_recomputed_to_be()


def test_the_pods_budget_holds_where_somebody_took_the_containers_limit_away() -> None:
    """A history that the machine seldom finds: a container over its own promise is held by its pod's."""
    machine = NodeMachine()
    machine.pod_comes(uid="A", app=4, db=4, known=True, told=True)
    machine.container_is_created(uid="A", name="app", ends="started")
    machine.after_settling_limits_are_in_the_kernel()
    assert machine.reached[f"{ROOT}/kubepods/podA"] == 8
    machine.somebody_writes(uid="A", name="app", text="max")
    for _ in range(3):
        machine.charge(uid="A", name="app", amount=6)
    assert machine.held(f"{ROOT}/kubepods/podA") == 6
