"""`apply` alone: what one decision costs with 500 containers known, in microseconds of processor time.

A create has two rows. A runtime that creates a container of a known pod waits for the *answer* only (`foresee`); the
whole `apply` of the create follows once it has that. With `on_error: refuse`, and for pods that are not known, it waits
for both at once, which is the row of `apply` alone. All other rows are whole applies.

Processor time, for a thread that loses the processor within a decision says nothing about the decision. The collector's
work is in it, without what the daemon does to spare it.
"""

import time
from dataclasses import replace

from bench.measure import quantile
from nodeward.engine.apply import apply, foresee
from nodeward.engine.state import State
from nodeward.model import events as ev
from nodeward.model.workload import Container, ContainerId, ContainerSpec, PodSpec, PodUid, Sandbox, SandboxId

PODS = 250
LIVES = 3000
GOAL = "30, 300"


def run() -> None:
    """Lives of one container more, each from its create to its removal."""
    state, seq = State(), 0
    times: dict[str, list[float]] = {}

    def step(event: ev.Event) -> None:
        nonlocal state, seq
        seq += 1
        stamped = replace(event, seq=seq, at_ns=seq * 1_000_000)
        began = time.thread_time_ns()
        state, _ = apply(state, stamped)
        times.setdefault(type(event).__name__, []).append((time.thread_time_ns() - began) / 1000)

    def answer(home: Sandbox, made: Container) -> None:
        began = time.thread_time_ns()
        said = foresee(state, home.pod_uid, made.id, made.name)
        times.setdefault("answer", []).append((time.thread_time_ns() - began) / 1000)
        if said is None:
            raise RuntimeError("nothing was foreseen: the row would be about nothing")

    step(ev.CapacityRead(controller=True, capacity={"sgx_epc": 1 << 40}))
    homes: list[Sandbox] = []
    for number in range(PODS):
        uid, specs = PodUid(f"u{number}"), (ContainerSpec("a", declared={"sgx_epc": 4096}), ContainerSpec("b"))
        step(ev.PodSeen(PodSpec(uid, "default", f"p{number}", specs)))
        homes.append(Sandbox(SandboxId(f"s{number}"), uid, "default", f"p{number}", cgroup_parent=f"/k/{uid}"))
        for name in "ab":
            made = Container(ContainerId(f"c{number}{name}"), homes[-1].id, name, cgroups_path=f"/k/{uid}/{name}")
            step(ev.Started(homes[-1], made))
    known = len(state.pods.containers)
    times.clear()
    for number in range(LIVES):
        home = homes[number % PODS]
        made = Container(ContainerId(f"x{number}"), home.id, "a", cgroups_path=f"/k/{home.pod_uid}/x{number}")
        answer(home, made)
        step(ev.Creating(home, made, ask_id=number))
        for event in (ev.Created(home, made), ev.Started(home, made), ev.Stopped(home, made)):
            step(event)
        step(ev.Removed(home.id, made.id))
    if len(state.pods.containers) != known:
        raise RuntimeError(f"{len(state.pods.containers)} containers are known in the end, {known} at first")
    print(f"engine at {known} containers, microseconds of processor time")
    for kind, what, goal in (
        ("answer", "create, its answer as foreseen", "-"),
        ("Creating", "create, the whole apply", GOAL),
        ("Created", "created", "-"),
        ("Started", "start", "-"),
        ("Stopped", "stop, the whole apply", GOAL),
        ("Removed", "removal", "-"),
    ):
        p50, p99 = quantile(times[kind], 0.5), quantile(times[kind], 0.99)
        print(f"  {what:32} p50 {p50:6.1f}  p99 {p99:6.1f}   goal {goal}")
