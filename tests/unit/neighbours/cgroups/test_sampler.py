"""The reader of misc files: cgroups that come, go, lose the controller; what a pass tells, whole and in parts."""

import asyncio
import errno
from collections.abc import Callable, Sequence
from unittest import mock

import pytest

from nodeward.core import events as ev
from nodeward.core import record
from nodeward.core.decision import Decision
from nodeward.features.all import EVENTS
from nodeward.features.limits.readings import standing
from nodeward.neighbours.cgroups import sampler
from nodeward.neighbours.cgroups.hierarchy import Tree, read_capacity
from nodeward_sim.doubles.kernel import SimKernel
from tests.faults import FaultyFiles
from tests.goals import target
from tests.lanes import InlineLane
from tests.unit.features.build import EPC, SECOND, container_spec, node, pod_spec, started

ROOT = "/sys/fs/cgroup"


@pytest.fixture(name="kernel")
def _kernel() -> SimKernel:
    kernel = SimKernel({"sgx_epc": 1 << 20})
    kernel.write(f"{ROOT}/cgroup.subtree_control", b"+misc")
    kernel.mkdir(f"{ROOT}/pod")
    return kernel


class Disturbed(FaultyFiles):
    """Files that can say nonsense, and of which nobody can wait for a change."""

    reads = waits = True

    def pread(self, handle: int, max_bytes: int) -> bytes:
        found = super().pread(handle, max_bytes)
        return found if self.reads else b"no counters"

    def wait(self, handles: Sequence[int], timeout_s: float) -> list[int]:
        if not self.waits:
            raise OSError(errno.EINVAL, "more descriptors than are allowed")
        return super().wait(handles, timeout_s)


def test_a_cgroup_is_read_whole_a_change_is_seen_and_what_is_unchanged_is_not_parsed_again(kernel: SimKernel) -> None:
    reader = sampler.Reader(kernel, Tree(kernel, ROOT))
    found = reader.read(["/pod"])
    assert found.capacity is not None
    assert found.capacity.capacity == {"sgx_epc": 1 << 20}
    first = found.readings["/pod"]
    assert reader.read(["/pod"]).readings["/pod"] is first

    kernel.write(f"{ROOT}/pod/misc.max", b"sgx_epc 8192")
    limited = reader.read(["/pod"]).readings["/pod"]
    kernel.charge(f"{ROOT}/pod", "sgx_epc", 4096)
    charged = reader.read(["/pod"]).readings["/pod"]
    with pytest.raises(OSError, match="busy"):
        kernel.charge(f"{ROOT}/pod", "sgx_epc", 8192)

    assert (first.limit, limited.limit, limited.usage) == ({}, {"sgx_epc": 8192}, {"sgx_epc": 0})
    assert (charged.usage, charged.refusals) == ({"sgx_epc": 4096}, {"sgx_epc": 0})
    once, amount = {"sgx_epc": 1}, {"sgx_epc": 4096}
    assert reader.read(["/pod"]).readings["/pod"] == ev.MiscReading(
        limit={"sgx_epc": 8192}, usage=amount, peak=amount, refusals=once, refusals_local=once
    )


def test_files_of_events_are_read_again_only_once_the_kernel_tells_of_them(kernel: SimKernel) -> None:
    counted = Disturbed(kernel)
    reader = sampler.Reader(counted, Tree(counted, ROOT))

    def reads() -> int:
        before = counted.calls["pread"]
        reader.read(["/pod"], with_root=False)
        return counted.calls["pread"] - before

    kernel.write(f"{ROOT}/pod/misc.max", b"sgx_epc 8192")
    assert [reads(), reads()] == [5, 3]
    with pytest.raises(OSError, match="busy"):
        kernel.charge(f"{ROOT}/pod", "sgx_epc", 9000)
    assert [reads(), reads()] == [5, 3]
    counted.waits = False
    assert reads() == 5


def test_what_was_read_and_not_understood_is_read_again(kernel: SimKernel) -> None:
    garbled = Disturbed(kernel)
    reader = sampler.Reader(garbled, Tree(garbled, ROOT))
    kernel.write(f"{ROOT}/pod/misc.max", b"sgx_epc 8192")
    reader.read(["/pod"])
    with pytest.raises(OSError, match="busy"):
        kernel.charge(f"{ROOT}/pod", "sgx_epc", 9000)
    garbled.reads = False
    assert reader.read(["/pod"]).readings == {}
    garbled.reads = True
    assert reader.read(["/pod"]).readings["/pod"].refusals == {"sgx_epc": 1}


