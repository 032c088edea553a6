"""A dump's messages as trees: what a relay wrote comes back; what a stranger wrote takes neither time nor memory."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nodeward.proto import cri_pb2 as cri
from nodeward.wire import dump_text, dump_tree
from nodeward.wire.errors import WireError

LAUGHS = ["a0: &a0 ha"] + [f"a{one}: &a{one} [{', '.join([f'*a{one - 1}'] * 10)}]" for one in range(1, 10)]


def tree(text: str) -> dump_tree.Value:
    """The text's tree, from lines as a dump's reader gives them."""
    return dump_tree.parse(text.encode().split(b"\n"))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("\n".join(LAUGHS), "has an alias", id="a billion laughs"),
        pytest.param("a: &a [*a]", "has an alias", id="a list within itself"),
        pytest.param("[" * 100_000, "nested more than 200 levels deep", id="a list of lists of lists"),
        pytest.param("- " * 100_000, "nested more than 200 levels deep", id="the same in lines"),
        pytest.param("? [1]\n: 2", "has a key that is no text", id="a list as a key"),
        pytest.param("a: 1\n--- \nb: 2", "more than one document", id="two documents"),
        pytest.param('a: "\\ud800"', "invalid Unicode", id="half a surrogate pair"),
    ],
)
def test_what_no_dump_has_is_refused(text: str, fault: str) -> None:
    with pytest.raises(WireError, match=fault):
        tree(text)


@pytest.mark.parametrize(
    "text",
    [
        "0x" + "f" * 10_000,
        "1" + ":1" * 100_000,
        "9" * 10_000,
        "2026-02-30",
        "1e999",
        "1.5e400",
        ".inf",
        "!!bool maybe",
        "!!int ''",
    ],
    ids=lambda text: text[:12],
)
def test_values_that_are_none_of_ours_are_text(text: str) -> None:
    assert tree(f"a: {text}") == {"a": text.rpartition(" ")[2].strip("'")}


def test_what_a_relay_wrote_is_read_as_any_reader_of_yaml_reads_it() -> None:
    message = cri.ListContainersResponse()
    for number in range(3):
        row = message.containers.add(id=f"{number:064x}", created_at=-number * 10**18, state=cri.CONTAINER_RUNNING)
        row.labels["a/b"] = "yes, 'quoted' and \x85"
        row.annotations["json"] = json.dumps({"a": 1})
    text = "\n".join(dump_text.body(cri.ListContainersResponse, message.SerializeToString()))
    assert tree(text) == yaml.safe_load(text)
    assert tree("{}") == {}
    assert tree("") is dump_tree.parse([]) is None
    assert dump_tree.parse([b"a: 'x\xff", b"\xe2", b"", b"y'", b"b: c"]) == {"a": "x\ufffd \ufffd\ny", "b": "c"}


@given(st.text(max_size=30), st.text(max_size=30), st.booleans() | st.floats(-1e9, 1e9) | st.integers(-(2**63), 2**64))
def test_texts_flags_and_numbers_come_back(text: str, name: str, other: bool | int | float) -> None:
    message = cri.ContainerStatusResponse()
    message.info[name] = text
    lines = dump_text.body(cri.ContainerStatusResponse, message.SerializeToString(), ("environment",))
    lines.append(f"other: {str(other).lower()}")
    assert tree("\n".join(lines)) == {"info": {name: text}, "other": other}
