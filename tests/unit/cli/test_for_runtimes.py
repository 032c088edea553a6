"""`nodeward volume`, `network` and `sandbox-cgroup`: what they print, how they end, and what becomes of the files."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nodeward.cli import network, volume
from nodeward.cli.sandbox_cgroup import command
from nodeward.edges.kata.volumes import VolumeFileError
from nodeward.engine.sandboxes.plan import PlanError
from nodeward.model.errors import NodewardError
from nodeward.wire.errors import WireError

GOOD = ("--device", "/dev/sdb", "--fstype", "ext4")
DAN = {
    "devices": [
        {
            "name": "eth0",
            "device": {"type": "vhost-user", "path": "/run/v.sock"},
            "network_info": {"interface": {"ip_addresses": ["10.0.0.5/24"]}},
        }
    ]
}


def called(*words: str) -> Result:
    """The command's end; an error of the house goes through, as to the console script."""
    group = volume.command if words[0] == "volume" else network.command
    result = CliRunner().invoke(group, words[1:])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_volume_is_added_listed_and_removed(tmp_path: Path) -> None:
    at = ("--folder", str(tmp_path / "v"))
    (tmp_path / "v").mkdir(0o700)
    assert called("volume", "list", *at).output == f"no volumes in {tmp_path}/v\n"
    added = Path(
        called("volume", "add", "/data", *GOOD, "--option", "ro", "--metadata", "fsGroup=5", *at).output.strip()
    )
    (added.parent / "sb1").touch()
    (added.parent / ".mountInfo.json.new").touch()
    (added.parents[1] / "x").mkdir()

    assert json.loads(added.read_text())["metadata"] == {"fsGroup": "5"}
    assert called("volume", "list", *at).output.splitlines() == [
        "/data  /dev/sdb ext4  sandbox sb1  1 fault(s), see nodeward volume check",
        f"{tmp_path}/v/x  -  sandbox -  2 fault(s), see nodeward volume check",
    ]
    checked = called("volume", "check", *at)
    assert checked.exit_code == 1
    assert [line.partition(": ")[2].partition(":")[0] for line in checked.output.splitlines()] == [
        *(".mountInfo.json.new", "folder of a volume", "mountInfo.json"),
    ]
    with pytest.raises(VolumeFileError, match="taken by sandbox sb1"):
        called("volume", "remove", "/data", *at)
    assert called("volume", "remove", "/data", "--force", *at).output == "removed\n"
    assert called("volume", "remove", "/data", *at).output == "was not there\n"


def test_a_file_is_checked_by_itself_and_for_programs(tmp_path: Path) -> None:
    file = tmp_path / "mountInfo.json"
    file.write_text('{"volume-type": "block", "device": "/dev/a"}')
    said = called("volume", "check", str(file), str(tmp_path / "none"), "-o", "json")

    assert said.exit_code == 1
    assert json.loads(said.output)["faults"] == [
        {"file": str(file), "fault": "fstype: is missing; give a text"},
        {"file": str(tmp_path / "none"), "fault": "is not there; name a mountInfo.json, or a folder with some"},
    ]
    file.write_text('{"volume-type": "block", "device": "/dev/a", "fstype": "xfs"}')
    assert (called("volume", "check", str(file)).output, called("volume", "check", str(tmp_path)).exit_code) == (
        "no faults\n",
        1,
    )


@pytest.mark.parametrize(
    ("flag", "pair", "path"),
    [
        ("--metadata", "luksKey=c4n4ry", r"metadata\.luksKey"),
        ("--metadata", "dek=c4n4ry", r"metadata\.dek"),
        ("--option", "PWD=c4n4ry", r"options\[0\]"),
        ("--option", "vers=3,cookie=c4n4ry", r"options\[0\]"),
    ],
)
def test_a_secret_is_refused_and_nothing_is_written(tmp_path: Path, flag: str, pair: str, path: str) -> None:
    with pytest.raises(WireError, match=f"{path}: looks like a secret") as refused:
        called("volume", "add", "/data", *GOOD, flag, pair, "--folder", str(tmp_path / "v"))
    assert "c4n4ry" not in str(refused.value)
    assert not (tmp_path / "v").exists()
    assert called("volume", "add", "/data", *GOOD, "--metadata", "x").exit_code == 2


@pytest.mark.parametrize(
    "words",
    [("volume", "list"), ("volume", "add", "/data", *GOOD), ("volume", "remove", "/data"), ("network", "write", "s")],
)
def test_what_the_system_refuses_is_one_line_that_names_the_file(tmp_path: Path, words: tuple[str, ...]) -> None:
    file = tmp_path / "file"
    file.write_text("")
    source = ("--from", str(tmp_path / "dan")) if words[0] == "network" else ()
    (tmp_path / "dan").write_text(json.dumps(DAN))

    with pytest.raises(NodewardError, match=str(file)):
        called(*words, *source, "--folder", f"{file}/below")


def test_who_may_not_write_is_told_who_may() -> None:
    with pytest.raises(NodewardError, match=r"^/run/x: Permission denied; run this as root$"), volume.told():
        raise PermissionError(13, "Permission denied", "/run/x")


def test_a_dan_file_is_written_where_kata_reads_it_or_not_at_all(tmp_path: Path) -> None:
    at, source = ("--folder", str(tmp_path / "dans")), tmp_path / "dan.json"
    source.write_text(json.dumps({"devices": [{}]}))
    with pytest.raises(WireError, match=r"devices\[0\].name: is missing"):
        called("network", "write", "sb1", "--from", str(source), *at)
    assert not (tmp_path / "dans").exists()
    assert called("network", "check", str(source)).exit_code == 1

    source.write_text(json.dumps(DAN))
    written = Path(called("network", "write", "sb1", "--from", str(source), *at).output.strip())
    assert (written, json.loads(written.read_text())) == (tmp_path / "dans" / "sb1.json", DAN)
    assert (written.stat().st_mode & 0o777, written.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert called("network", "check", *at).output == "no faults\n"
    (tmp_path / "dans" / "sb2.txt").write_text(json.dumps(DAN))
    assert "Kata reads SANDBOX.json only" in called("network", "check", *at).output


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
        (("--vmm", "²"), "is no PID"),
        (("--vmm", "9" * 5000), "is no PID"),
        (("--shim", "c1=5:"), "is no PID"),
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
