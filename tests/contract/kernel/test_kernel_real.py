"""The kernel contract on the real misc controller: one guest boots and runs everything, then each case is a test
here.
"""

import functools
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from nodeward_sim.doubles.kernel import SimKernel
from tests.contract.kernel.cases import CASES, CPU_CASES, V1_CASES
from tests.contract.kernel.double import EIGHT, Double
from tests.contract.kernel.guest_runner import BEGIN, CPUS, END, MACHINE, RESULT, VERSIONS, WALK, drawn
from tests.contract.kernel.vocabulary import CAPACITY
from tests.contract.kernel.walks import COUNT, walk
from tests.told import tell
from tests.vm import guest

OFFLINE = "cpus_offline"
"""Cases in which a CPU goes offline, as none does of a kernel in user mode."""
BOOT_TIMEOUT_S = 180.0
"""For all cases and walks twice: with cgroup v2, and with misc as v1."""


@dataclass(frozen=True, slots=True)
class Report:
    """What the guest said, by version of cgroups. `failures`: case id -> empty text if it held, else the traceback;
    `walks`: their sights."""

    failures: Mapping[int, Mapping[str, str]]
    walks: Mapping[int, Mapping[int, list[str]]]


@dataclass(frozen=True, slots=True)
class CpuReport:
    """What the guest of eight CPUs said: why a case did not hold, by its id, and the machine as it was read."""

    failures: Mapping[str, str]
    machine: Mapping[str, list[str]]


@pytest.fixture(scope="module")
def report() -> Report:
    machine = guest.needed()
    run = _run(machine)
    lines = run.output.splitlines()
    failures: list[tuple[int, str, str]] = [
        json.loads(line.removeprefix(RESULT)) for line in lines if line.startswith(RESULT)
    ]
    walks: list[tuple[int, int, list[str]]] = [
        json.loads(line.removeprefix(WALK)) for line in lines if line.startswith(WALK)
    ]
    found = Report(
        {version: {case: said for of, case, said in failures if of == version} for version in VERSIONS},
        {version: {number: sights for of, number, sights in walks if of == version} for version in VERSIONS},
    )
    ran = f"{len(failures)} cases and {len(walks)} walks in {run.duration_s:.1f} s with the boot"
    tell(f"kernel {machine.release}: {ran}")
    return found


def _run(machine: guest.Guest, *words: str, shape: guest.Machine = guest.ORDINARY) -> guest.Run:
    program = (sys.executable, "-m", "tests.contract.kernel.guest_runner", *words)
    run = guest.boot(machine, program, CAPACITY, BOOT_TIMEOUT_S, shape)
    lines = run.output.splitlines()
    if run.status != 0 or BEGIN not in lines or END not in lines:
        pytest.fail(f"the guest did not finish its cases (status {run.status}):\n{run.output[-4000:]}", pytrace=False)
    return run


@functools.cache
def _cpu_report(stock: bool) -> CpuReport:
    """What the guest of eight CPUs said of the cases about these: the stock kernel has two memory nodes."""
    machine = guest.needed(stock=stock)
    run = _run(machine, CPUS, shape=guest.Machine(cpus=8, numa=stock))
    told = (json.loads(line.removeprefix(RESULT)) for line in run.output.splitlines() if line.startswith(RESULT))
    found = {case: said for _, case, said in told}
    tell(f"kernel {machine.release}: {len(found)} cases about CPUs and memory in {run.duration_s:.1f} s with the boot")
    machines = [line.removeprefix(MACHINE) for line in run.output.splitlines() if line.startswith(MACHINE)]
    return CpuReport(found, json.loads(machines[0]))


@pytest.mark.parametrize("case_id", [case for case in CPU_CASES if not case.startswith(OFFLINE)])
def test_kernel_cpus(case_id: str) -> None:
    _held(case_id, _cpu_report(False).failures)


@pytest.mark.nightly
@pytest.mark.parametrize("case_id", CPU_CASES)
def test_stock_kernel_cpus(case_id: str) -> None:
    _held(case_id, _cpu_report(True).failures)


@pytest.mark.nightly
def test_a_plan_shows_the_same_machine_as_the_kernel() -> None:
    assert _cpu_report(True).machine == drawn(SimKernel({}, machine=EIGHT))


def _held(case_id: str, failures: Mapping[str, str]) -> None:
    assert case_id in failures, "the guest reported nothing for this case"
    assert failures[case_id] == "", failures[case_id]


@pytest.mark.parametrize("case_id", CASES)
def test_kernel(case_id: str, report: Report) -> None:
    _held(case_id, report.failures[2])


@pytest.mark.parametrize("case_id", V1_CASES)
def test_kernel_v1(case_id: str, report: Report) -> None:
    _held(case_id, report.failures[1])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("number", range(COUNT))
def test_walk_looks_the_same_on_both(number: int, version: int, report: Report) -> None:
    assert walk(Double(version), number) == report.walks[version][number]
