"""`nodeward cpus policies`: what is told of each policy and key; and the commands for runtimes."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nodeward.cli import vms
from nodeward.cli.cpus import policies
from nodeward.cli.vms.cgroup import command
from nodeward.core.errors import NodewardError, WireError
from nodeward.features.cpus.policies.table import POLICIES
from nodeward.features.cpus.settings import STATIC_OPTIONS
from nodeward.features.cpus.spelling.listed import UnknownPolicyError
from nodeward.features.sandboxes.plan import PlanError
from nodeward.neighbours.kata.volumes import VolumeFileError
from nodeward.programs.cri_resmgr import read
from nodeward.programs.cri_resmgr.pushed import over_file


def test_every_policy_of_the_table_has_a_line_and_a_row() -> None:
    told = CliRunner().invoke(policies.command, ["list"])
    rows = json.loads(CliRunner().invoke(policies.command, ["list", "-o", "json"]).stdout)

    assert [line.split()[0] for line in told.stdout.splitlines()] == [row["name"] for row in rows] == list(POLICIES)
    assert told.stdout.splitlines()[0].endswith("(also null)")


def test_one_is_explained_with_what_it_needs_and_each_option_that_it_takes() -> None:
    told = CliRunner().invoke(policies.command, ["show", "static"]).stdout

    assert "needs: policy.reserved\n" in told
    assert "settings: policy.static.relaxed_isolation, policy.static.options (docs" in told
    options = [line.partition(":")[0].strip() for line in told.splitlines() if line.startswith("  ")]
    assert sorted(options) == sorted(STATIC_OPTIONS)
    assert told.endswith("nodeward node --set policy.active=static --set policy.reserved=1\n")


def test_an_alias_is_a_name_and_an_unknown_one_is_refused_with_those_that_are() -> None:
    assert CliRunner().invoke(policies.command, ["show", "null"]).stdout.startswith("none: ")

    for words, why in (
        (["show", "memtier"], "comes with a later version"),
        (["show", "statik"], "is not known; did you mean static?"),
    ):
        done = CliRunner().invoke(policies.command, words)
        assert isinstance(done.exception, UnknownPolicyError)
        assert why in str(done.exception)
        assert done.exit_code == 1


OBJECT = """apiVersion: config.nri/v1alpha1
kind: BalloonsPolicy
metadata: {name: default}
spec:
  reservedResources: {cpu: "cpuset:0"}
  pinMemory: true
  balloonTypes:
    - name: a
      minCPUs: 1
      maxCPUs: 4
      cpuClass: turbo
  control: {rdt: {enable: true}}
"""
CONFIG_MAP = """kind: ConfigMap
metadata: {name: cri-resmgr-config.default}
data:
  policy: |
    Active: balloons
    ReservedResources: {CPU: 1}
    balloons:
      PinMemory: true
      BalloonTypes: [{Name: a, MinCPUs: 1}]
  rdt: |
    enable: true
"""
FILE = "policy: {Active: static-plus, ReservedResources: {CPU: 1}}\nlogger: {Debug: cache}\n"
OTHERS = """policy:
  {Active: static, ReservedResources: {CPU: 1, Memory: 1G},
  memtier: {PinCPU: true},
  none: {},
  Static: {Rdt: x}}
"""
TREE = """policy: {Active: topology-aware, ReservedResources: {CPU: 1}, topology-aware: {PreferIsolatedCPUs: true,
  CPUClasses: []}}