def test_a_cgroup_of_another_tree_is_not_gone(kernel: SimKernel) -> None:
    pod = "/kubepods/pod1"
    reader = sampler.Reader(kernel, Tree(kernel, ROOT))
    seen = reader.read([pod])
    assert (seen.gone, seen.readings[pod].controller) == ((), False)
    kernel.mkdir(f"{ROOT}/kubepods")
    assert reader.read([pod]).gone == (pod,)


def test_a_gone_cgroup_is_said_to_be_gone_and_descriptors_that_nobody_needs_are_given_back(kernel: SimKernel) -> None:
    reader = sampler.Reader(kernel, Tree(kernel, ROOT))
    for paths, files in ((["/pod"], 5), ([], 0), (["/pod"], 5)):
        reader.read(paths)
        assert reader.open_files == files
    kernel.rmdir(f"{ROOT}/pod")

    assert reader.read(["/pod", "/never"]).gone == ("/pod", "/never")
    assert reader.open_files == 0


def test_a_cgroup_that_is_only_watched_is_not_read_and_is_said_to_be_gone(kernel: SimKernel) -> None:
    reader = sampler.Reader(kernel, Tree(kernel, ROOT))
    found = reader.read([], watched=["/pod"])
    assert (found.readings, found.gone, reader.open_files) == ({}, (), 0)
    kernel.rmdir(f"{ROOT}/pod")
    kernel.mkdir(f"{ROOT}/pod2")

    assert reader.read(["/pod2"], watched=["/pod2/inside"]).gone == ("/pod2/inside",)


def test_a_cgroup_made_anew_is_read_anew(kernel: SimKernel) -> None:
    reader = sampler.Reader(kernel, Tree(kernel, ROOT))
    reader.read(["/pod"])
    kernel.rmdir(f"{ROOT}/pod")
    kernel.mkdir(f"{ROOT}/pod")
    kernel.write(f"{ROOT}/pod/misc.max", b"sgx_epc 4096")

    assert reader.read(["/pod"]).readings["/pod"].limit == {"sgx_epc": 4096}


def test_a_cgroup_without_misc_files_has_no_controller(kernel: SimKernel) -> None:
    kernel.mkdir(f"{ROOT}/pod/inner")

    assert sampler.Reader(kernel, Tree(kernel, ROOT)).read(["/pod/inner"]).readings["/pod/inner"] == ev.MiscReading(
        controller=False
    )


def test_a_kernel_without_the_controller_says_so() -> None:
    kernel = SimKernel({}, controllers=("cpu", "memory"))

    assert not read_capacity(kernel, Tree(kernel, ROOT)).controller


