"""What happened lately and may be over, as rows."""

from nodeward.core.conditions import HappenedRow
from nodeward.core.times import rfc3339
from nodeward.features.lately.step import lasting
from nodeward.features.root import State


def lately_rows(state: State, now_ns: int) -> tuple[HappenedRow, ...]:
    """The newest last."""
    return tuple(
        HappenedRow(one.code, one.pod, one.count, rfc3339(one.first_wall_ns), rfc3339(one.last_wall_ns), one.why)
        for one in lasting(state, now_ns)
    )
