"""The kernel's cpu controller as a value machine, cgroup v2 only: CPU time so far, and the limit as it was written.

Nobody is slowed down by a limit here. `cpu.stat` is there where the controller is on; in the kernel it is everywhere.
"""

import errno
import re
from dataclasses import dataclass
from typing import Final

from nodeward_sim.doubles.misc_controller import RefusalError

FILES: Final = ("cpu.max", "cpu.stat")
_PERIODS: Final = range(1000, 1_000_001)
_WRITTEN: Final = re.compile(r"\s*(max(?!\S)|[0-9]+)\S*(?:\s+([0-9]+))?")
"""As the kernel's sscanf takes it: what follows a number or stands in place of the period is passed over."""


@dataclass(slots=True, eq=False)
class CpuState:
    """What one cgroup has while cpu is on for it. `quota` in microseconds each `period`, None for no limit."""

    parent: "CpuState | None"
    alive: bool = True
    usage_us: int = 0
    quota: int | None = None
    period: int = 100_000

    def spend(self, spent_us: int) -> None:
        """A task of this cgroup has run for so long."""
        level: CpuState | None = self
        while level is not None:
            level.usage_us += spent_us
            level = level.parent

    def show(self, file: str) -> bytes:
        """Content of one of FILES."""
        if file == "cpu.max":
            return f"{'max' if self.quota is None else self.quota} {self.period}\n".encode()
        return f"usage_usec {self.usage_us}\nuser_usec {self.usage_us}\nsystem_usec 0\n".encode()

    def write_max(self, text: str) -> None:
        """One write(2) to cpu.max: a quota or `max`, and perhaps a period."""
        found = _WRITTEN.match(text)
        if found is None:
            raise RefusalError(errno.EINVAL)
        quota = None if found[1] == "max" else int(found[1])
        period = int(found[2] or self.period)
        if period not in _PERIODS or (quota is not None and quota < _PERIODS.start):
            raise RefusalError(errno.EINVAL)
        self.quota, self.period = quota, period
