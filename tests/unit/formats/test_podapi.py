"""The Pod API's messages: the contract has every field of the dataclasses, and what is no request is refused unsaid."""

import dataclasses
import enum
import typing
from collections.abc import Iterator

import msgspec
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from nodeward.contracts import podapi_pb2
from nodeward.core.errors import WireError
from nodeward.features.gate import rows as gate
from nodeward.features.podapi import rows as model
from nodeward.features.podapi.door import messages as codec
from nodeward.features.podapi.rows import (
    ConfirmVolumeRequest,
    ConfirmVolumeResponse,
    HoldVolumeRequest,
    HoldVolumeResponse,
    ListVolumeClaimsRequest,
    ListVolumeClaimsResponse,
    OfferVolumesRequest,
    OfferVolumesResponse,
    ReportPullRequest,
    ReportPullResponse,
    ResolvePullRequest,
    ResolvePullResponse,
)

KINDS = {
    "DescribePod": (model.DescribePodRequest, model.PodDescription),
    "ListPods": (model.ListPodsRequest, model.ListPodsResponse),
    "Watch": (model.WatchRequest, model.WatchEvent),
    "ComputeSize": (model.ComputeSizeRequest, model.ComputeSizeResponse),
    "ReportSandbox": (model.ReportSandboxRequest, model.ReportSandboxResponse),
    "SetGate": (gate.SetGateRequest, gate.SetGateResponse),
    "ResolvePull": (ResolvePullRequest, ResolvePullResponse),
    "ReportPull": (ReportPullRequest, ReportPullResponse),
    "OfferVolumes": (OfferVolumesRequest, OfferVolumesResponse),
    "ConfirmVolume": (ConfirmVolumeRequest, ConfirmVolumeResponse),
    "ListVolumeClaims": (ListVolumeClaimsRequest, ListVolumeClaimsResponse),
    "HoldVolume": (HoldVolumeRequest, HoldVolumeResponse),
}
NUMBERS = {FieldDescriptor.TYPE_INT64: int, FieldDescriptor.TYPE_BOOL: bool, FieldDescriptor.TYPE_STRING: str}


def differences(kind: object, message: Descriptor, where: str) -> Iterator[str]:
    """Each field that only one of a dataclass and its message has, or that has another type there."""
    origin = typing.get_origin(kind) or kind
    assert isinstance(origin, type)
    hints = typing.get_type_hints(origin)
    for value in typing.get_args(kind):  # of a Section
        hints["value"] = value
        if value is type(None):
            del hints["value"]
    for name in sorted(hints.keys() ^ {field.name for field in message.fields}):
        yield f"{where}.{name}: in {'the dataclass' if name in hints else 'the message'} alone"
    for field in message.fields:
        if field.name in hints:
            yield from _of_field(hints[field.name], field, f"{where}.{field.name}")


def _of_field(hint: object, field: FieldDescriptor, where: str) -> Iterator[str]:
    parts = [one for one in typing.get_args(hint) if one not in (type(None), ...)]
    origin = typing.get_origin(hint)
    optional = type(None) in typing.get_args(hint)
    if origin is tuple and field.is_repeated:
        yield from _of_one(parts[0], field, where)
    elif field.message_type is not None and field.message_type.GetOptions().map_entry:
        for part, name in zip(parts, ("key", "value"), strict=True):
            yield from _of_one(part, field.message_type.fields_by_name[name], where)
    elif field.is_repeated:
        yield f"{where}: repeated in the message alone"
    else:
        if optional and field.message_type is None and not field.has_presence:
            yield f"{where}: optional in the dataclass alone"
        yield from _of_one(parts[0] if optional else hint, field, where)


