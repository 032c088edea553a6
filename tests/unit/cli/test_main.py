"""What a person reads of a sub-command that there is not."""

from click.testing import CliRunner

from nodeward.cli.main import cli


def test_a_misspelt_sub_command_gets_the_nearest_as_a_suggestion() -> None:
    done = CliRunner().invoke(cli, ["stauts"])

    assert done.exit_code == 2
    assert "No such command 'stauts'. Did you mean 'status'?" in done.stderr
