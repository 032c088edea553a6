"""The misc controller's files: `misc.capacity`, `misc.current`, `misc.peak`, `misc.max`, `misc.events*`.

One line a resource, `name value`, kernel order; an event line is `name.max count`. An empty file is not an error: it is
a node without capacity. Source: Documentation/admin-guide/cgroup-v2.rst (Misc), kernel/cgroup/misc.c.
"""

from nodeward.core.errors import WireError

MAX_BYTES = 16 * 1024
"""No misc file is near this size: a dozen resources of 40 bytes each."""

_WRAP = 2**64


def parse(data: bytes, *, suffix: str = "") -> dict[str, int]:
    """Values by resource; `max` is left out. `suffix` (`.max` for events) is cut from each name.

    A value at or above 2**63 is a counter that went below zero (TDX; features/keys, K5) and is returned negative.
    """
    values: dict[str, int] = {}
    for line in _text(data).splitlines():
        name, _, value = line.strip().partition(" ")
        if not name:
            continue
        if suffix and not name.endswith(suffix):
            continue
        if value == "max":
            continue
        if not (value.isascii() and value.isdigit()) or len(value) > 20:
            raise WireError("misc file", f"line {line[:80]!r} is not 'name value'")
        number = int(value)
        values[name.removesuffix(suffix)] = number - _WRAP if number >= _WRAP // 2 else number
    return values


def parse_whole(data: bytes) -> dict[str, int]:
    """The same of a file by which keys are sold. The kernel ends each line: of what ends otherwise the last number may
    be cut, so nothing of it is taken."""
    if data and not data.endswith(b"\n"):
        raise WireError("misc file", f"{len(data)} bytes, whose last line has no end: it may be cut short")
    return parse(data)


def parse_limits(data: bytes) -> dict[str, int]:
    """The limits of a `misc.max` by resource, unsigned; a resource at `max` is left out."""
    return {name: value + _WRAP if value < 0 else value for name, value in parse(data).items()}


def limit_line(resource: str, value: str) -> bytes:
    """One write's worth of `misc.max`: the kernel takes one resource a write, in decimal or `max`."""
    if not resource.replace("_", "").isalnum() or not resource.isascii():
        raise WireError("misc file", f"{resource!r} is no misc resource name")
    if value != "max" and not (value.isascii() and value.isdigit()):
        raise WireError("misc file", f"{value!r} is neither 'max' nor a decimal number")
    return f"{resource} {value}\n".encode()


def _text(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise WireError("misc file", f"{len(data)} bytes, more than {MAX_BYTES}")
    try:
        return data.decode("ascii")
    except UnicodeDecodeError as error:
        raise WireError("misc file", f"not ASCII: {error}") from error
