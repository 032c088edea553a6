"""What the relay asks the node daemon of a pod, and what it is told: one line of JSON each way, with a version.

Request: `{"v":1,"pod":{"uid":...,"namespace":...,"name":...}}`, the UID as the runtime has it; all empty asks whether
somebody is there. Answer: `{"v":1,"pod":{...},"why":""}`, the pod's spec as the record writes it, or `"pod":null` and
why not. `"allocatable":{"cpu_m":7500,"memory":...}` is what pods may have by the Node object: null where that is
unknown; an older daemon leaves it out. Whoever reads a version it does not know says so and believes nothing.

A second question: may this pod start? `{"v":1,"gate":{"uid":...,"namespace":...,"name":...,"conditions":["verdict"],
"fault":""},"within_ms":4500}`, answered `{"v":1,"gate":{"open":false,"why":"..."}}` once that is decided, at the latest
after so long. A daemon that does not know the question answers as to one of a pod that it cannot read, which is no
answer to this one.
"""

from typing import Final

import msgspec

from nodeward.core.errors import WireError
from nodeward.core.gating import MOST_WAIT_S, MOST_WORDS, Gated
from nodeward.core.vms import NOT_TOLD, Allocatable
from nodeward.core.workload import NO_WHOLE, Amounts, PodSpec
from nodeward.neighbours.cri.relay_line import check_version, read

VERSION: Final = 1
MAX_REQUEST: Final = 64 * 1024
MAX_ANSWER: Final = 1024 * 1024
"""A pod of 500 containers with long names has a tenth of it."""
MAX_NAME: Final = 253
"""Kubernetes' own bound for names of pods; UIDs and namespaces are shorter."""
MAX_WHY: Final = 2000
"""Characters of why a gate is shut."""
_WHAT: Final = "facts line"


class SenselessPodError(WireError):
    """A line of ours that makes no sense of the pod it is about. It says nothing against what is told of others."""


class Asked(msgspec.Struct, frozen=True):
    """Which pod."""

    uid: str
    namespace: str
    name: str


class AskedGate(msgspec.Struct, frozen=True):
    """Whether this pod may start; the answer is waited for so long."""

    gate: Gated
    within_ms: int
    v: int = VERSION


class IsOpen(msgspec.Struct, frozen=True):
    """Whether it may, and why not."""

    open: bool
    why: str


class _Request(msgspec.Struct):
    pod: Asked
    v: int = VERSION


class _Which(msgspec.Struct):
    gate: msgspec.Raw = msgspec.Raw()


class _GateAnswer(msgspec.Struct):
    gate: IsOpen
    v: int = VERSION


class Answer(msgspec.Struct, frozen=True):
    """The pod, or None and why not; and what is allocatable on the node."""

    pod: PodSpec | None
    why: str = ""
    allocatable: Allocatable | None = None
    v: int = VERSION


def encode_request(asked: Asked) -> bytes:
    """The line, with its end."""
    return msgspec.json.encode(_Request(asked)) + b"\n"


def encode_gate_request(gate: Gated, within_ms: int) -> bytes:
    """The line, with its end."""
    return msgspec.json.encode(AskedGate(gate, within_ms)) + b"\n"


def decode_request(line: bytes) -> Asked:
    """The pod; WireError for anything else."""
    check_version(_WHAT, line, VERSION)
    return _checked(read(_WHAT, line, _Request).pod)


def decode_question(line: bytes) -> Asked | AskedGate:
    """Decodes a question: about a pod, or about the gate of a pod; WireError for anything else."""
    if not _tells_of_gate(line):
        return decode_request(line)
    check_version(_WHAT, line, VERSION)
    asked = read(_WHAT, line, AskedGate)
    if len(asked.gate.conditions) > MOST_WORDS or not 0 <= asked.within_ms <= MOST_WAIT_S * 1000:
        raise WireError(_WHAT, f"more than {MOST_WORDS} conditions, or a wait beyond {MOST_WAIT_S:g} s")
    _checked(Asked(asked.gate.uid, asked.gate.namespace, asked.gate.name))
    return asked


def _checked(asked: Asked) -> Asked:
    if max(map(len, (asked.uid, asked.namespace, asked.name))) > MAX_NAME:
        raise WireError(_WHAT, f"a name of more than {MAX_NAME} characters")
    return asked


def _tells_of_gate(line: bytes) -> bool:
    return bytes(read(_WHAT, line, _Which).gate) != b""


def encode_gate_answer(why: str) -> bytes:
    """The line, with its end: the gate is open where there is no reason why it is not."""
    return msgspec.json.encode(_GateAnswer(IsOpen(not why, why[:MAX_WHY]))) + b"\n"


def decode_gate_answer(line: bytes) -> IsOpen:
    """The answer; WireError for anything else, such as that of a daemon which does not know the question."""
    check_version(_WHAT, line, VERSION)
    if not _tells_of_gate(line):
        raise WireError(_WHAT, "the node daemon does not know the question of gates: update it")
    return read(_WHAT, line, _GateAnswer).gate


def encode_answer(pod: PodSpec | None, why: str = "", allocatable: Allocatable | None = None) -> bytes:
    """The line, with its end. A pod that is larger than a reader takes is not told of."""
    line = msgspec.json.encode(Answer(pod, why, allocatable)) + b"\n"
    if pod is not None and len(line) > MAX_ANSWER:
        why = f"pod {pod.namespace}/{pod.name}: {len(line)} bytes are more than {MAX_ANSWER}"
        return encode_answer(None, why, allocatable)
    return line


def decode_answer(line: bytes) -> Answer:
    """The answer; SenselessPodError where it is our line and what is in it makes no sense, WireError for anything
    else."""
    check_version(_WHAT, line, VERSION)
    try:
        answer = read(_WHAT, line, Answer)
        node = answer.allocatable or NOT_TOLD
        _check({"allocatable cpu_m": node.cpu_m or 0, "allocatable memory": node.memory or 0})
        if answer.pod is not None:
            for amounts in (answer.pod.overhead, *(one.declared for one in answer.pod.containers)):
                _check(amounts)
            whole = answer.pod.whole or NO_WHOLE
            _check({"the pod's cpu_m": whole.cpu_m, "the pod's cpu_limit_m": whole.cpu_limit_m})
            _check({"the pod's memory_request": whole.memory_request, "the pod's memory_limit": whole.memory_limit})
    except WireError as error:
        raise SenselessPodError(_WHAT, error.fault) from error
    return answer


def _check(amounts: Amounts) -> None:
    for name, amount in amounts.items():
        if not 0 <= amount < 2**64:
            raise WireError(_WHAT, f"{name[:80]!r}: {amount} is no whole number below 2**64")
