"""`nodeward keys` beside a real kernel's counters: late charges, a foreign VM, a moved process, a removed cgroup."""

import json
import sys
from collections.abc import Mapping

import pytest

from tests.told import tell
from tests.vm import guest
from tests.vm.keys_inside import CAPACITY, STAGE, TDX

Stage = tuple[dict[str, object], dict[str, int]]
"""What the command showed, and what the kernel held by cgroup."""
STAGES = (
    "promised, not taken",
    "taken late, one process moved away",
    "a VM outside of any pod",
    "a removed cgroup with a live charge",
    "more taken than promised",
    "all ended",
)


@pytest.fixture(scope="module", name="stages")
def _stages() -> Mapping[str, Stage]:
    run = guest.boot(
        guest.needed(), (sys.executable, "-m", "tests.vm.keys_inside"), {TDX: CAPACITY, "sev_es": 4}, timeout_s=180.0
    )
    found: dict[str, Stage] = {}
    for line in run.output.splitlines():
        if line.startswith(STAGE):
            name, took_s, shown, kernel = json.loads(line.removeprefix(STAGE))
            tell(f"{name}: shown after {took_s} s: {shown.get('sentence')}")
            found[name] = shown, kernel
    assert run.status == 0, run.output[-6000:]
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


def test_foreign_keys_have_their_places(stages: Mapping[str, Stage]) -> None:
    elsewhere = stages["a removed cgroup with a live charge"][0]["elsewhere"]
    assert isinstance(elsewhere, list)
    assert sorted((one["cgroup"], one["amount"], one["about"]) for one in elsewhere) == [
        ("/kubepods", 1, "orphan: its cgroup was removed"),
        ("/machine.slice/vm.scope", 2, "a machine outside of Kubernetes"),
    ]
