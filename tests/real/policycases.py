"""The pods of tests/real/policies, as the tests of the policies ask about them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.peers.nriside import Record

DATA = Path(__file__).parent / "policies"
NAMES = ("epc-amounts", "epc-annotations", "kata-annotations", "sgx-devices", "sgx-provision")
SUBRESOURCES = "epc-subresources"
"""The policy that is asked of no pod that is made, so it has no file of pods."""
NAMESPACES: Mapping[str, Mapping[str, str]] = {
    "default": {},
    "nodeward-system": {},
    "nodeward": {},
    "restricted": {"nodeward.io/sgx-devices": "restricted", "nodeward.io/sgx-provision": "allowed"},
    "provisioned": {"nodeward.io/sgx-provision": "allowed"},
    "asked": {"nodeward.io/sgx-provision": "please"},
}
OVERHEAD: Mapping[str, str] = {"sgx.intel.com/epc": "1Mi"}
LARGE: Mapping[str, object] = {
    "metadata": {"name": "large"},
    "handler": "large",
    "overhead": {"podFixed": OVERHEAD},
}
PARAMETERS_SAID: Mapping[str, tuple[Mapping[str, str], str]] = {
    "small container": (
        {"container-max": "2Ki", "pod-max": "1Gi", "annotations": "optional"},
        "must be at most 2Ki (container-max)",
    ),
    "small pod": (
        {"container-max": "1Gi", "pod-max": "2Ki", "annotations": "optional"},
        "must be at most 2Ki (pod-max)",
    ),
    "no pod-max": (
        {"container-max": "1Gi", "annotations": "optional"},
        "nodeward-policies must have container-max and pod-max",
    ),
    "no quantity": (
        {"container-max": "1GB", "pod-max": "1Gi", "annotations": "optional"},
        "nodeward-policies must have container-max and pod-max",
    ),
    "annotations required": (
        {"container-max": "1Gi", "pod-max": "1Gi", "annotations": "required"},
        "container 'app': resources.limits[sgx.intel.com/epc] is 4096 bytes, and metadata.annotations must have it",
    ),
}
"""Other parameters, and part of what the author of a pod of one page then reads."""


MOST_ANNOTATIONS = 256 * 1024
"""What the API server lets all annotations of a pod be, keys included."""


def _filled(key: str, head: str, again: str, tail: str) -> tuple[str, str]:
    """An annotation as long as may be: its middle is so much of the same."""
    room = MOST_ANNOTATIONS - len(key) - len(head) - len(tail)
    return key, head + again * (room // len(again)) + tail


_LIMITS, _RIGHT = "nodeward.io/limits", '"app":{"sgx_epc":"4096"}'
LONG: Mapping[str, tuple[str, str, str]] = {
    "somebody else's": (*_filled("example.com/mine", "", "a", ""), ""),
    "limits of one letter": (*_filled(_LIMITS, "", "a", ""), "must have the containers 'app' once each"),
    "limits that open only": (*_filled(_LIMITS, "", "{", ""), "must have the containers 'app' once each"),
    "limits with an amount of many digits": (*_filled(_LIMITS, '{"app":{"sgx_epc":"', "0", '4096"}}'), "must say"),
    "limits of one container with many resources": (
        *_filled(_LIMITS, '{"app":{"sgx_epc":"4096"', ',"tdx":"1"', "}}"),
        "",
    ),
    "limits of many containers": (*_filled(_LIMITS, "{" + _RIGHT, "," + _RIGHT, "}"), "once each"),
    "limits that nearly end": (*_filled(_LIMITS, "{" + _RIGHT, "," + _RIGHT, ""), "once each"),
    "the container's own key": (*_filled("epc-limit.nri.io/container.app", "", "4096", ""), "must be what"),
    "the pod's key": (*_filled("epc-limit.nri.io/pod", "", "4", ""), "444', its key must be"),
    "the pod's key in lines": (*_filled("epc-limit.nri.io/pod", "4", "\n", ""), "is '4', its key must be"),
    "CRI-O's": (*_filled("unified-cgroup.crio.io/app", "", "x", ""), "xxx', must not be there"),
}
"""Annotations as long as may be of a pod of one page (container `app`), and part of what its author then reads."""


@dataclass(frozen=True, slots=True)
class Case:
    """A pod, and parts of the text with which it is refused; none where it passes."""

    policy: str
    title: str
    namespace: str
    pod: Record
    refused: tuple[str, ...]


def cases() -> list[Case]:
    """All pods of the data files."""
    return [_case(policy, one) for policy in NAMES for one in yaml.safe_load((DATA / f"{policy}.yaml").read_text())]


def _case(policy: str, told: Mapping[str, object]) -> Case:
    refused = told.get("refused", [])
    assert isinstance(refused, list)
    spec = json.loads(json.dumps(told["spec"]))
    assert isinstance(spec, dict)
    for field in ("containers", "initContainers"):
        members = spec.get(field, [])
        assert isinstance(members, list)
        for one in members:
            assert isinstance(one, dict)
            one["image"] = "localhost/none:1"
    pod: Record = {"metadata": {"name": "tried", "annotations": _annotations(told)}, "spec": spec}
    return Case(policy, str(told["id"]), str(told.get("namespace", "default")), pod, tuple(map(str, refused)))


def _annotations(told: Mapping[str, object]) -> Record:
    found = told.get("annotations", {})
    assert isinstance(found, dict)
    return found
