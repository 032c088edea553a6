"""What a pass of the sampler tells: only what its hearer does not know, and nothing that was not read."""

import errno

from nodeward.doubles.kernel import SimKernel
from nodeward.edges.cgroups import sampler
from nodeward.edges.cgroups.hierarchy import Tree
from nodeward.engine.limits.readings import standing
from nodeward.model import events as ev
from nodeward.model.decision import Decision
from nodeward.wire import record
from tests.faults import FaultyFiles
from tests.goals import target
from tests.unit.engine.build import EPC, SECOND, container_spec, node, pod_spec, started

ROOT = "/sys/fs/cgroup"
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
        known = {path: read.reading for path, read in self.told.state.limits.readings.items()}
        event = sampler.news(result, as_of, known)
        return event, self.told(event)

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
    before = node.told.state.limits.readings[app].reading
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
        reading = node.told.state.limits.readings[app].reading
        node.told(ev.Sampled({app: reading}, as_of=node.told.state.seq))

    assert node.states() == {pod: "stale", app: "enforced"}


def test_the_engine_of_the_first_record_reads_a_whole_pass_as_before() -> None:
    """A record of an earlier version has no word on what is the same."""
    line = b'["event","Sampled",{"at_ns":1,"wall_ns":1,"seq":1,"readings":{},"as_of":0,"gone":[]}]\n'

    assert list(record.read(iter([line]))) == [ev.Sampled({}, 0, at_ns=1, wall_ns=1, seq=1)]
