"""The decorator of values that are made for every event: frozen for the type checker, plain at run time.

A dataclass that is frozen at run time sets each field through `object.__setattr__`, so one is made in more than twice
the time of a plain one; an NRI create makes about fifteen of them, a fifth of what it costs. So mypy sees
`dataclasses.dataclass` and refuses every assignment, and the interpreter freezes only in its development mode
(`python -X dev`), which a test runs.
"""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

__all__ = ["value"]

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:

    def value(*, frozen, slots, kw_only=False):
        """`dataclass`, thawed outside the development mode. The hash stays that of a frozen one."""
        really = frozen and sys.flags.dev_mode
        return dataclass(frozen=really, unsafe_hash=frozen and not really, slots=slots, kw_only=kw_only)
