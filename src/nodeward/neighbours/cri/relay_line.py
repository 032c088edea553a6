"""What the relay is asked on `relay.sock`, and what it answers: one line of JSON each way, with a version.

Request: `{"v":1,"ask":"status"}`. Answer: a picture, in `{"v":1,"status":{...}}`, or `{"v":1,"error":"..."}`.
`"ask":"pulls"` is answered `{"v":1,"pulls":{...}}`, a
`core.pulls.PullsView`; a relay that is older answers with an error. Whoever reads a version that it does not know says
so and believes nothing. Fields that a newer relay adds are skipped.
"""

from typing import Final, TypeVar

import msgspec

from nodeward.core.errors import WireError
from nodeward.core.pulls import PullsView

SHOWN: Final = 200
"""Characters of what was wrong."""
T = TypeVar("T")


class _Versioned(msgspec.Struct, frozen=True):
    v: object = None


def check_version(what: str, line: bytes, version: int) -> None:
    """WireError where the line, of the format `what`, is of another version or none."""
    found = read(what, line, _Versioned).v
    if found != version:
        raise WireError(what, f"version {str(found)[:80]} is not known; this program speaks {version}")


def read(what: str, line: bytes, kind: type[T]) -> T:
    """The line's object; WireError for anything else. Fields that `kind` has not are skipped."""
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(what, f"{line[:80]!r} cannot be read: {str(error)[:SHOWN]}") from error


VERSION: Final = 1
STATUS: Final = "status"
PULLS: Final = "pulls"
SOCKET: Final = "relay.sock"
"""Its name in `run_dir`, beside the daemon's."""
MAX_REQUEST: Final = 64 * 1024
MAX_ANSWER: Final = 4 * 1024 * 1024
_WHAT: Final = "relay line"
_CANNOT: Final = "cannot be asked"
"""In the answer of each version to a question that it does not know."""


class _Request(msgspec.Struct, frozen=True):
    ask: str


class _Pulls(msgspec.Struct, frozen=True):
    v: int
    pulls: PullsView


class _Error(msgspec.Struct, frozen=True):
    v: int
    error: str


class _Answer(msgspec.Struct, frozen=True):
    status: msgspec.Raw = msgspec.Raw()
    pulls: PullsView | None = None
    error: str = ""


def encode_request(ask: str) -> bytes:
    """The line, with its end."""
    return msgspec.json.encode({"v": VERSION, "ask": ask}) + b"\n"


def decode_request(line: bytes) -> str:
    """Decodes a request, `STATUS` or `PULLS`; WireError for anything else."""
    check_version(_WHAT, line, VERSION)
    ask = read(_WHAT, line, _Request).ask
    if ask not in (STATUS, PULLS):
        raise WireError(_WHAT, f"{ask[:80]!r} {_CANNOT}; {STATUS} and {PULLS} can")
    return ask


def encode_error(text: str) -> bytes:
    """The answer to what cannot be answered."""
    return msgspec.json.encode(_Error(VERSION, text)) + b"\n"


def encode_answer(view: object) -> bytes:
    """The picture's line, with its end."""
    line = msgspec.json.encode({"v": VERSION, "status": view}) + b"\n"
    return line if len(line) <= MAX_ANSWER else encode_error(f"the status is longer than {MAX_ANSWER} bytes")


def decode_answer(line: bytes, kind: type[T]) -> T:
    """The relay's picture, of the class `kind`; WireError for anything else, its own word where it could not answer."""
    check_version(_WHAT, line, VERSION)
    answer = read(_WHAT, line, _Answer)
    if bytes(answer.status) in (b"", b"null"):
        raise WireError(_WHAT, f"the relay answers: {answer.error[:200] or 'nothing'}")
    return read(_WHAT, bytes(answer.status), kind)


def encode_pulls(view: PullsView) -> bytes:
    """The line, with its end."""
    line = msgspec.json.encode(_Pulls(VERSION, view)) + b"\n"
    return line if len(line) <= MAX_ANSWER else encode_error(f"the pulls are longer than {MAX_ANSWER} bytes")


def decode_pulls(line: bytes) -> PullsView:
    """The pulls that the relay has seen; WireError for anything else, and from a relay that is older than the
    question."""
    check_version(_WHAT, line, VERSION)
    answer = read(_WHAT, line, _Answer)
    if answer.pulls is None:
        older = "this relay is older than the question, start it again with this version; it answers"
        told = older if _CANNOT in answer.error else "the relay answers"
        raise WireError(_WHAT, f"{told}: {answer.error[:200] or 'nothing'}")
    return answer.pulls
