"""Reviews from bytes, answers to bytes, patches: whatever comes in, a value or a WireError comes out."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.core.errors import WireError
from nodeward.features.admission.door.mapping import add, encode, pointer
from nodeward.features.admission.door.review import annotations_of, decode_review, encode_allowed, encode_refused
from tests.unit.features.admission.rounds import Json, applied, container, pod_of, review

LIMIT = 1 << 20
GOOD = json.dumps(review(pod_of(container("app", {"sgx.intel.com/epc": "1Mi"}), annotations={"a": "b"}))).encode()


def test_only_the_annotations_one_asks_for_are_decoded() -> None:
    pod = decode_review(GOOD.replace(b'"b"', b'"\\u0062", "c": 7'), LIMIT).object
    assert pod is not None

    assert annotations_of(pod, lambda key: key == "a") == {"a": "b"}
    with pytest.raises(WireError, match=r"annotation 'c' .*, got `int`; write its value as text, in quotes$"):
        annotations_of(pod, lambda key: key == "c")


def test_of_a_key_that_comes_twice_the_last_one_counts_and_null_is_as_absent() -> None:
    request = decode_review(GOOD.replace(b'"operation": "CREATE"', b'"operation": "X", "operation": "CREATE"'), LIMIT)
    pod = decode_review(json.dumps(review({"metadata": None, "spec": None})).encode(), LIMIT).object
    assert pod is not None

    assert (request.operation, annotations_of(pod, lambda _: True)) == ("CREATE", {})


BAD = {
    "empty": b"",
    "no JSON": b"{",
    "not UTF-8": GOOD.replace(b'"app"', b'"\xff"'),
    "a list": b"[]",
    "a number for a name": GOOD.replace(b'"app"', b"7"),
    "version v1beta1": GOOD.replace(b"k8s.io/v1", b"k8s.io/v1beta1"),
    "another kind": GOOD.replace(b'"AdmissionReview"', b'"Pod"'),
    "no request": json.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}).encode(),
    "no uid": json.dumps(review(None, uid="")).encode(),
    "a limit that is a float": GOOD.replace(b'"1Mi"', b"1.5"),
    "deep nesting in what is read": GOOD.replace(b'"a": "b"', b'"a": ' + b"[" * 100_000 + b"]" * 100_000),
    "deep nesting in what is skipped": GOOD.replace(b'"options": {}', b'"options": ' + b"[" * 100_000 + b"]" * 100_000),
    "too large": GOOD + b" " * LIMIT,
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_what_is_no_review_is_an_error_that_does_not_show_it(data: bytes) -> None:
    with pytest.raises(WireError) as caught:
        decode_review(data, LIMIT)
    assert len(str(caught.value)) < 400


@given(st.text(), st.text(), st.text())
def test_a_pointer_leads_back_to_any_key(key: str, other: str, value: str) -> None:
    """The test's own reader of RFC 6901 finds exactly the member that the pointer was made for."""
    document: Json = {"a": {other: "old", key: "old"}}
    operations = json.loads(encode([add(pointer("a", key), value)]))

    assert applied(document, operations) == {"a": {other: "old", key: value} if other != key else {key: value}}


def test_an_answer_has_the_uid_and_what_there_is_to_say() -> None:
    patch = {"patchType": "JSONPatch", "patch": base64.b64encode(b"[]").decode(), "warnings": ["take care"]}
    status = {"code": 403, "reason": "Forbidden", "message": "because"}
    answers = encode_allowed("u"), encode_allowed("u", b"[]", ("take care",)), encode_refused("u", "because")
    assert [json.loads(one)["response"] for one in answers] == [
        {"uid": "u", "allowed": True},
        {"uid": "u", "allowed": True, **patch},
        {"uid": "u", "allowed": False, "status": status},
    ]
