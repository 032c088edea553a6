"""Scenario files as docs/scenarios.md says, how a run is judged, and pinned containers in a run."""

import asyncio
import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from nodeward.neighbours.nri import ttrpc_unix
from nodeward.neighbours.nri.ttrpc_unix import TtrpcPeer
from nodeward.people.rows import NodeView
from nodeward.settings.load import SettingsError
from nodeward_sim.clock import LEAST_PACE, NodeClock
from nodeward_sim.doubles.cpus import Plan
from nodeward_sim.doubles.kernel import CGROUP_MOUNT, SimKernel
from nodeward_sim.doubles.runtime import SimContainer, SimPod, SimRuntime
from nodeward_sim.doubles.runtime_plugins import Plugin
from nodeward_sim.invariants import STUCK, Judge
from nodeward_sim.machines import Machines
from nodeward_sim.pinned import EMPTY, MOVED, NEEDLESS, OVERLAP, WRONG, Pinned
from nodeward_sim.scenario import ACTIONS, ALLOWED, Happening, Scenario, load

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "scenarios.md").read_text("utf-8")


def keys() -> list[str]:
    return [one.name for one in dataclasses.fields(Scenario)] + [one.name for one in dataclasses.fields(Happening)]


def test_the_document_has_every_key_with_what_it_may_hold() -> None:
    rows = re.findall(r"^\| `(?:events\[\]\.)?([a-z_]+)` \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", DOCUMENT, re.MULTILINE)

    assert [(key, allowed) for key, _, allowed in rows] == [(key, ALLOWED[key]) for key in keys()]
    assert list(ALLOWED) == keys()


def test_the_document_has_the_defaults(tmp_path: Path) -> None:
    """They are put into a file, and that file is the default scenario."""
    rows = re.findall(r"^\| `([a-z_]+)` \| `([^|]+)` \| ", DOCUMENT, re.MULTILINE)
    file = tmp_path / "defaults.yaml"
    file.write_text("title: T\n" + "".join(f"{key}: {default}\n" for key, default in rows))

    assert load(str(file)) == Scenario("T")
    assert len(rows) == len(dataclasses.fields(Scenario)) - 2, "all but title and about"


def test_the_document_has_every_action_and_its_example_is_accepted(tmp_path: Path) -> None:
    assert re.findall(r"^\| `([a-z-]+)` \| [^|]+ \|$", DOCUMENT, re.MULTILINE) == list(ACTIONS)
    file = tmp_path / "example.yaml"
    file.write_text(re.sub("^    ", "", DOCUMENT.split("\n\n")[2], flags=re.MULTILINE))
    assert load(str(file)).events == (Happening(4.0, "drift", 6.0),)


BAD = {
    "title": ("''", "x" * 61),
    "about": ("x" * 201,),
    "capacity": ("{sgx_epc: -1}", "{sgx_epc: 9223372036854775808}", "{gold: 1}"),
    "pods": ("0", "201", "1.5"),
    "vms": ("-1", "201"),
    "offer": ("maybe",),
    "oversized": ("1.1",),
    "claims": ("-1",),
    "claim_share": ("some", "-1"),
    "life_s": ("[12, 4]", "[0, 4]", "[4, 86401]", "[.nan, .nan]", "[4]"),
    "charge_every_s": ("0", "3601"),
    "greedy": ("1.1", "-0.1", ".nan"),
    "late_spec_s": ("-1", ".inf"),
    "grace_s": ("0", ".nan"),
    "events": ("{}",),
    "at_s": ("-1", ".nan"),
    "every_s": ("0.01", "-2"),
    "do": ("nap",),
}
"""Of each key, what it may not hold."""


