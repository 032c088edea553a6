"""Bytes to protobuf's generated messages, with this project's error."""

from typing import Protocol, TypeVar

from google.protobuf.message import DecodeError

from nodeward.wire.errors import WireError

_T_co = TypeVar("_T_co", covariant=True)


class _Readable(Protocol[_T_co]):
    """A message class of generated code."""

    def FromString(self, serialized: bytes, /) -> _T_co: ...  # noqa: N802 - protobuf's name


def read(format_name: str, kind: _Readable[_T_co], payload: bytes) -> _T_co:
    """The message. WireError where the bytes are none: text that is no UTF-8 too, which Go lets pass. `format_name` is
    the protocol whose message it is."""
    try:
        return kind.FromString(payload)
    except DecodeError as error:
        raise WireError(format_name, f"{len(payload)} bytes are no {getattr(kind, '__name__', kind)}") from error