def _of_one(hint: object, field: FieldDescriptor, where: str) -> Iterator[str]:
    kind = typing.get_origin(hint) or hint
    assert isinstance(kind, type)
    if dataclasses.is_dataclass(kind) and field.message_type is not None:
        yield from differences(hint, field.message_type, where)
    elif issubclass(kind, enum.Enum) and field.enum_type is not None:
        names = {one.name for one in field.enum_type.values} - {"UNSPECIFIED"}
        if names != {str(one.value) for one in kind}:
            yield f"{where}: other words"
    elif NUMBERS.get(field.type) is not (str if kind is model.Json or issubclass(kind, enum.Enum) else kind):
        yield f"{where}: another type"


def test_the_contract_has_every_field_of_the_dataclasses_and_no_other() -> None:
    methods = podapi_pb2.DESCRIPTOR.services_by_name["PodApi"].methods
    assert {one.name for one in methods} == KINDS.keys()
    found = [
        line
        for one in methods
        for kind, message in zip(KINDS[one.name], (one.input_type, one.output_type), strict=True)
        for line in differences(kind, message, message.name)
    ]
    assert not found, found


WRONG = {
    "cut": (b'{"selector":{"uid":', "no JSON"),
    "deep": (b"[" * 20_000, "no JSON, or nested too deeply"),
    "no object": (b"[]", "the request: Expected `object`, got `array`"),
    "unknown field": (b'{"selector":{"s3cret":1}}', "selector: has an unknown field; known are uid"),
    "wrong type": (b'{"wait_ms":"s3cret"}', "wait_ms: Expected `int`, got `str`"),
    "bad text": (b'{"selector":{"uid":"\\ud800"}}', "no JSON"),
}


@pytest.mark.parametrize(("data", "why"), WRONG.values(), ids=WRONG)
def test_json_that_is_no_request_is_refused_with_its_path_and_without_an_echo(data: bytes, why: str) -> None:
    with pytest.raises(WireError) as refused:
        codec.request_of_json(model.DescribePodRequest, data)
    assert why in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_protobuf_is_read_as_its_rules_say_and_refused_where_it_is_cut() -> None:
    """Doubled, the last value counts; a field that this version does not know is passed over."""
    sent = podapi_pb2.DescribePodRequest(selector=podapi_pb2.Selector(uid="u1"), fields=["spec"], wait_ms=7)
    data = sent.SerializeToString()
    asked = model.DescribePodRequest(model.Selector("u1"), ("spec",), 7)
    assert codec.request_of_message("DescribePod", model.DescribePodRequest, data) == asked
    assert codec.request_of_message("DescribePod", model.DescribePodRequest, data + b"\xf8\x07\x01") == asked
    twice = codec.request_of_message("DescribePod", model.DescribePodRequest, data * 2)
    assert (twice.selector, twice.wait_ms) == (asked.selector, 7)
    with pytest.raises(WireError, match="no DescribePodRequest"):
        codec.request_of_message("DescribePod", model.DescribePodRequest, data[:-1])


def test_what_is_not_known_is_null_in_json_and_absent_in_protobuf_and_a_spec_keeps_its_numbers() -> None:
    large = b'{"n":9007199254740993}'
    checkpoint = model.Section(model.PodCheckpoint(None), "x", False, "why", 1 << 62)
    sums = model.Section(model.PodTotals(None, 0, 1, 1 << 64, False, True), "x")
    answer = model.PodDescription(checkpoint=checkpoint, totals=sums, spec=model.Section(model.Json(large), "x"))
    told = msgspec.json.decode(codec.json_of(answer))
    assert told["identity"] is None
    assert told["checkpoint"]["value"] == {"possible": None}
    assert told["spec"]["value"] == {"n": 9007199254740993}
    message = podapi_pb2.PodDescription.FromString(codec.message_of("DescribePod", answer))
    assert not message.HasField("identity")
    assert not message.checkpoint.value.HasField("possible")
    assert (message.checkpoint.observed_at, message.spec.value) == (1 << 62, large.decode())
    assert (message.totals.value.memory_limit, message.totals.value.all_memory_limited) == ((1 << 63) - 1, True)
