"""Kubelet's messages, and the words of `keys`."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.contracts import deviceplugin_pb2 as protocol
from nodeward.core.errors import RequestError
from nodeward.neighbours.kubelet import mapping

IDS = st.lists(st.integers(0, 11_000).map(lambda number: f"tdx-key-{number:04d}"), max_size=40, unique=True)


def liked(available: list[str], must: list[str], size: int) -> list[str]:
    one = protocol.ContainerPreferredAllocationRequest(
        available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
    )
    request = protocol.PreferredAllocationRequest(container_requests=[one]).SerializeToString()
    (answer,) = protocol.PreferredAllocationResponse.FromString(mapping.preferred(request)).container_responses
    return list(answer.deviceIDs)


@given(IDS, st.integers(0, 12), st.integers(-1, 50))
def test_what_must_be_is_liked_and_then_the_lowest(ids: list[str], must: int, size: int) -> None:
    first = ids[:must]
    found = liked(ids, first, size)
    assert found[: len(first)] == first
    others = sorted((name for name in ids if name not in first), key=lambda name: int(name.removeprefix("tdx-key-")))
    assert found[len(first) :] == others[: max(0, size - len(first))]


@pytest.mark.parametrize("devices", [[], [("tdx-key-0000", True), ("t\u00fc", False)]], ids=["none", "two"])
def test_a_list_is_sent_as_the_goal_has_it(devices: list[tuple[str, bool]]) -> None:
    text = json.dumps(devices)
    sent = protocol.ListAndWatchResponse.FromString(mapping.listed(mapping.devices(text))).devices
    assert [(one.ID, one.health == "Healthy") for one in sent] == devices


@pytest.mark.parametrize("text", ["", "{}", '[["a"]]', '[["a", 1]]', "[[1, true]]"])
def test_a_goal_that_is_no_list_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        mapping.devices(text)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_an_error_with_a_short_text(data: bytes) -> None:
    def offered(request: bytes) -> object:
        return mapping.asked(request, {"a": None})

    def started(request: bytes) -> object:
        return mapping.starting(request, {"a": None})

    for read in (offered, started, mapping.preferred):
        said = ""
        try:
            read(data)
        except RequestError as error:
            said = str(error)
        assert len(said) < 300
