"""The exit codes of all commands, in one place; docs/commands.md has the same table.

A script may rely on them. 2 is click's own for a usage error, so commands also use it for input that cannot be used.
"""

GOOD = 0
FAILED = 1
UNUSABLE = 2
BROKEN_OFF = 3
INTERRUPTED = 130
CLOSED_PIPE = 141

MEANINGS = {
    GOOD: "The command did what it was asked.",
    FAILED: "It failed, or its answer is no: not ready, faults or findings, decisions differ, a node did not answer.",
    UNUSABLE: "A usage error, or input that cannot be used.",
    BROKEN_OFF: "A scenario could not be run to its end.",
    INTERRUPTED: "Ctrl-C ended it; a live view ends with 0.",
    CLOSED_PIPE: "Its output was closed, as by `head`.",
}
"""By code, for people."""
BY_SEVERITY = {"ok": GOOD, "note": GOOD, "warning": FAILED, "error": FAILED}
"""Of `doctor`, by the worst finding; its JSON has `worst`."""
