"""The cases of CPUs by the policy `static` on a node of eight CPUs, of which one is reserved.

They run inside the guest, in this order. See test_cpus.py.
"""

import signal
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from nodeward.core import cpuset
from tests.vm.cpus_cluster import by_cluster
from tests.vm.cpus_node import CpusNode, Pod
from tests.vm.cpuset_writes import CpusetWrites
from tests.vm.inside import until, without

_ALL: Final = cpuset.parse("0-7")
_FEW: Final = 3
_SHARED: Final = ("batch", "web", "best")


def _shared(node: CpusNode, of: int = _ALL) -> bool:
    """Whether each container that shares has what no other one has of these CPUs for its own."""
    own = sum(cpuset.parse(pod.cpus()) for name, pod in node.pods.items() if name not in _SHARED)
    return {node.pods[name].cpus() for name in _SHARED} == {cpuset.text(of & ~own)}


def one_comes(node: CpusNode) -> None:
    """Given containers that share, when one with whole CPUs comes, each of their sets is written once, and its own
    never; when it goes they have its CPUs again."""
    node.stays("batch", "Burstable", 100)
    node.stays("web", "Burstable", 1500)
    node.stays("best", "BestEffort", 0)
    assert _shared(node), node.sets()
    with CpusetWrites(pod.cgroup for pod in node.pods.values()) as writes:
        own = node.stays("own", "Guaranteed", 2000)
        assert _shared(node), node.sets()
        came = writes.taken()
        assert own.cpus() == "2-3", node.sets()  # a whole core of the first socket, beside the reserved CPU's core
        node.remove(own)
        until(lambda: _shared(node), "the CPUs are shared again")
        went = writes.taken()
    once = {node.pods[name].cgroup: 1 for name in _SHARED}
    assert (came, went) == (once, once), (came, went)


def nobody_at_the_first_act(node: CpusNode) -> None:
    """Quick pods, some of them with CPUs of their own: at the first act of each such program nobody else may run
    there."""
    found = node.crowd(node.quick_pods, "quick")
    assert not found, f"{len(found)} overlap(s): {found[:5]}"
    until(lambda: _shared(node), "all CPUs are shared again")


def and_where_writes_are_late(node: CpusNode) -> None:
    """The same where sets shrink only after a program was to be started."""
    found = _one_by_one(node, "late_writes")
    assert not found, f"{len(found)} overlap(s): {found[:5]}"


def but_without_the_wait(node: CpusNode) -> None:
    """The same by a daemon that lets programs begin at once: the records show it."""
    found = _one_by_one(node, "no_wait")
    assert found, "a daemon that does not wait is not noticed"


def _one_by_one(node: CpusNode, fault: str) -> list[str]:
    node.restart(signal.SIGTERM, f"tests.vm.cpus_faults:{fault}")
    return node.one_by_one(_FEW, fault)


def nobody_moves(node: CpusNode) -> None:
    """Given containers with CPUs of their own, when the daemon ends, is killed, or containerd is started again, then
    no set is written."""
    node.stays("first", "Guaranteed", 1000)
    between = node.stays("between", "Guaranteed", 1000)
    node.stays("last", "Guaranteed", 2000)
    node.remove(between)  # leaves a gap, which those that are there are not to fill
    until(lambda: _shared(node), "the gap is shared")
    before = node.sets()
    with CpusetWrites(pod.cgroup for pod in node.pods.values()) as writes:
        for how in (signal.SIGTERM, signal.SIGKILL):
            node.restart(how)
        node.restart_runtime()
        assert (node.sets(), writes.taken()) == (before, {}), node.sets()
        node.stays("after", "Guaranteed", 1000)
        assert _shared(node), node.sets()
        later = writes.taken()
    assert later == {node.pods[name].cgroup: 1 for name in _SHARED}, later


def drift_is_repaired(node: CpusNode) -> None:
    """Somebody else writes a set: it is put right within seconds, that of one that shares and that of one that does
    not."""
    for name in ("web", "last"):
        pod = node.pods[name]
        before = pod.cpus()
        (pod.cgroup / "cpuset.cpus").write_text("0-7")
        until(partial(_is, pod, before), f"{name} is put right", 10)


def _is(pod: Pod, cpus: str) -> bool:
    return pod.cpus() == cpus


def resized_in_place(node: CpusNode) -> None:
    """A container with two CPUs of its own gets a third and then keeps one, as it runs; the others follow."""
    last = node.pods["last"]
    for cpus in (3, 1):
        before = cpuset.parse(last.cpus())
        node.resize(last, 1000 * cpus)
        now = cpuset.parse(last.cpus())
        assert now.bit_count() == cpus, node.sets()
        assert before & now in (before, now), f"moved from {cpuset.text(before)} to {cpuset.text(now)}"
        until(lambda: _shared(node), f"the others follow to {cpus}")


def memory_follows(node: CpusNode) -> None:
    """Given `cpus.memory: follow`, a container on one socket has that node's memory and the one without CPUs; one that
    shares the CPUs of one node gets the other one's memory besides when it gets CPUs there, and keeps its own. So does
    one that was resized, by the runtime, after the daemon had been started anew."""
    if not node.has_memory_nodes:
        return
    assert node.pods["last"].mems() == "0-2", "on CPUs 4-5, then 3-5, then 3"
    wide = node.run("wide", "Guaranteed", 4000)
    narrow = node.run("narrow", "Burstable", 100)
    seen = [f"{pod.name} {pod.cpus()}: {pod.mems()}" for pod in (wide, narrow)]
    assert (wide.cpus(), wide.mems(), narrow.mems()) == ("4-7", "1-2", "0,2"), seen
    node.remove(wide)
    until(lambda: narrow.mems() == "0-2", "its memory follows its CPUs")
    assert (narrow.cgroup / "cpuset.mems.effective").read_text().strip() == "0-2"
    assert {pod.mems() for name, pod in node.pods.items() if name in _SHARED} == {""}, "who has all CPUs is not pinned"
    node.remove(narrow)


OF_NODES: Final = "memory nodes follow CPUs and are never taken away"
"""The case that needs a machine with memory nodes."""
MORE: Final[Mapping[str, Callable[[CpusNode], None]]] = {
    "CPUs of its own come and go, each other set is written once": one_comes,
    "at the first act of a program nobody else may run on its own CPUs": nobody_at_the_first_act,
    "a restart of daemon or runtime moves nobody": nobody_moves,
    "a set that somebody else wrote is put right": drift_is_repaired,
    "a container is resized in place": resized_in_place,
    OF_NODES: memory_follows,
    "nobody is on its own CPUs where writes are late": and_where_writes_are_late,
    "a daemon that does not wait is noticed": but_without_the_wait,
    "a cluster's configuration moves containers that run": by_cluster,
}
"""By what each holds."""
CASES: Final = without(
    MORE, nobody_at_the_first_act, memory_follows, and_where_writes_are_late, but_without_the_wait, by_cluster
)