@pytest.mark.parametrize(("key", "text"), [(key, text) for key, texts in BAD.items() for text in texts])
def test_a_value_out_of_range_is_refused_with_file_key_and_what_is_allowed(key: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    event = {"at_s": "1", "do": "drift", key: text}
    of_event = "events:\n- {" + ", ".join(f"{name}: {value}" for name, value in event.items()) + "}\n"
    within = key in {one.name for one in dataclasses.fields(Happening)}
    file.write_text(("" if key == "title" else "title: T\n") + (of_event if within else f"{key}: {text}\n"))
    with pytest.raises(SettingsError) as caught:
        load(str(file))

    (fault,) = caught.value.faults
    assert fault.startswith(f"{file}: {'events[0].' * within}{key}: ")
    assert fault.endswith(f" must be {ALLOWED[key]}")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("title: T\npods: many\n", "pods: 'many' must be a whole number"),
        ("pods: 3\n", "title: is missing"),
        ("title: T\npodz: 3\n", "podz: unknown key; known are title,"),
        ("title: T\nevents: 3\n", "events: 3 must be a list such as"),
        ("title: T\nevents: [3]\n", "events[0]: 3 must have keys, such as"),
        ("title: T\nevents: [{at_s: 1}]\n", "events[0].do: is missing"),
        ("title: T\noffer: true\ncapacity: {tdx: 4}\n", "vms: with `offer: true` there must be some"),
        ("title: T\noffer: true\nvms: 2\n", "capacity: with `offer: true` it must have some tdx"),
        ("title: T\nevents: [{at_s: 1, do: resize}]\n", "events: resize happens only with some `pinned`"),
        ("title: T\npinned: 2\nrelay: true\n", "pinned: with `relay: true` there can be none"),
        ("title: T\nevents: [{at_s: 1, do: move-vmm}]\n", "events: move-vmm happens only with some `katas`"),
        ("title: T\nevents: [{at_s: 1, do: force-delete}]\n", "events: force-delete happens only with some `claims`"),
        ("title: T\nclaims: 2\n", "capacity: with some `claims` it must have some tdx"),
        ("title: T\ngate: true\n", "gate: it needs some `katas`"),
        ("title: T\nkatas: 2\nrelay: true\n", "katas: with `relay: true` there can be none"),
        ("title: T\nevents: [{at_s: 1, do: lose-quotes}]\n", "events: lose-quotes happens only with `offer: true`"),
    ],
)
def test_a_fault_is_told_in_one_sentence_with_its_place(text: str, fault: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(str(file))

    (told,) = caught.value.faults
    assert told.startswith(f"{file}: {fault}")


STORIES: dict[str, tuple[list[tuple[float, float]], float]] = {
    "a machine with time to spare": ([(1.0, 0.0), (9.0, 0.0)], 10.0),
    "a wait that is told when it has ended": ([(6.0, 4.0)], 2.0),
    "a wait told late": ([(1.0, 0.0), (1.0, 4.0), (8.0, 0.0)], 6.0),
    "more waits than time, as of several processes": ([(10.0, 30.0)], 10 * LEAST_PACE),
}
"""By turns, seconds that pass and seconds of waiting that the kernel tells then; and what has passed on the node."""


@pytest.mark.parametrize(("turns", "passed_s"), STORIES.values(), ids=STORIES)
def test_the_clock_of_the_node_leaves_out_what_its_processes_wait_for_a_processor(
    turns: list[tuple[float, float]], passed_s: float
) -> None:
    wall_s, starved_s = 100.0, 7.0
    clock = NodeClock(lambda: starved_s, lambda: wall_s)
    began_s = told_s = clock.time()
    for seconds, waited in turns:
        wall_s, starved_s = wall_s + seconds, starved_s + waited
        before_s, told_s = told_s, clock.time()
        assert told_s > before_s, "it never stands still"
    assert told_s - began_s == pytest.approx(passed_s)


def test_a_job_that_is_late_while_the_node_is_starved_counts_for_nothing_and_a_stuck_one_does() -> None:
    """The daemon counts the jobs of its whole life."""
    judge = Judge(6.0)
    for number, (stuck, starved) in enumerate(((2, True), (2, False), (0, False), (1, False))):
        shown = NodeView("enforce", "sim", "answers", True, {}, {}, (), health={"lanes_stuck": stuck})
        judge.view(shown, [], number, starved=starved)
    assert judge.violations == [f"{STUCK}: the daemon reports 1 stuck job(s)"]


@dataclass(slots=True)
class Node:
    """A node with a container that has CPUs 2 and 3 for its own, and one that shares all others."""

    kernel: SimKernel
    pinned: Pinned
    judge: Judge
    own: str
    shared: str

    def write(self, cgroup: str, cpus: str) -> None:
        self.kernel.write(f"{CGROUP_MOUNT}{cgroup}/cpuset.cpus", cpus.encode())

    def told(self, cgroup: str, cpus: str) -> None:
        self.pinned.written(f"{CGROUP_MOUNT}{cgroup}/cpuset.cpus", cpus.encode())


async def node(folder: Path, own: str = "2-3", shared: str = "0-1,4-31") -> Node:
    kernel, judge = SimKernel({}, machine=Plan()), Judge(6.0)
    runtime = SimRuntime(folder / "nri", kernel)
    pinned = Pinned(kernel, runtime, judge, lambda: 100.0, Random(1))
    runtime.nri.plugins.append(Plugin(TtrpcPeer(ttrpc_unix.unimplemented, serves=1, calls=2)))  # asks for nothing
    cgroups = []
    for name, count, cpus in (("shares", 0, shared), ("app", 2, own)):
        container_id = await runtime.create_container(await runtime.run_pod(SimPod(name, name)), SimContainer(name))
        runtime.containers()[-1].linux.resources.cpu.cpus = cpus  # as a plugin would have answered
        await pinned.created(container_id, count)
        await runtime.start(container_id)
        cgroups.append(runtime.cgroup(container_id))
    return Node(kernel, pinned, judge, own=cgroups[1], shared=cgroups[0])


@pytest.mark.parametrize(
    ("breaks", "invariant"),
    [
        pytest.param(lambda node: None, "", id="nothing"),
        pytest.param(lambda node: node.write(node.shared, "0-31"), OVERLAP, id="another comes onto own CPUs"),
        pytest.param(lambda node: node.write(node.own, "2,4"), MOVED, id="own CPUs become others"),
        pytest.param(lambda node: node.write(node.own, "2"), WRONG, id="own CPUs become fewer"),
        pytest.param(lambda node: node.write(node.shared, "\n"), EMPTY, id="a set is taken away"),
        pytest.param(lambda node: node.told(node.shared, ""), EMPTY, id="the daemon writes an empty set"),
        pytest.param(lambda node: node.told(node.own, "2-3"), NEEDLESS, id="the daemon writes what is there"),
        pytest.param(lambda node: node.told(node.own, "4-5"), "", id="the daemon writes another set"),
    ],
)
def test_what_must_never_be_of_cpus_is_told(breaks: Callable[[Node], None], invariant: str, tmp_path: Path) -> None:
    there = asyncio.run(node(tmp_path))
    breaks(there)
    there.pinned.look()

    assert ([one.partition(":")[0] for one in there.judge.violations] or [""])[0] == invariant


def test_a_key_that_is_granted_is_not_left_for_whoever_waits_for_an_answer() -> None:
    kernel = SimKernel({"tdx": 1}, machine=Plan())
    machines = Machines(kernel, 1, lambda _: None, lambda: 0.0, uncounted=False)
    first, second = machines.watch_left(), machines.watch_left()
    machines.unwatch(first)
    machines.promised("first", 1)
    assert (first.most, second.most) == (1, 0)
    machines.forget("first")
    assert second.most == 1
