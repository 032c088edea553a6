"""`nodeward keys` beside a real kernel's counters: late charges, foreign VMs, Kata's outside of their pods, a moved
process, a removed cgroup."""

import json
import sys
from collections.abc import Mapping

import pytest

from tests.told import tell
from tests.vm import guest
from tests.vm.keys_inside import CAPACITY, HIDDEN, NOTICED, ROUNDS, SEV, SEV_CAPACITY, STAGE, TDX, Shown

Stage = tuple[dict[str, Shown], dict[str, int]]
"""What the command showed by kind, and what the kernel held of `tdx` by cgroup."""
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
    capacity = {TDX: CAPACITY, SEV: SEV_CAPACITY}
    run = guest.boot(guest.needed(), (sys.executable, "-m", "tests.vm.keys_inside"), capacity, timeout_s=240.0)
    assert run.status == 0, run.output[-6000:]
    return run.output.splitlines()


@pytest.fixture(scope="module", name="stages")
def _stages(output: list[str]) -> Mapping[str, Stage]:
    found: dict[str, Stage] = {}
    for line in output:
        if line.startswith(STAGE):
            name, took_s, shown, kernel = json.loads(line.removeprefix(STAGE))
            said = "; ".join(f"{key}: {row['sentence']}" for key, row in shown.items())
            tell(f"{name}: shown after {took_s} s: {said}")
            found[name] = shown, kernel
    return found


@pytest.mark.parametrize("name", STAGES)
def test_what_is_shown_is_what_the_kernel_holds(name: str, stages: Mapping[str, Stage]) -> None:
    rows, kernel = stages[name]
    shown = rows[TDX]
    pods = {path: held for path, held in kernel.items() if path.rpartition("/")[2].startswith("pod")}
    assert shown["capacity"] == CAPACITY
    assert shown["used"] == kernel.get("/sys/fs/cgroup", 0)
    assert shown["charged"] == sum(pods.values())
    holders = shown["holders"]
    assert isinstance(holders, list)
    assert {one["pod"]: one["charged"] for one in holders} == {
        name: pods.get(f"/sys/fs/cgroup/kubepods/poduid-{name}", 0) for name in ("kata", "vm-a", "vm-b")
    }


def test_the_other_kind_of_key_has_its_own_row(stages: Mapping[str, Stage]) -> None:
    """Given that nobody takes any of it, then all of it is free, whatever becomes of the first kind."""
    rows = {name: stages[name][0][SEV] for name in STAGES}
    seen = {name: (row["capacity"], row["used"], row["free"], row["holders"]) for name, row in rows.items()}
    assert seen == dict.fromkeys(STAGES, (SEV_CAPACITY, 0, SEV_CAPACITY, []))


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
    elsewhere = stages["a removed cgroup with a live charge"][0][TDX]["elsewhere"]
    assert isinstance(elsewhere, list)
    assert sorted((one["cgroup"], one["amount"], one["about"]) for one in elsewhere) == [
        (f"/kata_overhead/{'d' * 64}", 1, "Kata, outside of its pod"),
        ("/kubepods", 1, "orphan: its cgroup was removed"),
        ("/machine.slice/vm.scope", 2, "a machine outside of Kubernetes"),
        ("/system.slice/containerd.service", 1, "a service of the host"),
    ]


def test_where_the_real_root_is_hidden_the_settings_number_holds_and_a_finding_warns(
    stages: Mapping[str, Stage],
) -> None:
    """Given a daemon in a cgroup namespace of its own, as in kind: what it sees is counted, and what it does not see
    is warned of."""
    rows, kernel = stages[HIDDEN]
    shown = rows[TDX]
    assert (kernel["/sys/fs/cgroup"], kernel["/sys/fs/cgroup/node.scope"]) == (6, 3)
    seen = {name: shown[name] for name in ("capacity", "used", "entitled", "charged", "foreign", "free")}
    assert seen == {"capacity": CAPACITY, "used": 3, "entitled": 3, "charged": 1, "foreign": 2, "free": 11}
    assert shown["findings"] == [
        f"misc.capacity does not show how many keys there are, so the settings' {CAPACITY} is taken for true; what is "
        "used outside of the cgroups that are seen here is not counted."
    ]
