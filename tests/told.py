"""What tests of a real kernel have seen, for the end of the run's output, where pytest does not hide it."""

LINES: list[str] = []


def tell(line: str) -> None:
    """Shown under "seen", in this order."""
    LINES.append(line)
