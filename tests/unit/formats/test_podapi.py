"""The Pod API's messages: what is no request is refused unsaid."""

import msgspec
import pytest

from nodeward.contracts import podapi_pb2
from nodeward.core.errors import WireError
from nodeward.features.podapi import rows as model
from nodeward.features.podapi.door import messages as codec

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
