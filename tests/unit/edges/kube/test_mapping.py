"""A pod as the API server has it becomes what the model says of it."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
import yaml

from nodeward.edges.kube.mapping import pod_spec
from nodeward.model.settings import DEFAULT_RESOURCES
from nodeward.model.workload import PodSpec
from nodeward.wire.kube_objects import decode_pod

Json = dict[str, object]
NAMES: Json = {"name": "a", "namespace": "ns", "uid": "u"}


@dataclass(frozen=True, slots=True)
class Case:
    case: str
    then: Json
    containers: list[Json] | None = None
    init_containers: list[Json] | None = None
    ephemeral_containers: list[Json] | None = None
    spec: Json = field(default_factory=dict)
    status: Json = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    table: dict[str, str] = field(default_factory=lambda: dict(DEFAULT_RESOURCES))

    def pod(self) -> bytes:
        lists = {
            "initContainers": self.init_containers,
            "containers": self.containers,
            "ephemeralContainers": self.ephemeral_containers,
        }
        spec = {key: rows for key, rows in lists.items() if rows is not None} | self.spec
        metadata = {**NAMES, "annotations": self.annotations}
        return json.dumps({"metadata": metadata, "spec": spec, "status": self.status}).encode()


TOLD = yaml.safe_load(Path(__file__).with_name("pods.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", msgspec.convert(TOLD, list[Case]), ids=lambda case: case.case)
def test_what_the_model_says_of_a_pod_is(case: Case) -> None:
    assert pod_spec(decode_pod(case.pod()), case.table) == msgspec.convert(NAMES | case.then, PodSpec)
