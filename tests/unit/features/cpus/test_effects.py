"""The record of CPU grants on a bad disk, pools that follow the use of CPUs, and when KubeVirt's labels are true."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from nodeward.core import events as ev
from nodeward.core.decision import Decision, Special
from nodeward.core.modes import Mode
from nodeward.core.topology import MemoryNode
from nodeward.core.workload import Phase, Qos
from nodeward.features.all import ENGINE
from nodeward.features.cpus import pool_settings as kinds
from nodeward.features.cpus import recorded
from nodeward.features.cpus.effects import grants as cpu_grants
from nodeward.features.cpus.effects import journal, watch
from nodeward.features.cpus.effects.kubevirt_label import wanted
from nodeward.features.cpus.policies.table import POLICIES, policy_of
from nodeward.features.cpus.pools import joined, left, resized
from nodeward.features.cpus.settings import Amount, AmountKind, CpusSettings, PolicySettings
from nodeward.features.cpus.state import Cpus
from nodeward.features.cpus.values import CpusRecalled, Denied, Grant, Ground, Part, Pool, Pools, Recorded
from nodeward.features.root import State
from nodeward.features.settings import EngineSettings
from nodeward.host.bounded import BoundedCalls
from nodeward.host.clock import SystemClock
from nodeward.host.facts import FactsByKind
from nodeward.host.hostfs import OsFiles
from nodeward.host.lanes import Lane, ThreadLane
from nodeward.host.runner import Core
from nodeward.host.slots import Slots
from nodeward.host.undo import BOOT_ID
from nodeward.neighbours.cgroups import memory_use
from nodeward.neighbours.sysfs import use
from nodeward_sim.doubles.kernel import SimKernel
from tests.lanes import InlineLane
from tests.patience import scaled
from tests.unit.features.build import ManualClock
from tests.unit.features.cpus.build import RESERVED_ONE, STATIC_RULES, home, machine, one, told
from tests.unit.features.cpus.machines import PolicyNode, W, ask

GRANT = Grant("uid/app", own=12, request_m=2000)
GRANTED = {"uid/app": GRANT}
RECORDED = Recorded(
    W, PolicySettings("static", reserved=Amount(AmountKind.CPUSET, 1)), Pools({"shared": Pool(0xFFF0)}, GRANTED)
)
MORE = replace(RECORDED, pools=Pools(RECORDED.pools.pools, {"uid/app": GRANT, "b/c": Grant("b/c", own=3)}))
CHANGE = recorded.change(RECORDED, MORE)


@pytest.fixture(name="path")
def a_file(tmp_path: Path) -> Path:
    boot = tmp_path / BOOT_ID[1:]
    boot.parent.mkdir(parents=True)
    boot.write_text("this-boot\n")
    (tmp_path / "run").mkdir()
    return tmp_path / "run/cpus.journal"


def read(path: Path) -> tuple[Recorded | None, str]:
    _, found = cpu_grants.read(OsFiles(str(path.parent.parent)), "/run")
    return found.recorded, found.fault


def whole(what: Recorded = RECORDED) -> bytes:
    return journal.whole(what, "this-boot")


def granted(*grants: Grant, pools: dict[str, Pool] | None = None) -> bytes:
    found = RECORDED.pools.pools if pools is None else pools
    return whole(replace(RECORDED, pools=Pools(found, {grant.key: grant for grant in grants})))


def balloons(pools: dict[str, Pool]) -> bytes:
    types = kinds.BalloonsSettings(balloon_types=(kinds.BalloonType("one", ("shop",)),))
    rules = PolicySettings("balloons", reserved=Amount(AmountKind.CPUSET, 1), balloons=types)
    return whole(Recorded(W, rules, Pools({"reserved": Pool(1), **pools})))


def test_what_was_written_is_read_again_and_a_line_that_nobody_has_seen_is_passed_over(path: Path) -> None:
    assert CHANGE is not None
    line = journal.line(CHANGE)
    path.write_bytes(whole() + line)
    assert read(path) == (MORE, "")
    path.write_bytes(whole() + line[:-1])
    assert read(path) == (RECORDED, "")


NO_POOL = "the pool 'one[0]' is none that its settings have"
TWICE = "alone, which another one has too"
BY_CLAIM = PolicySettings("claims", reserved=Amount(AmountKind.CPUSET, 1))
DAMAGED = {
    "torn in the middle": (whole() + b"{}x\n" + whole(), "line 2"),
    "cut off": (whole()[:-1], "its first line is cut off"),
    "nested": (b"[" * 100_000, "does not begin as"),
    "a pool of the policy is not there": (granted(pools={}), "it lacks the pool 'shared'"),
    "a CPU that is shared and somebody's own": (granted(GRANT, pools={"shared": Pool(0xFFFF)}), f"CPUs 2-3 {TWICE}"),
    "a balloon of no type": (balloons({"bogus[0]": Pool(2)}), NO_POOL.replace("one", "bogus", 1)),
    "a part that bears nothing": (balloons({"one[0]": Pool(2, apart=True, parts=(Part("one", 0, 2),))}), NO_POOL),
    "two balloons with one CPU": (
        balloons({f"one[{i}]": Pool(2, apart=True) for i in range(2)}),
        "the pool 'one[1]' has CPUs 1, which another one has too",
    ),
    "a CPU that the machine lacks": (granted(Grant("a/b", own=1 << 70)), "the machine has none of these"),
    "a CPU that two have alone": (granted(Grant("a/b", own=1), Grant("a/c", own=1)), TWICE),
    "CPUs lent to a claim that are not shared": (
        whole(Recorded(W, BY_CLAIM, Pools({"shared": Pool(1), "claim[a/b]": Pool(2, lent=4, apart=True)}))),
        "has CPUs 2 lent, which cannot be",
    ),
    "a pool that is not there": (granted(Grant("a/b", pool="nowhere")), "not a member of its pool"),
    "a policy of another version": (
        whole(replace(RECORDED, rules=PolicySettings("newer"))),
        "its policy 'newer' is not known",
    ),
    "of the version before": (whole().replace(b'"version":1', b'"version":0'), "of version 0, and this program reads"),
}


@pytest.mark.parametrize("case", [*DAMAGED, "a symbolic link"])
def test_a_damaged_record_is_void_and_named(path: Path, case: str) -> None:
    content, why = DAMAGED.get(case, (whole(), "is a symbolic link"))
    path.write_bytes(content)
    if case not in DAMAGED:
        path.symlink_to(path.rename(path.with_name("other")))
    found, fault = read(path)
    assert found is None
    assert why in fault
    assert "/run/cpus.journal" in fault


@pytest.mark.parametrize("content", [b"", journal.whole(RECORDED, "the boot before")], ids=["empty", "other boot"])
def test_what_another_boot_wrote_is_nothing(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert read(path) == (None, "")


class Disk(OsFiles):
    """While `goes_on` is unset, an append or a reading hangs; `full` takes nothing."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.goes_on, self.full, self.reads = threading.Event(), False, 0
        self.goes_on.set()

    def read(self, path: str, max_bytes: int, *, own: bool = False) -> bytes:
        self.reads += 1
        self.goes_on.wait(scaled(10.0))
        return super().read(path, max_bytes, own=own)

    def append(self, path: str, data: bytes, sync: bool) -> None:
        self.goes_on.wait(30)
        self._check()
        super().append(path, data, sync)

    def replace(self, path: str, data: bytes) -> None:
        self._check()
        super().replace(path, data)

    def _check(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")


class Life:
    def __init__(self, path: Path, within_s: float) -> None:
        self.path, self.disk = path, Disk(path.parent.parent)
        self.core = SimpleNamespace(state=State(), settles=None, followers=[], tell=lambda _: None)
        lane = ThreadLane("journal", asyncio.get_running_loop(), lambda _: None)
        within = BoundedCalls("a test", within_s)
        self.grants = cpu_grants.CpuGrants(self.core, self.disk, "/run", lane, within)  # type: ignore[arg-type]
        self.grants.begin("this-boot", CpusRecalled())
        self.pools = Pools({"shared": Pool(0xFFFF)})

    def _now(self, pools: Pools) -> asyncio.Future[None]:
        self.pools = pools
        cpus = Cpus(W, RECORDED.rules, pools, in_force=True)
        self.core.state = replace(self.core.state, cpus=cpus)
        return asyncio.ensure_future(self.grants.settles() or asyncio.sleep(0))

    def gives(self, key: str, own: int) -> asyncio.Future[None]:
        rest = resized(self.pools, "shared", self.pools.pools["shared"].cpus & ~own)
        return self._now(joined(rest, Grant(key, own=own, request_m=2000)))

    def takes(self, key: str) -> asyncio.Future[None]:
        more = self.pools.pools["shared"].cpus | self.pools.grants[key].own
        return self._now(left(resized(self.pools, "shared", more), key))

    async def idle(self) -> None:
        while True:
            try:
                return await self.grants._journal.do(lambda: None)
            except OSError:
                await asyncio.sleep(0.01)

    async def written(self) -> None:
        while (found := read(self.path)[0]) is None or found.pools != self.pools:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def living(path: Path, monkeypatch: pytest.MonkeyPatch, *, hangs: bool = False) -> AsyncIterator[Life]:
    """`hangs`: the disk will, and is not waited for long; nobody looks whether its file still stands."""
    monkeypatch.setattr(cpu_grants, "EVERY_S", 600.0 if hangs else 0.01)
    life = Life(path, 0.05 if hangs else 60.0)
    keeping = asyncio.ensure_future(life.grants.keep(SystemClock()))
    try:
        yield life
    finally:
        life.disk.goes_on.set()
        keeping.cancel()


async def test_a_change_that_a_hanging_disk_did_not_take_is_not_left_out_before_a_later_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with living(path, monkeypatch, hangs=True) as life:
        await life.gives("a/app", 0b1100)
        life.disk.goes_on.clear()
        await life.gives("b/app", 0b110000)
        await life.takes("a/app")
        life.disk.goes_on.set()
        await life.idle()
        await life.gives("c/app", 0b1100)
        await life.written()


async def test_what_is_decided_while_the_file_is_checked_is_in_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with living(path, monkeypatch) as life:
        await life.gives("a/app", 0b1100)
        stands = life.grants._journal.stands

        async def meanwhile() -> bool:
            found = await stands()
            if not found and "a/app" in life.pools.grants:
                await life.takes("a/app")
            return found

        monkeypatch.setattr(life.grants._journal, "stands", meanwhile)
        path.unlink()
        while "a/app" in life.pools.grants:
            await asyncio.sleep(0.01)
        await life.gives("c/app", 0b1100)
        await life.written()


async def test_a_record_that_cannot_be_written_any_more_is_taken_away_until_it_can(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a restart would believe what was so long ago, before what the runtime says."""
    async with living(path, monkeypatch) as life:
        await life.gives("a/app", 0b1100)
        life.disk.full = True
        await life.takes("a/app")
        while path.exists():
            await asyncio.sleep(0.01)
        life.disk.full = False
        await life.written()


SHOP = kinds.DynamicPoolsSettings(dynamic_pool_types=(kinds.DynamicPoolType("shop", ("shop",)),))


class Looks(ManualClock):
    """Before each look the test's own turn; after the last one the component ends."""

    def __init__(self, *turns: Callable[[], object]) -> None:
        super().__init__()
        self._turns = list(turns)

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        if not self._turns:
            raise asyncio.CancelledError
        self._turns.pop(0)()


async def played(lane: Lane, component: Coroutine[None, None, None]) -> None:
    task = asyncio.create_task(component)
    while not task.done():
        if isinstance(lane, InlineLane):
            lane.drain()
        await asyncio.sleep(0)


async def nothing(_: str) -> str:
    return ""


async def test_a_pool_that_is_used_gets_the_rest_and_a_file_that_cannot_be_read_changes_nothing() -> None:
    kernel, lane = SimKernel({}), InlineLane()
    rules = PolicySettings("dynamic-pools", reserved=RESERVED_ONE, dynamic_pools=SHOP)
    state = State(settings=EngineSettings(policy=rules))
    core = Core(state, ENGINE, ManualClock(), Slots(lane, {}, ManualClock()), FactsByKind(), nothing)
    core.tell(ev.TopologyRead(machine()))
    made = one("a", 2).in_phase(Phase.RUNNING)
    core.tell(ev.Listed((home("a"),), (made,), as_of=0))

    def sizes() -> list[int]:
        pools = core.state.cpus.pools.pools
        return [pools[name].cpus.bit_count() for name in ("shared", "shop")]

    assert sizes() == [5, 2]
    first = b"".join(b"cpu%d 0 0 0 0 0 0 0 0\n" % cpu for cpu in range(8))
    second = b"".join(b"cpu%d 500 0 0 500 0 0 0 0\n" % cpu for cpu in range(8))

    looks = Looks(*(partial(kernel.replace, use.STAT, text) for text in (b"x", first, b"x", second)))
    await played(lane, watch.watch_use(kernel, lane, core, looks))
    assert sizes() == [0, 7]


MIB = 1 << 20


class MemoryLife:
    """A machine of four memory nodes with the container `a`, and what is told of its memory on node 0, in MiB."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / f"cg{one('a').cgroups_path}" / memory_use.FILE
        self.file.parent.mkdir(parents=True)
        self.files, self.told = Disk(folder), list[list[int]]()
        state = State(settings=EngineSettings(policy=PolicySettings("topology-aware", reserved=RESERVED_ONE)))
        slots = Slots(InlineLane(), {}, ManualClock())
        self.core = Core(state, ENGINE, ManualClock(), slots, FactsByKind(), nothing, seen=self._note)
        memory = tuple(MemoryNode(node.id, node.cpus, 1 << 30) for node in W.nodes)
        self.core.tell(ev.TopologyRead(replace(W, memory=memory)))

    def _note(self, event: ev.Event, decision: Decision, took_ns: int) -> None:
        if isinstance(event, ev.MemoryUsed):
            self.told.append([used.get(0, -1) // MIB for used in event.used.values()])

    def comes(self) -> None:
        made = one("a", 2).in_phase(Phase.RUNNING)
        held = replace(made, cpu=replace(made.cpu, mems=1))
        self.core.tell(ev.Listed((home("a"),), (held,), as_of=0))

    def uses(self, mib: int) -> None:
        self.file.write_text(f"anon N0={mib * MIB} N1=0\nfile N0=0 N1=0\n")

    async def looks(self, lane: Lane, *turns: Callable[[], object]) -> None:
        await played(lane, watch.watch_memory(self.files, "/cg", lane, self.core, Looks(*turns)))


async def test_memory_in_use_is_told_when_it_has_changed_or_cannot_be_read_any_more(tmp_path: Path) -> None:
    life = MemoryLife(tmp_path)
    sizes = (partial(life.uses, mib) for mib in (500, 505, 520))
    damaged = partial(life.file.write_text, "anon N0=1")
    await life.looks(InlineLane(), life.comes, *sizes, damaged, damaged, life.file.unlink, partial(life.uses, 7))
    assert life.told == [[500], [520], [-1], [7]]


async def test_no_memory_is_read_while_nobody_is_held_to_nodes(tmp_path: Path) -> None:
    life = MemoryLife(tmp_path)
    await life.looks(InlineLane(), partial(life.uses, 1), lambda: None)
    assert life.files.reads == 0


async def test_while_readings_of_memory_hang_none_is_known(tmp_path: Path) -> None:
    life, lane = MemoryLife(tmp_path), ThreadLane("cgroup", deadline_s=0.05)
    life.comes()
    await life.looks(lane, partial(life.uses, 5), life.files.goes_on.clear, lambda: None, lambda: None)
    assert life.told == [[5], [-1]]
    life.files.goes_on.set()
    assert lane.close(scaled(10.0))


SHARING = kinds.TopologyAwareSettings(prefer_shared_cpus=True)
UNPINNED = kinds.TopologyAwareSettings(pin_cpu=False)


@pytest.mark.parametrize(
    "rules",
    [
        *(PolicySettings(name, reserved=RESERVED_ONE) for name in POLICIES),
        PolicySettings("topology-aware", reserved=RESERVED_ONE, topology_aware=SHARING),
        PolicySettings("topology-aware", reserved=RESERVED_ONE, topology_aware=UNPINNED),
    ],
    ids=[*POLICIES, "topology-aware, preferSharedCPUs", "topology-aware, pinCPU: false"],
)
def test_a_policy_dedicates_cpus_just_where_a_vm_gets_its_own(rules: PolicySettings) -> None:
    policy, has_own = policy_of(rules.active), False
    if not isinstance(policy.begin(Ground(W, rules)), Denied):
        node = PolicyNode(rules)
        assert node.admit(ask("vm", 4000, Qos.GUARANTEED)) == ""
        grant = node.grant("vm")
        has_own = grant.pinned and grant.own.bit_count() == 4
    assert policy.dedicates(rules) is has_own


def labelled(policy: PolicySettings = STATIC_RULES, mode: Mode = Mode.ENFORCE) -> State:
    state = told(policy, CpusSettings(mode=mode, kubevirt_label=True)).state
    return replace(state, pods=replace(state.pods, runtime="containerd"))


@pytest.mark.parametrize(
    ("state", "value"),
    [
        pytest.param(labelled(), "true", id="static is in force"),
        pytest.param(labelled(mode=Mode.OBSERVE), Special.ABSENT, id="static is only observed"),
        pytest.param(labelled(PolicySettings("static")), Special.ABSENT, id="static with no reserved CPU fits nowhere"),
        pytest.param(labelled(PolicySettings("none")), Special.ABSENT, id="none is in force"),
        pytest.param(told(cpus=CpusSettings(kubevirt_label=True)).state, None, id="no runtime is connected yet"),
        pytest.param(replace(labelled(), settings=told().state.settings), Special.ABSENT, id="the setting is off"),
    ],
)
def test_the_label_claims_what_is_so(state: State, value: str | Special | None) -> None:
    assert wanted(state) == value