"""
PLAIN = "reservedResources: {cpu: 1}\nballoonTypes: [{name: a}]\n"


def checked(folder: Path, text: str) -> Result:
    file = folder / "p.yaml"
    file.write_text(text)
    return CliRunner().invoke(policies.command, ["check", str(file), "-o", "json"])


def verdicts(folder: Path, text: str) -> dict[str, tuple[int, str]]:
    """By path the line and the verdict, but for keys that are done."""
    rows = [row for one in json.loads(checked(folder, text).stdout) for row in one["rows"]]
    return {row["path"]: (row["line"], row["verdict"]) for row in rows if row["verdict"] != "done"}


def test_a_file_that_holds_no_text_is_refused_and_a_fifo_too(tmp_path: Path) -> None:
    for text in ('policy: {Active: "\x1b[31m"}\n', "policy: \0\n"):
        told = checked(tmp_path, text)
        assert (told.exit_code, "is no YAML" in told.output) == (2, True), told.output
    os.mkfifo(tmp_path / "fifo")
    told = CliRunner().invoke(policies.command, ["check", str(tmp_path / "fifo")])
    assert (told.exit_code, "is a FIFO" in told.output) == (2, True)


@pytest.mark.parametrize(
    "keys",
    [
        ("active", "availableResources", "reservedResources", "cpu"),
        ("Active", "AvailableResources", "ReservedResources", "CPU"),
        ("active", "available_resources", "reserved", "cpu"),
        ("ACTIVE", "availableresources", "Reserved-Resources", "CPU"),
    ],
)
def test_each_door_reads_each_spelling_of_a_policys_keys(tmp_path: Path, keys: tuple[str, ...]) -> None:
    """`policies check`, `cri-resmgr`, and a ConfigMap that an agent brings."""
    active, available, reserved, cpu = keys
    section = f'{active}: balloons\n{available}: {{{cpu}: "cpuset:0-7"}}\n{reserved}: {{{cpu}: 1}}\n'
    text = "policy:\n" + "".join(f"  {line}\n" for line in section.splitlines())
    assert verdicts(tmp_path, text) == {}
    pushed = over_file(None, {}, {})({"policy": section}).policy
    given = read.choose(["-force-config", "/c"], {}, lambda _: text, lambda _: True)
    assert (given.pairs["policy.available"], given.pairs["policy.reserved"]) == ("cpuset:0-7", "1")
    assert (pushed.active, str(pushed.available), str(pushed.reserved)) == ("balloons", "cpuset:0-7", "1")


ACCEPTED = {
    "object": (
        OBJECT,
        {
            "spec.reservedResources": (5, "differs"),
            "spec.balloonTypes[0].cpuClass": (11, "not enforced"),
            "spec.control": (12, "not enforced"),
        },
    ),
    "config map": (CONFIG_MAP, {"rdt": (10, "not enforced")}),
    "cri-resmgr": (FILE, {"policy.Active": (1, "differs"), "logger": (2, "differs")}),
    "what cri-resmgr takes and never used": (
        OTHERS,
        {
            "policy.ReservedResources.Memory": (2, "not enforced"),
            "policy.memtier": (3, "not enforced"),
            "policy.none": (4, "not enforced"),
            "policy.Static.Rdt": (5, "not enforced"),
        },
    ),
    "plain": (PLAIN, {}),
    "plain of topology-aware": ("reservedResources: {cpu: 1}\ncolocatePods: true\n", {}),
    "topology-aware": (TREE, {"policy.topology-aware.CPUClasses": (2, "not enforced")}),
}


@pytest.mark.parametrize(("text", "found"), ACCEPTED.values(), ids=ACCEPTED)
def test_each_key_has_its_verdict_and_line(tmp_path: Path, text: str, found: dict[str, tuple[int, str]]) -> None:
    assert verdicts(tmp_path, text) == found
    assert checked(tmp_path, text).exit_code == 0


UNKNOWN = OBJECT.replace("minCPUs: 1", "minCpus: 1\n      minBallons: 1")
REFUSED = {
    "min above max": (OBJECT.replace("minCPUs: 1", "minCPUs: 5"), "spec.balloonTypes[0].minCPUs", 9),
    "unknown key": (UNKNOWN, "spec.balloonTypes[0].minBallons", 10),
    "another kind": (OBJECT.replace("BalloonsPolicy", "TemplatePolicy"), "kind", 2),
    "policy of later": (FILE.replace("static-plus", "memtier"), "policy.Active", 1),
    "another version": (OBJECT.replace("v1alpha1", "v1beta1"), "apiVersion", 1),
    "unknown module": (FILE.replace("logger", "loger"), "loger", 2),
}


@pytest.mark.parametrize(("text", "path", "line"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_has_its_line_and_ends_with_1(tmp_path: Path, text: str, path: str, line: int) -> None:
    assert verdicts(tmp_path, text)[path] == (line, "refused")
    assert checked(tmp_path, text).exit_code == 1


UNUSABLE = {
    "no policy": "a: 1\n",
    "empty": "",
    "a list": "- a\n",
    "no YAML": "a: [\n",
    "aliases": "balloonTypes: [&a {name: x}, *a]\n",
    "a bomb in a config map": "kind: ConfigMap\ndata:\n  policy: |\n    a: &a [1]\n    b: [*a, *a]\n",
    "too large": f"# {'x' * (1 << 20)}\n",
}


@pytest.mark.parametrize("text", UNUSABLE.values(), ids=UNUSABLE)
def test_a_file_that_is_none_ends_with_2_and_says_why(tmp_path: Path, text: str) -> None:
    done = checked(tmp_path, text)

    assert (done.exit_code, done.stderr.startswith("nodeward: ")) == (2, True)
    assert CliRunner().invoke(policies.command, ["plan", str(tmp_path / "p.yaml")]).exit_code == 2


def test_the_text_names_the_line_the_nearest_key_and_what_is_done(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(UNKNOWN)
    told = CliRunner().invoke(policies.command, ["check", str(tmp_path / "p.yaml")]).stdout

    assert "line 10: spec.balloonTypes[0].minBallons: refused: unknown key; did you mean minBalloons?" in told
    assert "done: spec.reservedResources.cpu, spec.pinMemory, spec.balloonTypes" in told
    assert all(len(line) < 120 for line in told.partition("  done: ")[2].splitlines())


def test_a_policy_that_is_not_there_is_named_and_its_section_is_refused_as_a_whole(tmp_path: Path) -> None:
    text = "policy: {Active: memtier, memtier: {PinCPU: true}}\n"
    (found,) = json.loads(checked(tmp_path, text).stdout)

    assert found["policy"] == "memtier"
    assert [row["path"] for row in found["rows"]] == ["policy.Active", "policy.memtier"]


def test_an_object_that_no_node_would_read_is_noted(tmp_path: Path) -> None:
    (found,) = json.loads(checked(tmp_path, OBJECT.replace("name: default", "name: all, namespace: apps")).stdout)

    assert found["notes"][0].startswith("an object of the name 'all' means no node")
    assert found["notes"][1].startswith("objects of the namespace 'apps' count only where policy_objects.namespace")


IMAGE = str(Path(__file__).resolve())
"""Any file: what a disk image is is not looked at."""
GOOD = ("--device", IMAGE, "--fstype", "ext4")
INTERFACE = {"interface": {"ip_addresses": ["10.0.0.5/24"]}}
DEVICE = {"name": "eth0", "device": {"type": "vhost-user", "path": "/run/v.sock"}, "network_info": INTERFACE}
DAN = {"devices": [DEVICE]}


def called(*words: str) -> Result:
    """The command's end; an error of the house goes through, as to the console script."""
    result = CliRunner().invoke(vms.command, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_volume_is_added_listed_and_removed(tmp_path: Path) -> None:
    at = ("--folder", str(tmp_path / "v"))
    (tmp_path / "v").mkdir(0o700)
    assert called("volume", "list", *at).output == f"no volumes in {tmp_path}/v\n"
    words = ("/data", *GOOD, "--option", "ro", "--metadata", "fsGroup=5")
    added = Path(called("volume", "add", *words, *at).output.strip())
    (added.parent / "sb1").touch()
    (added.parent / ".mountInfo.json.new").touch()
    (added.parents[1] / "x").mkdir()

    assert json.loads(added.read_text())["metadata"] == {"fsGroup": "5"}
    assert called("volume", "list", *at).output.splitlines() == [
        f"/data  {IMAGE} ext4  sandbox sb1  1 fault(s), see nodeward vms volume check",
        f"{tmp_path}/v/x  -  sandbox -  2 fault(s), see nodeward vms volume check",
    ]
    checked = called("volume", "check", *at)
    assert checked.exit_code == 1
    assert [line.partition(": ")[2].partition(":")[0] for line in checked.output.splitlines()] == [
        *(".mountInfo.json.new", "folder of a volume", "mountInfo.json")
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
    codes = [called("volume", "check", str(place)) for place in (file, tmp_path)]
    assert (codes[0].output, codes[1].exit_code) == ("no faults\n", 1)


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
    ("device", "why"),
    [
        ("/dev/no-such", "No such file or directory; attach the volume first"),
        ("/dev/null", "neither a block device nor"),
    ],
)
def test_a_device_that_is_none_is_refused_before_anything_is_written(tmp_path: Path, device: str, why: str) -> None:
    with pytest.raises(NodewardError, match=why):
        called("volume", "add", "/data", "--device", device, "--fstype", "ext4", "--folder", str(tmp_path / "v"))
    assert not (tmp_path / "v").exists()


VALUES = "image: {name: x}\nconfig:\n  reservedResources: {cpu: 1, memory: 1Gi}\n  balloonTypes: [{name: own}]\n"
IN_MAP = "kind: ConfigMap\nmetadata: {name: p}\ndata: {config.yaml: '{reservedResources: {cpu: 1}, balloonTypes: []}'}"


@pytest.mark.parametrize(
    ("text", "what", "idle"),
    [
        pytest.param(VALUES, "values of nri-plugins' chart", ["config.reservedResources.memory"], id="Helm values"),
        pytest.param(IN_MAP, "nri-plugins' configuration in ConfigMap p (config.yaml)", [], id="a file in a ConfigMap"),
    ],
)
def test_chart_values_and_config_map_files_are_checked(tmp_path: Path, text: str, what: str, idle: list[str]) -> None:
    done = checked(tmp_path, text)
    (found,) = json.loads(done.stdout)

    assert (done.exit_code, found["what"]) == (0, what)
    assert [row["path"] for row in found["rows"] if row["verdict"] == "not enforced"] == idle


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
    with pytest.raises(NodewardError, match=r"^/run/x: Permission denied; run this as root$"), vms.volume.told():
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
OF_A_POD = "--cgroups-path /pod1/s1 --memory 9000"


def plan(*words: str) -> Result:
    return CliRunner().invoke(command, ["plan", "--version", "1", *NAMES, *words])


def test_a_plan_tells_each_step_with_its_number_on_the_page() -> None:
    words = "--split --container c1=/p/c1 --cpu-m 500 --vmm 20 --vcpu 21:9 --shim c1=11"
    done = plan(*words.split())

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
        ("--no-pod --memory 9000", "create: limit /p/s1 memory.limit_in_bytes 9000 (memory)"),
        ("--only --memory 9000", "create: limit /p/kata-sandbox-s1 memory.limit_in_bytes 9000 (memory)"),
        (f"{OF_A_POD} --overhead 5", "create: limit /pod1 memory.limit_in_bytes 9005 (memory) unless it has one"),
        ("--split --version 2 --threaded", "create: make threaded /p/kata_s1/vcpu  [5]"),
        ("--cgroups-path a.slice:b:s1 --driver systemd", "create: make /a.slice/kata-sandbox-s1 (all)"),
        ("--split --virtiofsd 30", "place: move virtiofsd 30 to /kata (memory)  [7]"),
        ("--vmm 20:7 --shim 11", "place: move shim 11 to /p/kata-sandbox-s1 (all)"),
    ],
)
def test_each_option_does_what_it_says(words: str, line: str) -> None:
    assert line in plan(*words.split()).stdout.splitlines()


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
