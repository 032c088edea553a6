"""Reads and changes the files that name kubelet's runtime: KubeletConfiguration, or flags.

KubeletConfiguration (kubelet.config.k8s.io/v1beta1) has `containerRuntimeEndpoint` and `imageServiceEndpoint` since
Kubernetes 1.27; before, and where both are given, the flags of like name count. Flags stand in an environment file of
kubelet's unit (kubeadm: `KUBELET_KUBEADM_ARGS="..."`) or in the unit itself.

A line that is changed keeps what it was in a comment above it. So the way back needs no other file, and what others
have changed meanwhile stays.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final

import yaml

from nodeward.core.errors import WireError
from nodeward.neighbours.formats.yaml_faults import YAML_FAULTS

RUNTIME: Final = "containerRuntimeEndpoint"
IMAGES: Final = "imageServiceEndpoint"
FLAGS: Final = {RUNTIME: "--container-runtime-endpoint", IMAGES: "--image-service-endpoint"}
HAD: Final = "# before Nodeward's relay:"
_FORMAT = "kubelet's endpoints"
_BY_HAND = "cannot be changed line by line; set the endpoints by hand"
_FLAG = {key: re.compile(rf"((?<![^\s\"'=]){flag}(?:=|\s+))([^\s\"'\\]+)") for key, flag in FLAGS.items()}
_KEY = {key: re.compile(rf"""(["']?){key}\1\s*:""") for key in FLAGS}


def in_config(text: str) -> dict[str, str]:
    """The endpoints that a KubeletConfiguration names. WireError for a text that is none."""
    document = _document(text)
    return {key: str(value) for key in FLAGS if (value := document.get(key))}


def config_with(text: str, wanted: Mapping[str, str]) -> str:
    """The KubeletConfiguration with other endpoints, and otherwise line by line as it was. WireError where such a line
    cannot be changed alone (JSON, values over several lines)."""
    lines = text.split("\n")
    for key, endpoint in wanted.items():
        new = f"{key}: {endpoint}"
        at = next((number for number, line in enumerate(lines) if _KEY[key].match(line)), None)
        if at is not None:
            lines[at : at + 1] = [f"{HAD} {lines[at]}", new]
        else:
            end = len(lines) - 1 if lines[-1] == "" else len(lines)
            lines[end:end] = [HAD, new]
    changed = "\n".join(lines)
    meant = _document(text)
    meant.update(wanted)
    if _document(changed, _BY_HAND) != meant:
        raise WireError(_FORMAT, _BY_HAND)
    return changed


def in_flags(text: str) -> dict[str, str]:
    """The endpoints that flags name in an environment file; the last of each, as kubelet takes them. WireError for a
    flag in another form than NAME=VALUE."""
    found: dict[str, str] = {}
    for line in [line for line in text.split("\n") if not _is_comment(line)]:
        here = _flags_of(line)
        if unread := [flag for key, flag in FLAGS.items() if flag in line and key not in here]:
            raise WireError(_FORMAT, f"the value of {unread[0]} cannot be read; write {unread[0]}=unix:///PATH")
        found |= here
    return found


def flags_with(text: str, wanted: Mapping[str, str]) -> str:
    """The file with other endpoints in the flags that are there. WireError where a line goes on in the next one: the
    comment above it would do so too."""
    lines: list[str] = []
    for line in text.split("\n"):
        changed = line if _is_comment(line) else _replaced(line, wanted)
        if changed != line and line.endswith("\\"):
            raise WireError(_FORMAT, "the line with the endpoint goes on in the next one; write it in one line")
        lines += [line] if changed == line else [f"{HAD} {line}", changed]
    return "\n".join(lines)


def back(text: str, ours: Collection[str]) -> str:
    """The text, of either form, without what `config_with` or `flags_with` wrote. `ours` are the endpoints that may
    have been written; a line that has another one now stays, and so does the comment that tells what it was."""
    lines: list[str] = []
    rest = iter(text.split("\n"))
    for line in rest:
        if not line.startswith(HAD):
            lines.append(line)
            continue
        had, now = line.removeprefix(HAD).removeprefix(" "), next(rest, "")
        mine = {key: was for key, was in _flags_of(had).items() if _flags_of(now).get(key) in ours}
        if any(now == f"{key}: {endpoint}" for key in FLAGS for endpoint in ours):
            lines += [had] if had else []
        else:
            lines += [_replaced(now, mine)] if mine else [line, now]
    return "\n".join(lines)


def _flags_of(line: str) -> dict[str, str]:
    found = {key: flag.findall(line) for key, flag in _FLAG.items()}
    return {key: here[-1][1] for key, here in found.items() if here}


def _replaced(line: str, wanted: Mapping[str, str]) -> str:
    for key, endpoint in wanted.items():
        line = _FLAG[key].sub("\\g<1>" + endpoint.replace("\\", "\\\\"), line)
    return line


def _is_comment(line: str) -> bool:
    return line.lstrip()[:1] in {"#", ";"}


def _document(text: str, fault: str = "") -> dict[object, object]:
    try:
        found: object = yaml.safe_load(text)
    except YAML_FAULTS as error:
        raise WireError(_FORMAT, fault or f"no YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(found, dict):
        raise WireError(_FORMAT, fault or "no KubeletConfiguration: not a mapping")
    return found
