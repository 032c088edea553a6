"""What `nodeward sandbox-cgroup` takes, and what it says of what it does not take."""

import json

import pytest
from click.testing import CliRunner, Result

from nodeward.cli.sandbox_cgroup import command
from nodeward.engine.sandboxes.plan import PlanError

NAMES = ("--sandbox", "s1", "--cgroups-path", "/p/s1")


def plan(*words: str) -> Result:
    return CliRunner().invoke(command, ["plan", "--version", "1", *NAMES, *words])


def test_a_plan_tells_each_step_with_its_number_on_the_page() -> None:
    done = plan(
        "--split", "--container", "c1=/p/c1", "--cpu-m", "500", "--vmm", "20", "--vcpu", "21:9", "--shim", "c1=11"
    )

    assert done.stdout.splitlines() == [
        "create: make /p/kata_s1 (all)  [2]",
        "create: make /p/kata_c1 (all)  [2]",
        "create: limit /p/kata_s1 cpu.cfs_period_us 100000 (cpu)  [4]",
        "create: limit /p/kata_s1 cpu.cfs_quota_us 50000 (cpu)  [4]",
        "create: make /kata (memory)  [7]",
        "place: move vcpu thread 21 of 20 to /p/kata_s1 (all but memory)  [5]",
        "place: move shim 11 to /p/kata_c1 (all)  [6]",
        "place: move vmm 20 to /kata (memory)  [7]",
        "delete: remove /p/kata_c1 (all)",
        "delete: remove /p/kata_s1 (all)",
    ]


def test_a_plan_for_a_program_has_the_note() -> None:
    found = json.loads(plan("--version", "2", "--split", "--vmm", "20", "-o", "json").stdout)

    assert (found["sandbox"], found["version"]) == ("s1", 2)
    assert "cannot split" in found["note"]
    assert [step["cgroup"] for step in found["steps"] if step["act"] == "move"] == ["/p/kata_s1"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--no-pod", "--memory", "9000"), "create: limit /p/s1 memory.limit_in_bytes 9000 (memory)"),
        (("--only", "--memory", "9000"), "create: limit /p/kata-sandbox-s1 memory.limit_in_bytes 9000 (memory)"),
        (
            ("--cgroups-path", "/pod1/s1", "--memory", "9000", "--overhead", "5"),
            "create: limit /pod1 memory.limit_in_bytes 9005 (memory) unless it has one",
        ),
        (("--split", "--cpu-m", "500"), "create: limit /p/kata_s1 cpu.cfs_quota_us 50000 (cpu)  [4]"),
        (("--split", "--container", "c1=/p/c1"), "create: make /p/kata_c1 (all)  [2]"),
        (("--split", "--version", "2", "--threaded"), "create: make threaded /p/kata_s1/vcpu  [5]"),
        (("--cgroups-path", "a.slice:b:s1", "--driver", "systemd"), "create: make /a.slice/kata-sandbox-s1 (all)"),
        (("--split", "--virtiofsd", "30"), "place: move virtiofsd 30 to /kata (memory)  [7]"),
        (("--vmm", "20:7", "--shim", "11"), "place: move shim 11 to /p/kata-sandbox-s1 (all)"),
    ],
)
def test_each_option_does_what_it_says(words: tuple[str, ...], line: str) -> None:
    assert line in plan(*words).stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--vmm", "x"), "is no PID"),
        (("--vmm", "1"), "between 2 and"),
        (("--vmm", "4194305"), "between 2 and"),
        (("--vmm", "-5"), "is no PID"),
        (("--vmm", "²"), "is no PID"),
        (("--vmm", "9" * 5000), "is no PID"),
        (("--shim", "c1=5:"), "is no PID"),
        (("--virtiofsd", "5:x"), "is no PID"),
        (("--container", "c1"), "is no ID=PATH"),
        (("--driver", "systemd"), "has the form of driver cgroupfs"),
    ],
)
def test_a_word_that_cannot_be_is_a_usage_error(words: tuple[str, ...], said: str) -> None:
    done = plan(*words)

    assert done.exit_code == 2
    assert said in done.stderr


@pytest.mark.parametrize("words", [("--container", "c1=p/c1"), ("--container", "../c1=/p/c1"), ("--memory", "-1")])
def test_what_no_cgroup_is_made_of_is_refused(words: tuple[str, ...]) -> None:
    assert isinstance(plan(*words).exception, PlanError)
    assert isinstance(plan("--cgroups-path", "/p/../s1").exception, PlanError)
