"""The Pod API's messages: JSON (HTTP) and protobuf (gRPC) to the dataclasses of `model.podapi`, and back.

Promises: JSON is strict (unknown fields and wrong types are faults with their path), protobuf ignores unknown fields as
its rules say; an error holds nothing of what was asked. Protobuf goes through its own JSON mapping, so that both forms
have one reader. Must not know what a method does.
"""

import functools
from dataclasses import is_dataclass
from typing import Final, TypeVar, get_args, get_type_hints

import msgspec
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError, Message

from nodeward.model.podapi import Json
from nodeward.proto import podapi_pb2
from nodeward.wire.errors import WireError

FORMAT: Final = "request"
MAX_REQUEST: Final = 64 * 1024
SERVICE: Final[ServiceDescriptor] = podapi_pb2.DESCRIPTOR.services_by_name["PodApi"]
T = TypeVar("T")


def request_of_json(kind: type[T], data: bytes) -> T:
    """The request; nothing is one without fields. WireError for what is none."""
    try:
        found = msgspec.json.decode(data or b"{}")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise WireError(FORMAT, f"{len(data)} bytes that are no JSON, or nested too deeply") from None
    _refuse_unknown(kind, found, "$")
    return _converted(kind, found, strict=True)


def request_of_message(method: str, kind: type[T], data: bytes) -> T:
    """The request of this method. WireError for what is none."""
    message = _messages(method)[0]()
    try:
        message.ParseFromString(data)
        found = json_format.MessageToDict(message, preserving_proto_field_name=True)
    except (DecodeError, json_format.Error, ValueError, RecursionError):
        raise WireError(FORMAT, f"{len(data)} bytes that are no {message.DESCRIPTOR.name}") from None
    return _converted(kind, found, strict=False)  # 64 bits are text in protobuf's JSON


def json_of(answer: object) -> bytes:
    """The answer as JSON."""
    return msgspec.json.encode(answer, enc_hook=lambda value: msgspec.Raw(_of_json(value)))


def message_of(method: str, answer: object) -> bytes:
    """The answer of this method as protobuf. ValueError where the contract lacks a field of it."""
    plain: dict[str, object] = msgspec.to_builtins(answer, enc_hook=lambda value: _of_json(value).decode())
    try:
        message = json_format.ParseDict(_without_none(plain), _messages(method)[1]())
    except json_format.ParseError as error:
        raise ValueError(f"an answer of {method} that proto/podapi.proto does not hold") from error
    return message.SerializeToString()


@functools.cache
def _messages(method: str) -> tuple[type[Message], type[Message]]:
    found = SERVICE.methods_by_name[method]
    return message_factory.GetMessageClass(found.input_type), message_factory.GetMessageClass(found.output_type)


def _of_json(value: object) -> bytes:
    if isinstance(value, Json):
        return value.data
    raise NotImplementedError(f"{type(value).__name__} is no value of an answer")


def _without_none(found: dict[str, object]) -> dict[str, object]:
    """Protobuf has no null: what is not known is not there."""
    return {key: _inside(value) for key, value in found.items() if value is not None}


def _inside(value: object) -> object:
    if isinstance(value, dict):
        return _without_none(value)
    return [_inside(one) for one in value] if isinstance(value, list | tuple) else value


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
            raise WireError(FORMAT, f"{path}: has an unknown field; {known}")
        for name, one in value.items():
            _refuse_unknown(hints[name], one, f"{path}.{name}")


def _converted(kind: type[T], found: object, strict: bool) -> T:
    try:
        return msgspec.convert(found, kind, strict=strict)
    except msgspec.ValidationError as error:
        said, _, where = str(error).partition(" - at ")
        why = said if said.startswith(("Expected `", "Object missing")) else "a value that is not allowed"
        raise WireError(FORMAT, f"{where.strip('`') or '$'}: {why}") from None
