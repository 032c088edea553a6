"""`apply` alone: what one decision costs with 500 containers known, in microseconds of processor time.

Processor time, for a thread that loses the processor within a decision says nothing about the decision. The collector's
work is in it, without what the daemon does to spare it.
"""

import time
from dataclasses import replace

from bench.measure import quantile
from nodeward.core import events as ev
from nodeward.core.workload import Container, ContainerId, ContainerSpec, PodSpec, PodUid, Sandbox, SandboxId
from nodeward.features.all import apply
from nodeward.features.root import State

PODS = 250
LIVES = 3000
GOAL = "30, 300"


def run() -> None:
    """With PODS full pods, and what knowing their containers adds to a create: the two nodes take turns."""
    full, empty = _Node(PODS, "ab"), _Node(1, "")
    for number in range(LIVES):
        full.live(number)
        empty.live(number)
    print(f"engine at {full.known} containers, microseconds of processor time")
    for kind, what, goal in (
        ("Creating", "create, the whole apply", GOAL),
        ("Created", "created", "-"),
        ("Started", "start", "-"),
        ("Stopped", "stop, the whole apply", GOAL),
        ("Removed", "removal", "-"),
    ):
        p50, p99 = quantile(full.times[kind], 0.5), quantile(full.times[kind], 0.99)
        print(f"  {what:32} p50 {p50:6.1f}  p99 {p99:6.1f}   goal {goal}")
    growth = quantile(full.times["Creating"], 0.5) / quantile(empty.times["Creating"], 0.5)
    print(f"  a create's apply with {empty.known} and with {full.known} known    {growth:.2f}x   goal 1.3x")
    for node in (full, empty):
        if len(node.state.pods.containers) != node.known:
            raise RuntimeError(
                f"{len(node.state.pods.containers)} containers are known in the end, {node.known} at first"
            )


class _Node:
    """So many pods, each with these containers, and what each kind of step took in the lives of one container more."""

    def __init__(self, pods: int, names: str) -> None:
        self.state, self._seq = State(), 0
        self.times: dict[str, list[float]] = {}
        self._step(ev.CapacityRead(controller=True, capacity={"sgx_epc": 1 << 40}))
        self._homes = [self._pod(number, names) for number in range(pods)]
        self.known = len(self.state.pods.containers)
        self.times.clear()

    def live(self, number: int) -> None:
        """One container's life, from its create to its removal."""
        home = self._homes[number % len(self._homes)]
        made = Container(ContainerId(f"x{number}"), home.id, "a", cgroups_path=f"/k/{home.pod_uid}/x{number}")
        self._step(ev.Creating(home, made, ask_id=number))
        for event in (ev.Created(home, made), ev.Started(home, made), ev.Stopped(home, made)):
            self._step(event)
        self._step(ev.Removed(home.id, made.id))

    def _pod(self, number: int, names: str) -> Sandbox:
        uid, specs = PodUid(f"u{number}"), (ContainerSpec("a", declared={"sgx_epc": 4096}), ContainerSpec("b"))
        self._step(ev.PodSeen(PodSpec(uid, "default", f"p{number}", specs)))
        home = Sandbox(SandboxId(f"s{number}"), uid, "default", f"p{number}", cgroup_parent=f"/k/{uid}")
        for name in names:
            made = Container(ContainerId(f"c{number}{name}"), home.id, name, cgroups_path=f"/k/{uid}/{name}")
            self._step(ev.Started(home, made))
        return home

    def _step(self, event: ev.Event) -> None:
        self._seq += 1
        stamped = replace(event, seq=self._seq, at_ns=self._seq * 1_000_000)
        began = time.thread_time_ns()
        self.state, _ = apply(self.state, stamped)
        self.times.setdefault(type(event).__name__, []).append((time.thread_time_ns() - began) / 1000)
