"""The format of the files that the daemon writes for the OCI hook: one for each pod, and one with the rule.

`pods/UID.json` is `{"v":1,"pod":{...}}`, a pod's spec as far as limits need it, by the UID that the runtime uses.
`hook.json` is `{"v":1,"limits":{...}}`, the settings to decide by. Both are written whole. Whoever reads a version it
does not know believes nothing.
"""

import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from nodeward.core.errors import WireError
from nodeward.core.modes import Mode, OnError
from nodeward.core.workload import ContainerSpec, PodSpec, PodUid, Role, Source
from nodeward.features.limits.settings import LimitsSettings, UnknownPod, Unsupported

VERSION = 1
MAX_BYTES = 1024 * 1024
"""A pod of 500 containers with long names has a tenth of it."""
RULE = "hook.json"
FOLDER = "pods"
_UID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,127}")
_E = TypeVar("_E", bound=Enum)


def name_of(uid: str) -> str:
    """The file of a pod, below the runtime folder; empty for a UID that is no plain name."""
    return f"{FOLDER}/{uid}.json" if _UID.fullmatch(uid) else ""


def encode_pod(spec: PodSpec) -> bytes:
    """The file of a pod."""
    containers = [[one.name, one.role.value, dict(one.declared)] for one in spec.containers]
    pod = {
        "uid": spec.uid,
        "namespace": spec.namespace,
        "name": spec.name,
        "containers": containers,
        "overhead": dict(spec.overhead),
    }
    return json.dumps({"v": VERSION, "pod": pod}, separators=(",", ":")).encode()


def decode_pod(data: bytes) -> PodSpec:
    """The pod; WireError for a torn, foreign or too large file."""
    pod = _part(data, "pod")
    texts = [pod.get(name) for name in ("uid", "namespace", "name")]
    rows = pod.get("containers")
    if not all(isinstance(text, str) for text in texts) or not isinstance(rows, list):
        raise WireError("pod file", "pod has no uid, namespace, name or containers")
    uid, namespace, name = (str(text) for text in texts)
    containers = tuple(_container(row) for row in rows)
    return PodSpec(PodUid(uid), namespace, name, containers, _amounts(pod.get("overhead")), Source.DISK)


def encode_rule(rule: LimitsSettings) -> bytes:
    """The file with the settings."""
    limits = {
        "mode": rule.mode.value,
        "on_error": rule.on_error.value,
        "strict": rule.strict,
        "unsupported": rule.unsupported.value,
        "unknown_pod": rule.unknown_pod.value,
        "resources": dict(rule.resources),
    }
    return json.dumps({"v": VERSION, "limits": limits}, separators=(",", ":")).encode()


def decode_rule(data: bytes) -> LimitsSettings:
    """The settings; WireError for a torn, foreign or too large file."""
    limits = _part(data, "limits")
    resources = limits.get("resources")
    if not isinstance(resources, dict) or not all(isinstance(name, str) for name in resources.values()):
        raise WireError("pod file", "limits.resources is no table of names")
    return LimitsSettings(
        _one_of(Mode, limits, "mode"),
        _one_of(OnError, limits, "on_error"),
        limits.get("strict") is True,
        _one_of(Unsupported, limits, "unsupported"),
        _one_of(UnknownPod, limits, "unknown_pod"),
        resources,
    )


def _container(row: object) -> ContainerSpec:
    if not isinstance(row, list) or len(row) != 3 or not isinstance(row[0], str):
        raise WireError("pod file", "a container is not [name, role, amounts]")
    return ContainerSpec(row[0], _one_of(Role, {"role": row[1]}, "role"), _amounts(row[2]))


def _amounts(found: object) -> dict[str, int]:
    if not isinstance(found, dict):
        raise WireError("pod file", "amounts are no table")
    amounts = {name: value for name, value in found.items() if type(value) is int and 0 <= value < 2**64}
    if len(amounts) != len(found):
        raise WireError("pod file", "an amount is no whole number below 2**64")
    return amounts


def _one_of(kind: type[_E], table: Mapping[str, object], key: str) -> _E:
    try:
        return kind(table.get(key))
    except ValueError as error:
        raise WireError("pod file", f"{key} {str(table.get(key))[:80]!r} is not known") from error


def _part(data: bytes, key: str) -> dict[str, object]:
    if len(data) > MAX_BYTES:
        raise WireError("pod file", f"more than {MAX_BYTES} bytes")
    try:
        found: object = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise WireError("pod file", f"is torn or no JSON ({error.__class__.__name__})") from error
    if not isinstance(found, dict) or found.get("v") != VERSION:
        raise WireError("pod file", f"is not of version {VERSION}")
    part = found.get(key)
    if not isinstance(part, dict):
        raise WireError("pod file", f"has no {key}")
    return part
