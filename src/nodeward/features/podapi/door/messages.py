"""The Pod API's messages: JSON (HTTP) and protobuf (gRPC) to the dataclasses of `features.podapi.rows`, and back.

Promises: JSON is strict (unknown fields and wrong types are faults with their path), protobuf ignores unknown fields as
its rules say; an error holds nothing of what was asked. Both forms have the same names, so one reader serves them. Must
not know what a method does.
"""

import functools
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Final, TypeVar, get_args, get_type_hints

import msgspec
from google.protobuf import message_factory
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError, Message

from nodeward.contracts import podapi_pb2
from nodeward.core.errors import WireError
from nodeward.core.quantity import MAX_VALUE
from nodeward.features.podapi.rows import Json

FORMAT: Final = "request"
MAX_REQUEST: Final = 512 * 1024
"""Bytes: 64 volumes with the longest paths are 300 KiB."""
SERVICE: Final[ServiceDescriptor] = podapi_pb2.DESCRIPTOR.services_by_name["PodApi"]
_WHOLE: Final = "the request"
T = TypeVar("T")


def request_of_json(kind: type[T], data: bytes) -> T:
    """The request; nothing is one without fields. WireError for what is none."""
    try:
        found = msgspec.json.decode(data or b"{}")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise WireError(FORMAT, f"{len(data)} bytes that are no JSON, or nested too deeply") from None
    _refuse_unknown(kind, found, "")
    return _converted(kind, found)


def request_of_message(method: str, kind: type[T], data: bytes) -> T:
    """The request of this method. WireError for what is none."""
    message = _messages(method)[0]()
    if len(data) > MAX_REQUEST:
        raise WireError(FORMAT, f"{len(data)} bytes: a request has at most {MAX_REQUEST}")
    try:
        message.ParseFromString(data)
    except (DecodeError, RecursionError):
        raise WireError(FORMAT, f"{len(data)} bytes that are no {message.DESCRIPTOR.name}") from None
    return _converted(kind, _plain(message))


def json_of(answer: object) -> bytes:
    """The answer as JSON."""
    return msgspec.json.encode(answer, enc_hook=lambda value: msgspec.Raw(_of_json(value)))


def message_of(method: str, answer: object) -> bytes:
    """The answer of this method as protobuf, which has no null: what is not known is not there. A number of more than
    63 bits is told as the largest of these, as Kubernetes does."""
    message = _messages(method)[1]()
    _fill(message, answer)
    return message.SerializeToString()


def _plain(message: Message) -> dict[str, object]:
    """The fields that are there, as JSON's kinds."""
    found: dict[str, object] = {}
    for field, value in message.ListFields():
        if field.message_type is None:
            found[field.name] = list(value) if field.is_repeated else value
        else:
            found[field.name] = [_plain(one) for one in value] if field.is_repeated else _plain(value)
    return found


def _fill(message: Message, answer: object) -> None:
    """The dataclass' fields, into those of the same names."""
    assert is_dataclass(answer), "every message is one"
    for name in (one.name for one in fields(answer)):
        value: object = getattr(answer, name)
        match value:
            case None:
                continue
            case tuple() | list():
                rows = getattr(message, name)
                for one in value:
                    if is_dataclass(one):
                        _fill(rows.add(), one)
                    else:
                        rows.append(one)
            case Mapping():
                getattr(message, name).update(value)
            case Json():
                setattr(message, name, value.data.decode())
            case Enum():
                setattr(message, name, value.value)
            case _ if is_dataclass(value):
                inside: Message = getattr(message, name)
                inside.SetInParent()
                _fill(inside, value)
            case int():  # a sum of a pod's limits can be more than the field holds
                setattr(message, name, min(value, MAX_VALUE))
            case _:
                setattr(message, name, value)


@functools.cache
def _messages(method: str) -> tuple[type[Message], type[Message]]:
    found = SERVICE.methods_by_name[method]
    return message_factory.GetMessageClass(found.input_type), message_factory.GetMessageClass(found.output_type)


def _of_json(value: object) -> bytes:
    if isinstance(value, Json):
        return value.data
    raise NotImplementedError(f"{type(value).__name__} is no value of an answer")


def _refuse_unknown(kind: object, value: object, path: str) -> None:
    """msgspec passes over unknown keys of a dataclass."""
    if isinstance(value, list):
        row = next((one for one in get_args(kind) if is_dataclass(one)), None)
        for number, one in enumerate(value if row is not None else ()):
            _refuse_unknown(row, one, f"{path}[{number}]")
    elif isinstance(value, dict) and isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        if any(key not in hints for key in value):
            known = f"known are {', '.join(hints)}" if hints else "it has none"
            raise WireError(FORMAT, f"{path or _WHOLE}: has an unknown field; {known}")
        for name, one in value.items():
            _refuse_unknown(hints[name], one, f"{path}.{name}".lstrip("."))


def _converted(kind: type[T], found: object) -> T:
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        said, _, where = str(error).partition(" - at ")
        path = where.strip("`").removeprefix("$").lstrip(".")
        if said.startswith("Object missing required field"):
            missing = said.split("`")[1]
            raise WireError(FORMAT, f"{path}.{missing}: is missing".lstrip(".")) from None
        why = said if said.startswith("Expected `") else "a value that is not allowed"
        raise WireError(FORMAT, f"{path or _WHOLE}: {why}") from None
