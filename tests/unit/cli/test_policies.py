"""`nodeward policies`: what is told of each CPU policy, and of each key of a file that chooses one."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nodeward.app.tools import cri_resmgr
from nodeward.app.tools.cri_resmgr_pushed import over_file
from nodeward.app.tools.policies import UnknownPolicyError
from nodeward.cli import policies
from nodeward.engine.cpus.policies.table import POLICIES
from nodeward.model.policy_rule import STATIC_OPTIONS


def test_every_policy_of_the_table_has_a_line_and_a_row() -> None:
    told = CliRunner().invoke(policies.command)
    rows = json.loads(CliRunner().invoke(policies.command, ["-o", "json"]).stdout)

    assert [line.split()[0] for line in told.stdout.splitlines()] == [row["name"] for row in rows] == list(POLICIES)
    assert told.stdout.splitlines()[0].endswith("(also null)")


def test_one_is_explained_with_what_it_needs_and_each_option_that_it_takes() -> None:
    told = CliRunner().invoke(policies.command, ["static"]).stdout

    assert "needs: policy.reserved\n" in told
    assert "settings: policy.static.relaxed_isolation, policy.static.options (docs" in told
    options = [line.partition(":")[0].strip() for line in told.splitlines() if line.startswith("  ")]
    assert sorted(options) == sorted(STATIC_OPTIONS)
    assert told.endswith("nodeward node --set policy.active=static --set policy.reserved=1\n")


def test_an_alias_is_a_name_and_an_unknown_one_is_refused_with_those_that_are() -> None:
    assert CliRunner().invoke(policies.command, ["null"]).stdout.startswith("none: ")

    for words, why in (
        (["topology-aware"], "comes with a later version"),
        (["statik"], "is not known; did you mean static?"),
        (["chekc", "balloons.yaml"], "did you mean check?"),
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
  Active: static
  ReservedResources: {CPU: 1, Memory: 1G}
  topology-aware: {PinCPU: true}
  none: {}
  Static: {Rdt: x}
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
    given = cri_resmgr.choose(["-force-config", "/c"], {}, lambda _: text, lambda _: True)
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
            "policy.ReservedResources.Memory": (3, "not enforced"),
            "policy.topology-aware": (4, "not enforced"),
            "policy.none": (5, "not enforced"),
            "policy.Static.Rdt": (6, "not enforced"),
        },
    ),
    "plain": (PLAIN, {}),
}


@pytest.mark.parametrize(("text", "found"), ACCEPTED.values(), ids=ACCEPTED)
def test_each_key_has_its_verdict_and_line(tmp_path: Path, text: str, found: dict[str, tuple[int, str]]) -> None:
    assert verdicts(tmp_path, text) == found
    assert checked(tmp_path, text).exit_code == 0


REFUSED = {
    "min above max": (OBJECT.replace("minCPUs: 1", "minCPUs: 5"), "spec.balloonTypes[0].minCPUs", 9),
    "unknown key": (
        OBJECT.replace("minCPUs: 1", "minCpus: 1\n      minBallons: 1"),
        "spec.balloonTypes[0].minBallons",
        10,
    ),
    "topology-aware": (OBJECT.replace("BalloonsPolicy", "TopologyAwarePolicy"), "kind", 2),
    "policy of later": (FILE.replace("static-plus", "topology-aware"), "policy.Active", 1),
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
    (tmp_path / "p.yaml").write_text(REFUSED["unknown key"][0])
    told = CliRunner().invoke(policies.command, ["check", str(tmp_path / "p.yaml")]).stdout

    assert "line 10: spec.balloonTypes[0].minBallons: refused: unknown key; did you mean minBalloons?" in told
    assert "done: spec.reservedResources.cpu, spec.pinMemory, spec.balloonTypes" in told
    assert all(len(line) < 120 for line in told.partition("  done: ")[2].splitlines())


def test_a_policy_that_is_not_there_is_named_and_its_section_is_refused_as_a_whole(tmp_path: Path) -> None:
    text = "policy: {Active: topology-aware, topology-aware: {PinCPU: true}}\n"
    (found,) = json.loads(checked(tmp_path, text).stdout)

    assert found["policy"] == "topology-aware"
    assert [row["path"] for row in found["rows"]] == ["policy.Active", "policy.topology-aware"]


def test_an_object_that_no_node_would_read_is_noted(tmp_path: Path) -> None:
    (found,) = json.loads(checked(tmp_path, OBJECT.replace("name: default", "name: all, namespace: apps")).stdout)

    assert found["notes"][0].startswith("an object of the name 'all' means no node")
    assert found["notes"][1].startswith("objects of the namespace 'apps' count only where policy_objects.namespace")
