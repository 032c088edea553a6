"""The lines that processes of a node write for one another."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.core.errors import WireError
from nodeward.core.modes import Mode, OnError
from nodeward.core.pulls import PullRow, PullsView, SandboxKey
from nodeward.core.workload import ContainerSpec, PodSpec, PodUid, Role, Source
from nodeward.features.limits import hook_file
from nodeward.features.limits.settings import LimitsSettings, UnknownPod, Unsupported
from nodeward.neighbours.cri import relay_line
from nodeward.neighbours.cri.rows import AddedRow, CallRow, DaemonRow, DoorRow, DumpRow
from nodeward.neighbours.hook import line as hook_line
from nodeward.neighbours.hook.line import HookAnswer, HookRequest
from nodeward.people.relay_view import RelayView

texts = st.text(st.characters(codec="utf-8"), max_size=30)
tables = st.dictionaries(texts, texts, max_size=3)
counts = st.integers(0, 2**63 - 1)
amounts = st.dictionaries(texts, st.integers(0, 2**64 - 1), max_size=3)
counted = st.dictionaries(texts, counts, max_size=3)


def some(one: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(one, max_size=3).map(tuple)


containers = st.builds(ContainerSpec, texts, st.sampled_from(Role), amounts, some(texts))
pods = st.builds(
    PodSpec,
    texts.map(PodUid),
    texts,
    texts,
    some(containers),
    amounts,
    st.sampled_from(Source),
    texts,
    tables,
    st.booleans(),
)
rules = st.builds(
    LimitsSettings,
    st.sampled_from(Mode),
    st.sampled_from(OnError),
    st.booleans(),
    st.sampled_from(Unsupported),
    st.sampled_from(UnknownPod),
    tables,
)
views = st.builds(
    RelayView,
    texts,
    counts,
    counts,
    some(st.builds(DoorRow, texts, texts, st.none() | st.booleans(), counts, counts, counts, counts)),
    some(st.builds(CallRow, texts, counted, counted)),
    some(st.builds(AddedRow, texts, counts, counts, some(st.tuples(counts, counts)))),
    counted,
    st.builds(DaemonRow, some(texts), counts, texts, counts),
    st.none() | st.builds(DumpRow, texts, counts, counts, counts, counts),
)
pulled = some(st.builds(PullRow, texts, texts, texts, counts, texts, texts, counts, counts, texts, texts))
sandboxes = some(st.builds(SandboxKey, texts, texts, texts, texts, counts, texts))
answers = st.builds(HookAnswer, amounts, texts, st.sampled_from(["pass", "refuse"]), texts)
LINES: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], bytes], Callable[[bytes], object]]] = {
    "what the hook asks": (
        st.builds(HookRequest, *[texts] * 7, tables),
        hook_line.encode_request,
        hook_line.decode_request,
    ),
    "what the hook is answered": (answers, hook_line.encode_answer, hook_line.decode_answer),
    "what the relay says": (views, relay_line.encode_answer, lambda line: relay_line.decode_answer(line, RelayView)),
    "its pulls": (
        st.builds(PullsView, texts, counts, st.booleans(), pulled, sandboxes, counts),
        relay_line.encode_pulls,
        relay_line.decode_pulls,
    ),
}


@pytest.mark.parametrize("what", LINES)
@given(st.data())
def test_what_is_written_is_one_line_and_read_back(what: str, data: st.DataObject) -> None:
    strategy, encode, decode = LINES[what]
    said = data.draw(strategy)
    line = encode(said)
    assert decode(line) == said
    assert line.index(b"\n") == len(line) - 1


@given(pods, rules)
def test_what_is_left_for_the_hook(pod: PodSpec, rule: LimitsSettings) -> None:
    """Of a pod only what limits need; every setting."""
    bare = tuple(replace(one, faults=()) for one in pod.containers)
    left = PodSpec(pod.uid, pod.namespace, pod.name, bare, pod.overhead, Source.DISK)
    assert hook_file.decode_pod(hook_file.encode_pod(pod)) == left
    assert hook_file.decode_rule(hook_file.encode_rule(rule)) == rule


def test_a_relay_that_does_not_know_the_question_is_older() -> None:
    """The text is what the first relays answer."""
    line = relay_line.encode_error("relay line: 'pulls' cannot be asked; status and counts can")
    with pytest.raises(WireError, match="this relay is older than the question"):
        relay_line.decode_pulls(line)


def test_true_is_no_amount() -> None:
    pod = PodSpec(PodUid("u"), "shop", "web", (ContainerSpec("app", declared={"sgx_epc": 77}),))
    damaged = hook_file.encode_pod(pod).replace(b"77", b"true")
    assert json.loads(damaged)["pod"]["containers"] == [["app", "container", {"sgx_epc": True}]]
    with pytest.raises(WireError, match="whole number"):
        hook_file.decode_pod(damaged)
