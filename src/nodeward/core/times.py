"""Times of the wall clock for people and JSON."""

from datetime import UTC, datetime

LATELY_NS = 900_000_000_000
"""What happened is said for so long after the last time: as long as the alerts look back."""


def from_rfc3339(text: str) -> int:
    """The time by the wall clock in nanoseconds; 0 where the text is none."""
    try:
        return int(datetime.fromisoformat(text).timestamp()) * 1_000_000_000
    except (ValueError, OverflowError):
        return 0


def rfc3339(wall_ns: int) -> str:
    """The time in UTC, to the second; empty for 0, which means that it is not known."""
    return datetime.fromtimestamp(wall_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if wall_ns else ""
