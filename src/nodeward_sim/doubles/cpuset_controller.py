"""The kernel's cpuset controller as a value machine, cgroup v2 only: what is asked for, and what is in effect.

The rules are those of kernel/cgroup/cpuset.c: a set is taken as written while the machine could have such CPUs; in
effect is what of it the parent has in effect, and all that the parent has where nothing is left. Nothing is ever
refused for having no CPU. Memory and partitions are left out.
"""

import errno
import re
from dataclasses import dataclass
from typing import Final

from nodeward.core import cpuset
from nodeward.core.cpuset import CpuSet
from nodeward_sim.doubles.misc_controller import RefusalError

_SPACE: Final = " \t\n\v\f\r"
_PART: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


@dataclass(slots=True, eq=False)
class CpusetState:
    """What one cgroup has while cpuset is on for it. `asked` 0: nothing, so the parent's."""

    parent: "CpusetState | None"
    asked: CpuSet = 0
    alive: bool = True


class CpusetController:
    """What the machine has: CPUs that could be there, and those that are online. One CPU until somebody says more."""

    def __init__(self) -> None:
        self.possible: CpuSet = 1
        self.online: CpuSet = 1

    def effective(self, state: CpusetState) -> CpuSet:
        """The CPUs on which processes of this cgroup may run."""
        if state.parent is None:
            return self.online
        above = self.effective(state.parent)
        return state.asked & above or above

    def show(self, state: CpusetState, *, effective: bool) -> bytes:
        """Content of `cpuset.cpus`, or of `cpuset.cpus.effective`."""
        return f"{cpuset.text(self.effective(state) if effective else state.asked)}\n".encode()

    def write(self, state: CpusetState, text: str) -> None:
        """One write(2) to cpuset.cpus: a list, or nothing for the parent's. A refused write leaves the old set."""
        asked, last = 0, self.possible.bit_length() - 1
        for part in re.split(f"[{_SPACE},]+", text.strip(_SPACE)):
            if not part:
                continue
            found = _PART.fullmatch(part)
            if found is None:
                raise RefusalError(errno.EINVAL)
            low, high = int(found[1]), int(found[2] or found[1])
            if low > high:
                raise RefusalError(errno.EINVAL)
            if high > last:
                raise RefusalError(errno.ERANGE)
            asked |= ((1 << (high - low + 1)) - 1) << low
        if asked & ~self.possible:
            raise RefusalError(errno.EINVAL)
        state.asked = asked
