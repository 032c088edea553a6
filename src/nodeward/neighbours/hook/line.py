"""What the OCI hook and the daemon say to each other: one line of JSON each way, with a version.

Request: `{"v":1,"id":...,"sandbox":...,"uid":...,"namespace":...,"pod":...,"container":...,"cgroup":...,
"annotations":{...}}`; `container` is empty for what holds the sandbox. Answer: `{"v":1,"limits":{"sgx_epc":4096},
"refusal":"","on_error":"pass","why":...}`. Whoever reads a version it does not know says so and believes nothing.

No dataclass here: the hook runs for each container, and importing `dataclasses` is a third of its time.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

from nodeward.core.errors import WireError

VERSION = 1
MAX_REQUEST = 2 * 1024 * 1024
"""256 KiB of annotations, each character escaped."""
MAX_ANSWER = 64 * 1024
_WHAT = "hook line"
_NAMES = ("id", "sandbox", "uid", "namespace", "pod", "container", "cgroup")


class HookRequest(NamedTuple):
    """A container that is about to start. `cgroup` is its path below the cgroup root."""

    id: str
    sandbox: str
    uid: str
    namespace: str
    pod: str
    container: str
    cgroup: str
    annotations: Mapping[str, str]


class HookAnswer(NamedTuple):
    """What to write: `limits` by resource, only those this kernel has. `refusal` says why the container must not start.
    `on_error` (`pass` or `refuse`) is what a failed write means; `why` is the reason, for people."""

    limits: Mapping[str, int]
    refusal: str
    on_error: str
    why: str


def encode_request(request: HookRequest) -> bytes:
    """The line, with its end."""
    return json.dumps({"v": VERSION, **request._asdict()}, separators=(",", ":")).encode() + b"\n"


def decode_request(line: bytes) -> HookRequest:
    """The request; WireError for anything else."""
    table = _versioned(line)
    texts = [text for name in _NAMES if isinstance(text := table.get(name), str) and len(text) <= 4096]
    notes = table.get("annotations", {})
    if len(texts) != len(_NAMES):
        raise WireError(_WHAT, f"one of {', '.join(_NAMES)} is missing, no text or longer than 4096 characters")
    if not isinstance(notes, dict) or not all(isinstance(value, str) for value in notes.values()):
        raise WireError(_WHAT, "annotations is no table of texts")
    container_id, sandbox, uid, namespace, pod, container, cgroup = texts
    return HookRequest(container_id, sandbox, uid, namespace, pod, container, cgroup, notes)


def encode_answer(answer: HookAnswer) -> bytes:
    """The line, with its end."""
    return json.dumps({"v": VERSION, **answer._asdict()}, separators=(",", ":")).encode() + b"\n"


def decode_answer(line: bytes) -> HookAnswer:
    """The answer; WireError for anything else."""
    table = _versioned(line)
    limits, on_error = table.get("limits"), table.get("on_error")
    if not isinstance(limits, dict) or not all(_is_amount(value) for value in limits.values()):
        raise WireError(_WHAT, "limits is no table of whole numbers below 2**64")
    if on_error not in ("pass", "refuse"):
        raise WireError(_WHAT, "on_error is neither pass nor refuse")
    refusal, why = table.get("refusal"), table.get("why")
    if not isinstance(refusal, str) or not isinstance(why, str):
        raise WireError(_WHAT, "refusal or why is no text")
    return HookAnswer(limits, refusal, str(on_error), why)


def _versioned(line: bytes) -> dict[str, object]:
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise WireError(_WHAT, f"{line[:80]!r} is no JSON ({error.__class__.__name__})") from error
    if not isinstance(found, dict):
        raise WireError(_WHAT, f"{line[:80]!r} is no JSON object")
    if found.get("v") != VERSION:
        raise WireError(_WHAT, f"version {str(found.get('v'))[:80]} is not known; this program speaks {VERSION}")
    return found


def _is_amount(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64