def test_a_cgroup_whose_stat_fails_is_not_said_to_be_gone(kernel: SimKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = sampler.Reader(kernel, Tree(kernel, ROOT))
    assert reader.read(["/gone"]).gone == ("/gone",)
    monkeypatch.setattr(kernel, "stat", mock.Mock(side_effect=OSError(errno.EIO, "/gone")))
    assert reader.read(["/gone"]).gone == ()


PODS, PER_POD = 110, 3


class Sampled:
    """An engine that hears what passes over a kernel double tell."""

    def __init__(self, pods: int = 1, per_pod: int = 1) -> None:
        self.kernel, self.told = SimKernel({EPC: 1 << 30}), node()
        self.reader = sampler.Reader(self.kernel, Tree(self.kernel, ROOT))
        names = [f"c{number}" for number in range(per_pod)]
        for uid in (f"{number:036}" for number in range(pods)):
            self.told(ev.PodSeen(pod_spec(uid, *(container_spec(name, 4096) for name in names))))
            for name in names:
                self.told(started(uid, name))
        for path, wanted in self.told.state.limits.wanted.items():
            self.kernel.make_cgroup(ROOT + path)
            self.limit(path, wanted.values[EPC])
            self.told(ev.Reached((target(f"misc.max:{EPC}:{path}"),)))

    @property
    def paths(self) -> list[str]:
        return list(self.told.state.limits.wanted)

    def limit(self, path: str, value: int) -> None:
        for above in ("", "/kubepods", path.rpartition("/")[0] if path.count("/") > 2 else ""):
            self.kernel.write(f"{ROOT}{above}/cgroup.subtree_control", b"+misc")
        self.kernel.write(f"{ROOT}{path}/misc.max", f"{EPC} {value}".encode())

    def begin(self, *left_out: str) -> tuple[sampler.Pass, int]:
        self.told.at_ns += SECOND
        return self.reader.read([path for path in self.paths if path not in left_out]), self.told.state.seq

    def land(self, result: sampler.Pass, as_of: int) -> tuple[ev.Sampled, Decision]:
        event = sampler.news(result, as_of, self.known())
        return event, self.told(event)

    def known(self) -> dict[str, ev.MiscReading]:
        return {path: read.reading for path, read in self.told.state.limits.readings.items()}

    def once(self, *left_out: str) -> tuple[ev.Sampled, Decision]:
        return self.land(*self.begin(*left_out))

    def states(self) -> dict[str, str]:
        limits = self.told.state.limits
        return {
            path: standing(self.told.state, path, limits.wanted[path], self.told.at_ns).value for path in self.paths
        }


def test_a_pass_over_a_quiet_node_is_a_short_event_and_keeps_every_reading_fresh() -> None:
    node = Sampled(PODS, PER_POD)
    first, _ = node.once()
    assert len(first.readings) == len(node.paths) == PODS * (1 + PER_POD)
    assert len(record.encode_event(first)) > 50_000, "what each pass would be if it told everything"

    for _ in range(5):
        quiet, decision = node.once()
        assert len(record.encode_event(quiet)) + len(record.encode_decision(decision)) < 1000
    assert dict.fromkeys(node.states().values()) == {"enforced": None}


def test_only_what_changed_is_told() -> None:
    node = Sampled(2, 2)
    node.once()
    busy = node.paths[1]
    node.kernel.charge(ROOT + busy, EPC, 4096)

    event, _ = node.once()

    assert list(event.readings) == [node.paths[0], busy], "the container and its pod"
    assert node.told.state.limits.readings[busy].reading.usage == {EPC: 4096}


def test_a_pass_that_reads_nothing_confirms_nothing() -> None:
    node = Sampled(1, 1)
    node.once()
    for _ in range(4):
        node.reader = sampler.Reader(
            FaultyFiles(node.kernel, fail_at=1, fail_errno=errno.EMFILE),
            Tree(FaultyFiles(node.kernel, fail_at=1, fail_errno=errno.EMFILE), ROOT),
        )
        event, _ = node.once(*node.paths[1:])

    assert (event.readings, event.unread) == ({}, tuple(node.paths))
    assert list(node.states().values()) == ["stale", "stale"]


def test_a_cgroup_forgotten_and_wanted_again_has_no_reading_until_it_was_read_again() -> None:
    node = Sampled(1, 1)
    node.once()
    uid, (pod, app) = "0".zfill(36), node.paths
    under_way = node.begin()
    ended = started(uid, "c0")
    node.told(ev.Stopped(ended.sandbox, ended.container))
    assert app not in node.told.state.limits.readings
    again = ev.Started(ended.sandbox, ended.container)
    node.told(again)
    node.told(ev.Reached((target(f"misc.max:{EPC}:{app}"),)))

    skipped, _ = node.once(app)
    assert app not in node.told.state.limits.readings, "known to nobody, so it cannot be the same as before"
    assert skipped.unread == ()

    late, _ = node.land(*under_way)
    assert list(late.readings) == [app]
    assert node.states() == {pod: "enforced", app: "enforced"}
    node.kernel.rmdir(ROOT + app)
    gone, _ = node.once()
    assert (gone.gone, gone.unread) == ((app,), ())
    assert app not in node.told.state.limits.readings


def test_a_reading_that_somebody_else_told_meanwhile_is_told_over_again() -> None:
    node = Sampled(1, 1)
    node.once()
    app = node.paths[1]
    before = node.known()[app]
    other = ev.MiscReading(limit=before.limit, usage={EPC: 1}, refusals=before.refusals)
    node.told(ev.Sampled({app: other}, as_of=node.told.state.seq))

    event, _ = node.once()

    assert list(event.readings) == [app]
    assert node.told.state.limits.readings[app].reading == before


def test_a_reading_of_the_watcher_confirms_no_other() -> None:
    node = Sampled(1, 1)
    node.once()
    pod, app = node.paths
    for _ in range(4):
        node.told.at_ns += SECOND
        reading = node.known()[app]
        node.told(ev.Sampled({app: reading}, as_of=node.told.state.seq))

    assert node.states() == {pod: "stale", app: "enforced"}


def test_the_engine_of_the_first_record_reads_a_whole_pass_as_before() -> None:
    """A record of an earlier version has no word on what is the same."""
    line = b'["event","Sampled",{"at_ns":1,"wall_ns":1,"seq":1,"readings":{},"as_of":0,"gone":[]}]\n'

    assert list(record.read(iter([line]), EVENTS)) == [ev.Sampled({}, 0, at_ns=1, wall_ns=1, seq=1)]


PARTS_PODS, PARTS_PER_POD = 7, 3


class Node(Sampled):
    """An engine that hears what passes of the sampler itself tell, and the turns of a loop in which it does."""

    def __init__(self) -> None:
        super().__init__(PARTS_PODS, PARTS_PER_POD)
        self.heard: list[tuple[int, ev.Sampled, Decision]] = []
        self.turn = 0
        self.between: Callable[[int], None] = lambda _: None
        self.lane = InlineLane()
        self.passes = sampler._Passes(self.lane, self.reader, None, self.known, self.tell)

    def tell(self, event: ev.Event) -> int:
        decision = self.told(event)
        if isinstance(event, ev.Sampled):
            self.heard.append((self.turn, event, decision))
        return self.told.state.seq

    def start(self) -> None:
        self.passes.begin(lambda: sampler.Scope(self.paths, (), lambda _: True), lambda: self.told.state.seq)

    def whole_pass(self) -> list[tuple[int, ev.Sampled, Decision]]:
        """What one pass told, with the turn of the loop; `between` is called in each turn."""
        self.told.at_ns += SECOND
        self.heard, self.turn = [], 0

        async def play() -> None:
            self.start()
            self.lane.drain()
            while self.passes._busy:
                self.turn += 1
                self.between(self.turn)
                await asyncio.sleep(0)

        asyncio.run(play())
        return self.heard

    def every_usage_changes(self) -> None:
        for path in self.paths:
            if path.count("/") > 2:
                self.kernel.charge(ROOT + path, EPC, 1)


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> Node:
    """One that has been settled for a while, and hears at most five cgroups at once."""
    monkeypatch.setattr(sampler, "MOST_TOLD", 5)
    in_parts = Node()
    in_parts.whole_pass()  # it tells of the capacity as well, so limits have to be reached again
    for path in in_parts.paths:
        in_parts.told(ev.Reached((target(f"misc.max:{EPC}:{path}"),)))
    in_parts.whole_pass()
    assert dict.fromkeys(in_parts.states().values()) == {"enforced": None}
    return in_parts


def test_a_pass_in_which_all_changed_is_told_a_few_cgroups_a_turn_of_the_loop(in_parts: Node) -> None:
    in_parts.every_usage_changes()
    heard = in_parts.whole_pass()

    assert [len(event.readings) for _, event, _ in heard] == [5, 5, 5, 5, 5, 3]
    assert [turn for turn, _, _ in heard] == list(range(6)), "each has a turn of its own"
    assert list(dict.fromkeys(event.as_of for _, event, _ in heard)) == [heard[0][1].as_of]
    assert [event.rest_same for _, event, _ in heard] == [False] * 5 + [True]
    assert in_parts.known() == in_parts.reader.read(in_parts.paths).readings
    assert dict.fromkeys(in_parts.states().values()) == {"enforced": None}


def test_a_drift_told_in_an_early_part_is_repaired_once_a_pass(in_parts: Node) -> None:
    for path in in_parts.paths:
        in_parts.limit(path, 1)
    repaired = []
    for _ in range(4):
        notes = [note.values[0] for _, _, decision in in_parts.whole_pass() for note in decision.notes]
        repaired.append(sorted(map(str, notes)))

    assert repaired == [sorted(in_parts.paths)] * 3 + [[]]
    assert {len(times) for times in in_parts.told.state.limits.repairs_ns.values()} == {3}


def test_what_somebody_else_reads_between_two_parts_stays(in_parts: Node) -> None:
    first, last = in_parts.paths[0], in_parts.paths[-1]
    newer = ev.MiscReading(limit={EPC: 4096}, usage={EPC: 77})

    def between(turn: int) -> None:
        if turn == 2:
            in_parts.told(ev.Sampled({first: newer, last: newer}, as_of=in_parts.told.state.seq))

    in_parts.every_usage_changes()
    in_parts.between = between
    in_parts.whole_pass()

    assert [in_parts.known()[path] for path in (first, last)] == [newer, newer]


def test_no_pass_begins_while_one_is_being_told(in_parts: Node) -> None:
    in_parts.every_usage_changes()
    in_parts.between = lambda _: in_parts.start()
    heard = in_parts.whole_pass()
    assert len(dict.fromkeys(event.as_of for _, event, _ in heard)) == 1
    assert in_parts.lane.drain() == 0
