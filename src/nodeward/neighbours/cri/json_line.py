"""One line of JSON with a version: how the processes of a node ask and answer one another.

Whoever reads a version that it does not know says so and believes nothing. The OCI hook's line (`neighbours.hook.line`)
is read by the same rule and not by this code: the hook starts for each container, and msgspec takes too long for that.
"""

from typing import Final, TypeVar

import msgspec

from nodeward.core.wire_errors import WireError

SHOWN: Final = 200
"""Characters of what was wrong."""
T = TypeVar("T")


class _Versioned(msgspec.Struct, frozen=True):
    v: object = None


def check_version(what: str, line: bytes, version: int) -> None:
    """WireError where the line, of the format `what`, is of another version or none."""
    found = read(what, line, _Versioned).v
    if found != version:
        raise WireError(what, f"version {str(found)[:80]} is not known; this program speaks {version}")


def read(what: str, line: bytes, kind: type[T]) -> T:
    """The line's object; WireError for anything else. Fields that `kind` has not are skipped."""
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(what, f"{line[:80]!r} cannot be read: {str(error)[:SHOWN]}") from error
