"""The pods of tests/real/policies, as the tests of the policies ask about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.peers.nriside import Record
from tests.real.test_webhook import record

DATA = Path(__file__).parent / "policies"
NAMES = ("epc-amounts", "epc-annotations", "sgx-devices", "sgx-provision")


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
    spec = record({"spec": told["spec"]})["spec"]
    assert isinstance(spec, dict)
    for field in ("containers", "initContainers"):
        members = spec.get(field, [])
        assert isinstance(members, list)
        for one in members:
            assert isinstance(one, dict)
            one["image"] = "localhost/none:1"
    pod = record({"metadata": {"name": "tried", "annotations": told.get("annotations", {})}, "spec": spec})
    return Case(policy, str(told["id"]), str(told.get("namespace", "default")), pod, tuple(map(str, refused)))
