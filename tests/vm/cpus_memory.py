"""The cases of CPUs and memory by the policy `topology-aware`, on a node of two sockets, each a NUMA node, and a third
NUMA node without CPUs, which is small and so counts as HBM.

They run inside the guest, in this order. See test_cpus.py.
"""

import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from nodeward.core import cpuset
from tests.vm.cpus_node import POLICY, CpusNode, Pod, resources
from tests.vm.cpuset_writes import CpusetWrites
from tests.vm.inside import RUN_DIR, until

_POLICY: Final = 'policy: {Active: topology-aware, ReservedResources: {CPU: "cpuset:0"}}'
_SOCKETS: Final = (cpuset.parse("0-3"), cpuset.parse("4-7"))
_SHARABLE: Final = cpuset.parse("1-7")
_NO_CPUS: Final = 2
"""The node without CPUs. It is nearer to node 1 than to node 0."""
_MIB: Final = 1 << 20
_MOVES_WITHIN_S: Final = 30.0


def _socket_of(pod: Pod) -> int:
    return next(node for node, cpus in enumerate(_SOCKETS) if not pod.runs_on() & ~cpus)


def _near(pod: Pod) -> str:
    """The memory node of its socket. HBM is for those who ask for it."""
    return str(_socket_of(pod))


def _seen(*pods: Pod) -> str:
    return ", ".join(f"{pod.name} CPUs {pod.cpus()} memory {pod.mems()}" for pod in pods)


def by_sockets(node: CpusNode) -> None:
    """Given two sockets, then a Burstable container without a limit shares the CPUs of one; one and a half CPUs are one
    that nobody else may use, and that socket's others; and both have that socket's memory."""
    settings = RUN_DIR.parent / "nodeward.yaml"
    settings.write_text(settings.read_text().replace(POLICY.partition("\n")[0], _POLICY))
    node.restart(signal.SIGTERM)
    rest = node.stays("rest", "Burstable", 100)
    half = node.stays("half", "Guaranteed", 1500)
    until(lambda: rest.runs_on() != half.runs_on(), "one CPU of its own", _MOVES_WITHIN_S)
    socket, alone, seen = _SOCKETS[_socket_of(half)], half.runs_on() & ~rest.runs_on(), _seen(rest, half)
    assert (half.runs_on(), alone.bit_count()) == (socket & _SHARABLE, 1), seen
    assert rest.runs_on() == socket & _SHARABLE & ~alone, seen
    assert (rest.mems(), half.mems()) == (_near(half), _near(half)), seen


def by_type(node: CpusNode) -> None:
    """Given annotations with a type of memory, then a container has the nodes of that type only, and its pages are
    there."""
    fast = node.stays("fast", "Burstable", 100, memory=64 * _MIB, memory_type="hbm")
    plain = node.run("plain", "Burstable", 100, memory_type="dram")
    assert (fast.mems(), plain.mems()) == (str(_NO_CPUS), str(_socket_of(plain))), _seen(fast, plain)
    pages = _anonymous(fast)
    assert [one for one, amount in pages.items() if amount] == [_NO_CPUS], pages
    node.remove(plain)


def _anonymous(pod: Pod) -> Mapping[int, int]:
    """Bytes by memory node, as the kernel counts them."""
    lines = (pod.cgroup / "memory.numa_stat").read_text().splitlines()
    words = next(line.split() for line in lines if line.startswith("anon "))
    return {int(name[1:]): int(amount) for name, _, amount in (word.partition("=") for word in words[1:])}


def overcommitted(node: CpusNode) -> None:
    """Given containers whose memory limits exceed their nodes, then those of the lower class get more nodes while they
    run, by one write each."""
    fast, wide = node.pods["fast"], node.stays("wide", "Burstable", 100, memory=300 * _MIB)
    assert wide.mems() == _near(wide), _seen(wide)
    with CpusetWrites((pod.cgroup for pod in node.pods.values()), "cpuset.mems") as writes:
        strict = node.stays("strict", "Guaranteed", 100, memory=96 * _MIB, memory_type="hbm")
        until(lambda: fast.mems() == "1-2", "the nearest node with CPUs besides", _MOVES_WITHIN_S)
        large = node.stays("large", "Guaranteed", 2000, memory=400 * _MIB)
        until(lambda: wide.mems() == "0-1", "the DRAM of both sockets", _MOVES_WITHIN_S)
        seen = _seen(*node.pods.values())
        assert _socket_of(large) == _socket_of(wide), seen
        assert (strict.mems(), large.mems(), fast.mems()) == (str(_NO_CPUS), _near(large), "1-2"), seen
        assert writes.taken() == {fast.cgroup: 1, wide.cgroup: 1}, seen


def never_narrower(node: CpusNode) -> None:
    """Given containers that have got more nodes, when the daemon is killed, then limits count as before; and when one
    is resized, and those end that needed the memory, then no node is taken away from them."""
    fast, wide = node.pods["fast"], node.pods["wide"]
    until(lambda: _is_recorded("large"), "grants are recorded", _MOVES_WITHIN_S)
    node.restart(signal.SIGKILL)
    late = node.stays("late", "Burstable", 100, memory=96 * _MIB, memory_type="hbm")
    assert late.mems() == "1-2", _seen(*node.pods.values())
    asked = resources(200, guaranteed=False, memory=80 * _MIB)
    node.call("UpdateContainerResources", {"container_id": fast.container, "linux": asked})
    for name in ("strict", "large"):
        node.remove(node.pods[name])
    after = node.stays("after", "Burstable", 100, memory_type="hbm")
    assert after.mems() == str(_NO_CPUS), _seen(after)
    assert [pod.mems() for pod in (fast, wide, late)] == ["1-2", "0-1", "1-2"], _seen(fast, wide, late)


def _is_recorded(pod: str) -> bool:
    """On a slow machine a write is late, and the file is away until it is written again."""
    with suppress(FileNotFoundError):
        return f"uid-{pod}/" in (RUN_DIR / "cpus.journal").read_text()
    return False


CASES: Final[Mapping[str, Callable[[CpusNode], None]]] = {
    "a tree of pools gives CPUs of one socket and its memory": by_sockets,
    "an annotation gives memory of one type": by_type,
    "containers get more memory nodes where too much is promised": overcommitted,
    "memory nodes that were given are never taken away": never_narrower,
}
"""By what each holds."""
