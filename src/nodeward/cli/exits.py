"""What `nodeward` ends with. docs/commands.md has this table; a test compares.

A command has its own meaning of 1 and 2 where its `--help` says so: doctor's warnings and errors, replay's differences.
"""

GOOD = 0
FAILED = 1
"""What was asked for is not so, or could not be done: the text says why."""
USAGE = 2
"""An option, an argument, a file or a setting cannot be used; nothing was done."""
SCENARIO_FAILED = 3
NOTHING_CHOSEN = 4

MEANINGS = {
    GOOD: "done, or what was asked for is so",
    FAILED: "it is not so, could not be done, or who read the output has gone; `doctor`: a warning; `replay`: "
    "decisions differ; an invariant broke in a scenario",
    USAGE: "an option, argument, file or setting cannot be used, and nothing was done; `doctor`: an error",
    SCENARIO_FAILED: "a scenario could not be run to its end",
    NOTHING_CHOSEN: "`status`: no pod is chosen by the options",
}
