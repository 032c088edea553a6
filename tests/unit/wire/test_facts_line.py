"""The line by which the relay asks the node daemon of pods."""

import pytest

from nodeward.model.gate import Gated
from nodeward.model.sizing import Allocatable
from nodeward.model.workload import ContainerSpec, PodSpec, PodUid, Role
from nodeward.wire import facts_line
from nodeward.wire.errors import WireError
from nodeward.wire.facts_line import Answer, Asked, AskedGate, IsOpen, SenselessPodError

POD = PodSpec(
    PodUid("u"),
    "default",
    "web",
    (ContainerSpec("app", Role.SIDECAR, {"sgx_epc": 2**64 - 1}, ("a fault",)),),
    {"sgx_epc": 4096},
    config_hash="h",
    container_ids={"app": "c1"},
)


def test_a_pod_comes_back_as_it_is_known() -> None:
    assert facts_line.decode_answer(facts_line.encode_answer(POD)) == Answer(POD)
    assert facts_line.decode_answer(facts_line.encode_answer(None, "no such pod")) == Answer(None, "no such pod")
    node = Allocatable(7500, None)
    assert facts_line.decode_answer(facts_line.encode_answer(POD, "", node)) == Answer(POD, "", node)
    assert facts_line.decode_answer(b'{"v":1,"pod":null,"why":"an older daemon"}\n').allocatable is None
    asked = Asked("u", "default", "web")
    assert facts_line.decode_request(facts_line.encode_request(asked)) == asked


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
