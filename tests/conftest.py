"""What all tiers share."""

from _pytest.terminal import TerminalReporter
from hypothesis import settings

from tests.told import LINES

# A property says nothing of time: on a busy machine the same example takes a thousand times as long.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    if LINES:
        terminalreporter.section("seen")
    for line in LINES:
        terminalreporter.write_line(line)
