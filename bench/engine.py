"""`apply` alone: what one decision costs with 500 containers known, in microseconds of processor time.

Processor time, for a thread that loses the processor within a decision says nothing about the decision. The collector's
work is in it, without what the daemon does to spare it.
"""

import time
from dataclasses import replace

from bench.measure import quantile
from nodeward.engine.apply import apply
from nodeward.engine.state import State
from nodeward.model import events as ev
from nodeward.model.workload import Container, ContainerId, ContainerSpec, PodSpec, PodUid, Sandbox, SandboxId

PODS = 250
LIVES = 3000


def run() -> None:
    """One create, one start, one stop."""
    state, seq = State(), 0
    times: dict[str, list[float]] = {}

    def step(event: ev.Event) -> None:
        nonlocal state, seq
        seq += 1
        stamped = replace(event, seq=seq, at_ns=seq * 1_000_000)
        began = time.thread_time_ns()
        state, _ = apply(state, stamped)
        times.setdefault(type(event).__name__, []).append((time.thread_time_ns() - began) / 1000)

    step(ev.CapacityRead(controller=True, capacity={"sgx_epc": 1 << 40}))
    homes: list[Sandbox] = []
    for number in range(PODS):
        uid, specs = PodUid(f"u{number}"), (ContainerSpec("a", declared={"sgx_epc": 4096}), ContainerSpec("b"))
        step(ev.PodSeen(PodSpec(uid, "default", f"p{number}", specs)))
        homes.append(Sandbox(SandboxId(f"s{number}"), uid, "default", f"p{number}", cgroup_parent=f"/k/{uid}"))
        for name in "ab":
            made = Container(ContainerId(f"c{number}{name}"), homes[-1].id, name, cgroups_path=f"/k/{uid}/{name}")
            step(ev.Started(homes[-1], made))
    times.clear()
    for number in range(LIVES):
        home = homes[number % PODS]
        made = Container(ContainerId(f"x{number}"), home.id, "a", cgroups_path=f"/k/{home.pod_uid}/x{number}")
        step(ev.Creating(home, made, ask_id=number))
        step(ev.Started(home, made))
        step(ev.Stopped(home, made))
    print(f"apply at {2 * PODS} containers, microseconds")
    for kind, goal in (("Creating", "30, 300"), ("Started", "-"), ("Stopped", "30, 300")):
        p50, p99 = quantile(times[kind], 0.5), quantile(times[kind], 0.99)
        print(f"  {kind:26} p50 {p50:6.1f}  p99 {p99:6.1f}   goal {goal}")
