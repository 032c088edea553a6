"""A configuration that an agent pushed, over the settings of a process: what holds, and what is told of it."""

from nodeward.app.tools.cri_resmgr_pushed import over_file

BALLOONS = {"policy": "Active: balloons\nballoons: {BalloonTypes: [{Name: a}]}\n"}


def test_a_file_is_replaced_and_environment_and_flags_win() -> None:
    variables = {"NODEWARD_POLICY__ACTIVE": "static", "NODEWARD_POLICY__RESERVED": "1"}
    by_variables = over_file(None, variables, {})(BALLOONS).policy
    by_flags = over_file(None, {}, {"policy.active": "static", "policy.reserved": "1"})(BALLOONS).policy
    assert (by_variables.active, by_flags.active) == ("static", "static")
    assert by_variables.balloons.balloon_types[0].name == "a", "what they do not say is as it was pushed"
