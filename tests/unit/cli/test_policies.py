"""`nodeward policies`: what is told of each CPU policy."""

import json

from click.testing import CliRunner

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


def test_keys_that_have_no_effect_are_told_with_the_reason() -> None:
    told = CliRunner().invoke(policies.command, ["balloons"]).stdout

    idle, _, refused = told.partition("taken and not enforced:\n")[2].partition("refused:\n")
    assert "idleCPUClass, cpuClasses, " in idle
    assert idle.count("frequencies") == 1
    assert "  preferCloseToDevices: which CPUs are close" in refused
    assert "settings: policy.balloons.pin_cpu, " in told


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
