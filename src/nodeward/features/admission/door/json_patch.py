"""RFC 6902 patches, written: `add` and `remove` at RFC 6901 pointers. Nothing is read or applied here.

Values are plain JSON values. The order of operations is the order in which they are to be applied.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import UNSET, Struct
from msgspec.json import Encoder

Value: TypeAlias = str | int | bool | Sequence["Value"] | Mapping[str, "Value"] | None


class PatchOperation(Struct, frozen=True):
    """One step. `add` sets a member of an object, or inserts into an array (`-` appends)."""

    op: Literal["add", "remove"]
    path: str
    value: object = UNSET


_ENCODER = Encoder()


def pointer(*parts: str | int) -> str:
    """The pointer to what these members and indexes lead to."""
    return "".join([f"/{part if isinstance(part, int) else _escaped(part)}" for part in parts])


def below(path: str, name: str) -> str:
    """The pointer to the member `name` of what `path` leads to."""
    return f"{path}/{_escaped(name)}"


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1") if "/" in name or "~" in name else name


def add(path: str, value: Value) -> PatchOperation:
    """Sets the member, or inserts the element."""
    return PatchOperation("add", path, value)


def remove(path: str) -> PatchOperation:
    """Takes away what is at `path`; it must be there."""
    return PatchOperation("remove", path)


def encode(operations: Sequence[PatchOperation]) -> bytes:
    """The patch as JSON."""
    return _ENCODER.encode(operations)
