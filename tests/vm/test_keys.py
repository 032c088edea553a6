"""`nodeward keys` beside a real kernel's counters: late charges, foreign VMs, Kata's outside of their pods, a moved
process, a removed cgroup."""

import json
import sys
from collections.abc import Mapping

import pytest

from tests.told import tell
from tests.vm import guest
from tests.vm.keys_inside import CAPACITY, NOTICED, ROUNDS, STAGE, TDX

Stage = tuple[dict[str, object], dict[str, int]]
"""What the command showed, and what the kernel held by cgroup."""
STAGES = (
    "promised, not taken",
    "taken late, one process moved away",
    "a VM outside of any pod",
    "Kata's VMs outside of their pods",
    "a removed cgroup with a live charge",
    "more taken than promised",
    "all ended",
)


WAYS = ("the root moves", "the root stands")
"""So soon foreign use is counted."""


@pytest.fixture(scope="module", name="output")
def _output() -> list[str]:
    run = guest.boot(
        guest.needed(), (sys.executable, "-m", "tests.vm.keys_inside"), {TDX: CAPACITY, "sev_es": 4}, timeout_s=180.0
    )
    assert run.status == 0, run.output[-6000:]
    return run.output.splitlines()


@pytest.fixture(scope="module", name="stages")
def _stages(output: list[str]) -> Mapping[str, Stage]:
    found: dict[str, Stage] = {}
    for line in output:
        if line.startswith(STAGE):
            name, took_s, shown, kernel = json.loads(line.removeprefix(STAGE))
            tell(f"{name}: shown after {took_s} s: {shown.get('sentence')}")
            found[name] = shown, kernel
    return found


@pytest.mark.parametrize("name", STAGES)
def test_what_is_shown_is_what_the_kernel_holds(name: str, stages: Mapping[str, Stage]) -> None:
    shown, kernel = stages[name]
    pods = {path: held for path, held in kernel.items() if path.rpartition("/")[2].startswith("pod")}
    assert shown["capacity"] == CAPACITY
    assert shown["used"] == kernel.get("/sys/fs/cgroup", 0)
    assert shown["charged"] == sum(pods.values())
    holders = shown["holders"]
    assert isinstance(holders, list)
    assert {one["pod"]: one["charged"] for one in holders} == {
        name: pods.get(f"/sys/fs/cgroup/kubepods/poduid-{name}", 0) for name in ("kata", "vm-a", "vm-b")
    }


def test_foreign_use_is_counted_whenever_it_begins(output: list[str]) -> None:
    """Given a foreign VM at eight moments of the poll, alone and in the place of a pod's, then it is counted each time.
    After how long is told and not judged: an emulated processor is many times slower than a real one."""
    seen = dict[str, list[int]]()
    for line in output:
        if line.startswith(NOTICED):
            name, took_ms = json.loads(line.removeprefix(NOTICED))
            tell(f"foreign use while {name}: counted after {min(took_ms)} to {max(took_ms)} ms, {sorted(took_ms)}")
            seen[name] = took_ms
    assert {name: len(took_ms) for name, took_ms in seen.items()} == dict.fromkeys(WAYS, ROUNDS)


def test_foreign_keys_have_their_places(stages: Mapping[str, Stage]) -> None:
    elsewhere = stages["a removed cgroup with a live charge"][0]["elsewhere"]
    assert isinstance(elsewhere, list)
    assert sorted((one["cgroup"], one["amount"], one["about"]) for one in elsewhere) == [
        (f"/kata_overhead/{'d' * 64}", 1, "Kata, outside of its pod"),
        ("/kubepods", 1, "orphan: its cgroup was removed"),
        ("/machine.slice/vm.scope", 2, "a machine outside of Kubernetes"),
        ("/system.slice/containerd.service", 1, "a service of the host"),
    ]
