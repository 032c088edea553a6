"""The lines that processes of a node write for one another."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.core.errors import WireError
from nodeward.core.gating import Gated
from nodeward.core.modes import Mode, OnError
from nodeward.core.pulls import PullRow, PullsView, SandboxKey
from nodeward.core.vms import Allocatable
from nodeward.core.workload import ContainerSpec, PodSpec, PodUid, Role, Source
from nodeward.features.limits import hook_file
from nodeward.features.limits.rows import CgroupRow, ResourceRow
from nodeward.features.limits.settings import LimitsSettings, UnknownPod, Unsupported
from nodeward.neighbours.cri import facts_line, relay_line
from nodeward.neighbours.cri.facts_line import Answer, Asked, AskedGate, IsOpen, SenselessPodError
from nodeward.neighbours.cri.rows import AddedRow, CallRow, DoorRow, DriverRow, DumpRow
from nodeward.neighbours.hook import line as hook_line
from nodeward.neighbours.hook.line import HookAnswer, HookRequest
from nodeward.people.relay_view import RelayView

POD = PodSpec(
    PodUid("u"),
    "default",
    "web",
    (ContainerSpec("app", Role.SIDECAR, {"sgx_epc": 2**64 - 1}, ("a fault",)),),
    {"sgx_epc": 4096},
    config_hash="h",
    container_ids={"app": "c1"},
)


def test_what_is_allocatable_comes_with_a_pod_but_from_an_older_daemon() -> None:
    node = Allocatable(7500, None)
    assert facts_line.decode_answer(facts_line.encode_answer(POD, "", node)) == Answer(POD, "", node)
    assert facts_line.decode_answer(b'{"v":1,"pod":null,"why":"an older daemon"}\n').allocatable is None


def test_a_gate_is_asked_about_and_an_older_daemon_is_told_apart() -> None:
    asked = AskedGate(Gated("u", "default", "web", ("verdict",)), 4500)
    line = facts_line.encode_gate_request(asked.gate, asked.within_ms)
    assert facts_line.decode_question(line) == asked
    assert facts_line.decode_question(facts_line.encode_request(Asked("u", "", ""))) == Asked("u", "", "")
    assert facts_line.decode_gate_answer(facts_line.encode_gate_answer("")) == IsOpen(True, "")
    assert facts_line.decode_gate_answer(facts_line.encode_gate_answer("no key")) == IsOpen(False, "no key")
    with pytest.raises(WireError) as older:
        facts_line.decode_request(line)
    with pytest.raises(WireError, match="does not know the question of gates"):
        facts_line.decode_gate_answer(facts_line.encode_answer(None, str(older.value)))
    for wrong in (line.replace(b":4500", b":-1"), line.replace(b'"u"', b'"%s"' % (b"u" * 254)), b'{"v":1,"gate":7}\n'):
        with pytest.raises(WireError):
            facts_line.decode_question(wrong)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"v":2,"pod":null,"why":""}\n', "version 2 is not known; this program speaks 1"),
        (b'{"pod":null,"why":""}\n', "version None is not known; this program speaks 1"),
        (b"[" * 100_000, "cannot be read"),
        (b"", "cannot be read"),
    ],
    ids=["newer", "no version", "nested", "empty"],
)
def test_what_is_no_answer_is_not_believed(line: bytes, said: str) -> None:
    with pytest.raises(WireError) as caught:
        facts_line.decode_answer(line)
    assert said in str(caught.value)
    assert not isinstance(caught.value, SenselessPodError)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"v":1,"pod":{"uid":"u"},"why":""}\n', "missing required field `namespace`"),
        (b'{"v":1,"pod":[],"why":""}\n', "cannot be read"),
        (facts_line.encode_answer(POD).replace(b":4096", b":-1"), "-1 is no whole number below 2**64"),
        (facts_line.encode_answer(POD).replace(b":4096", b":18446744073709551616"), "is no whole number below 2**64"),
        (facts_line.encode_answer(POD, "", Allocatable(-1)), "cpu_m': -1 is no whole number below 2**64"),
    ],
    ids=["half a pod", "no pod", "negative", "too large", "allocatable"],
)
def test_a_pod_that_makes_no_sense_in_a_line_that_does_is_told_apart(line: bytes, said: str) -> None:
    with pytest.raises(SenselessPodError) as caught:
        facts_line.decode_answer(line)
    assert said in str(caught.value)


def test_a_name_that_no_pod_can_have_is_not_asked_for() -> None:
    with pytest.raises(WireError):
        facts_line.decode_request(facts_line.encode_request(Asked("u", "default", "w" * 254)))


def test_a_pod_that_nobody_would_read_is_not_told_of() -> None:
    large = PodSpec(PodUid("u"), "default", "web", (ContainerSpec("w" * facts_line.MAX_ANSWER),))
    found = facts_line.decode_answer(facts_line.encode_answer(large, "", Allocatable(1)))
    assert (found.pod, found.allocatable) == (None, Allocatable(1))
    assert found.why.startswith("pod default/web: ")


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
maybe = st.none() | counts
resources = st.builds(ResourceRow, texts, maybe, maybe, maybe, maybe, maybe, maybe, texts, st.booleans())
rows = st.builds(CgroupRow, *[texts] * 9, some(resources), texts, counts)
views = st.builds(
    RelayView,
    texts,
    counts,
    counts,
    some(st.builds(DoorRow, texts, texts, st.none() | st.booleans(), counts, counts, counts, counts)),
    some(st.builds(CallRow, texts, counted, counted)),
    some(st.builds(AddedRow, texts, counts, counts, some(st.tuples(counts, counts)))),
    counted,
    st.builds(DriverRow, st.booleans(), texts, texts, texts, st.booleans(), counted, counts, counts),
    st.none() | st.builds(DumpRow, texts, counts, counts, counts, counts),
    some(rows),
    counts,
)


@given(st.builds(HookRequest, *[texts] * 7, tables))
def test_what_the_hook_asks(request: HookRequest) -> None:
    line = hook_line.encode_request(request)
    assert hook_line.decode_request(line) == request
    assert line.index(b"\n") == len(line) - 1


@given(st.builds(HookAnswer, amounts, texts, st.sampled_from(["pass", "refuse"]), texts))
def test_what_the_hook_is_answered(answer: HookAnswer) -> None:
    line = hook_line.encode_answer(answer)
    assert hook_line.decode_answer(line) == answer
    assert line.index(b"\n") == len(line) - 1


@given(st.builds(Asked, texts, texts, texts), pods, texts)
def test_what_the_relay_asks_of_a_pod_and_is_told(asked: Asked, pod: PodSpec, why: str) -> None:
    lines = facts_line.encode_request(asked), facts_line.encode_answer(pod), facts_line.encode_answer(None, why)
    assert facts_line.decode_request(lines[0]) == asked
    assert facts_line.decode_answer(lines[1]) == Answer(pod)
    assert facts_line.decode_answer(lines[2]) == Answer(None, why)
    assert [line.index(b"\n") for line in lines] == [len(line) - 1 for line in lines]


@given(pods, rules)
def test_what_is_left_for_the_hook(pod: PodSpec, rule: LimitsSettings) -> None:
    """Of a pod only what limits need; every setting."""
    bare = tuple(replace(one, faults=()) for one in pod.containers)
    left = PodSpec(pod.uid, pod.namespace, pod.name, bare, pod.overhead, Source.DISK)
    assert hook_file.decode_pod(hook_file.encode_pod(pod)) == left
    assert hook_file.decode_rule(hook_file.encode_rule(rule)) == rule


@given(views)
def test_what_the_relay_says_of_itself(view: RelayView) -> None:
    line = relay_line.encode_answer(view)
    assert relay_line.decode_answer(line, RelayView) == view
    assert line.index(b"\n") == len(line) - 1


@given(
    some(st.builds(PullRow, texts, texts, texts, counts, texts, texts, counts, counts, texts, texts)),
    some(st.builds(SandboxKey, texts, texts, texts, texts, counts, texts)),
)
def test_which_pulls_the_relay_has_seen(pulls: tuple[PullRow, ...], sandboxes: tuple[SandboxKey, ...]) -> None:
    view = PullsView("1", 7, True, pulls, sandboxes, 3)
    line = relay_line.encode_pulls(view)
    assert relay_line.decode_pulls(line) == view
    assert line.index(b"\n") == len(line) - 1


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
