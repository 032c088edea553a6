"""What a pod gets at admission, and why one is refused."""

import copy
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
import yaml

from nodeward.model.admission import AdmissionRule
from tests.unit.edges.webhook.rounds import Json, admitted, at, container, notes, pod_of

EPC, ENCLAVE = "sgx.intel.com/epc", "sgx.intel.com/enclave"
QUOTE, LIMITS, UPSTREAM = "sgx.intel.com/quote-provider", "nodeward.io/limits", "epc-limit.nri.io"
REQUIRED = "required-plugins.noderesource.dev"


@dataclass(frozen=True, slots=True)
class Case:
    case: str
    containers: list[Json]
    init_containers: list[Json] | None = None
    annotations: Json | None = None
    spec: Json = field(default_factory=dict)
    operation: str = "CREATE"
    sub_resource: str = ""
    required: str = ""
    resources: dict[str, str] = field(default_factory=lambda: {EPC: "sgx_epc"})
    then: Json | None = None
    adds: list[tuple[str, object]] = field(default_factory=list)
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def pod(self) -> Json:
        inits = {} if self.init_containers is None else {"initContainers": [*map(written, self.init_containers)]}
        return pod_of(*map(written, self.containers), annotations=self.annotations, **inits, **self.spec)


def written(row: Json) -> Json:
    limits = row.get("limits")
    resources = {} if limits is None else {"resources": {"limits": limits, "requests": copy.deepcopy(limits)}}
    return container(str(row["name"])) | {key: value for key, value in row.items() if key != "limits"} | resources


TOLD = yaml.safe_load(Path(__file__).with_name("pods.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", msgspec.convert(TOLD, list[Case]), ids=lambda case: case.case)
def test_what_a_pod_gets_at_admission_and_why_one_is_refused(case: Case) -> None:
    made, rule = case.pod(), AdmissionRule(resources=case.resources, required_plugin=case.required)
    found = admitted(made, case.operation, case.sub_resource, rule)

    assert (found.verdict.refusals, found.verdict.warnings) == (case.refusals, case.warnings)
    assert notes(found.pod) == (notes(made) if case.then is None else case.then)
    changes = [one for one in found.operations if not str(one["path"]).startswith("/metadata")]
    assert [(one["path"], one.get("value")) for one in changes] == case.adds
    assert not (case.refusals and found.operations)


@pytest.mark.parametrize(
    ("limit", "request_", "decimal", "total"),
    [
        ("1Mi", "1024Ki", "1048576", "1Mi"),
        ("1Mi", "1048576", "1048576", "1Mi"),
        ("0.5Gi", "512Mi", "536870912", "512Mi"),
        ("3000m", "3", "3", "3"),
        ("1e3", "1k", "1000", "1k"),
        ("1M", "1000000", "1000000", "1000000"),
        ("010", "10", "10", "10"),
        ("7Ei", "7Ei", "8070450532247928832", "7Ei"),
        ("9223372036854775807", "9223372036854775807", "9223372036854775807", "9223372036854775807"),
    ],
)
def test_amounts_are_compared_as_numbers(limit: str, request_: str, decimal: str, total: str) -> None:
    app = container("app", resources={"limits": {EPC: limit}, "requests": {EPC: request_}})
    found = admitted(pod_of(app))

    assert found.verdict.refusals == ()
    assert at(notes(found.pod), LIMITS) == f'{{"app":{{"sgx_epc":"{decimal}"}}}}'
    assert at(notes(found.pod), EPC) == total
    assert notes(found.pod).get(f"{UPSTREAM}/container.app") == decimal


def test_every_fault_is_told_at_once_and_not_more_than_ten() -> None:
    found = admitted(pod_of(*(container(f"c{number}", {EPC: "x"}) for number in range(30))))

    assert len(found.verdict.refusals) == 11
    assert found.verdict.refusals[-1] == "and 20 more"


def test_a_sum_of_very_many_containers_is_told_in_a_bounded_text() -> None:
    """The API server hands a refusal on to people: names and values are cut, and so is their list."""
    refusals = admitted(pod_of(*(container("c" * 63, {EPC: "4E"}) for _ in range(500)))).verdict.refusals

    assert len(refusals) == 1
    assert "(spec.containers[9])" in refusals[0]
    assert ", and 490 more: together 2000000000000000000000 at one time" in refusals[0]
    assert len(refusals[0]) < 4096


@pytest.mark.parametrize(("length", "fits"), [(53, True), (54, False), (63, False)])
def test_the_key_for_upstream_is_written_where_it_fits(length: int, fits: bool) -> None:
    name = "c" * length
    found = notes(admitted(pod_of(container(name, {EPC: "1"}))).pod)

    assert (at(found, f"{UPSTREAM}/container.{name}") == "1") is fits
    assert at(found, LIMITS) == f'{{"{name}":{{"sgx_epc":"1"}}}}'


@pytest.mark.parametrize(
    "metadata",
    [None, {}, {"annotations": None}, {"annotations": {}}, {"annotations": {"a/b~c": "d", QUOTE: "aesmd"}}],
    ids=str,
)
def test_the_patch_fits_whatever_is_absent_or_null(metadata: Json | None) -> None:
    app: Json = {"name": "app", "resources": {"limits": {EPC: "1"}, "requests": None}, "env": None}
    made: Json = {"spec": {"containers": [app], "initContainers": None, "volumes": None}}
    if metadata is not None:
        made["metadata"] = metadata
    found = admitted(made)

    assert at(found.pod, "spec", "containers", 0, "resources", "requests") == {ENCLAVE: "1"}
    assert at(notes(found.pod), EPC) == "1"
    assert admitted(found.pod).operations == []


def test_an_aesmd_that_came_after_the_volume_of_the_nodes_folder_is_warned_of() -> None:
    """Given a second round for a pod that had no aesmd in the first one, then its volume stays and its author is told:
    an aesmd there would take the place of the node's for all pods."""
    once = admitted(pod_of(container("app", {EPC: "1"}), annotations={QUOTE: "aesmd"}))
    spec = once.pod["spec"]
    assert isinstance(spec, dict)
    spec["containers"].append(container("aesmd", {EPC: "1"}))
    twice = admitted(once.pod)

    assert once.verdict.warnings == ()
    assert at(twice.pod, "spec", "volumes") == at(once.pod, "spec", "volumes")
    assert twice.verdict.warnings == (
        "spec.volumes[aesmd-socket] is the node's folder, and container 'aesmd' of this pod would serve it to every "
        "pod of the node; write emptyDir: {medium: Memory} for this volume",
    )


@pytest.mark.parametrize("length", [4096, 4097])
def test_a_list_of_plugins_is_read_up_to_a_length(length: int) -> None:
    rule = AdmissionRule(required_plugin="nodeward")
    other = "a" * (length - len("[]"))
    found = admitted(pod_of(container("app", {EPC: "1"}), annotations={REQUIRED: f"[{other}]"}), rule=rule)

    if length > 4096:
        assert found.verdict.refusals[0].startswith(f"metadata.annotations[{REQUIRED}] is '[aaa")
        assert len(found.verdict.refusals[0]) < 500
    else:
        assert at(notes(found.pod), REQUIRED) == f'["{other}","nodeward"]'


def test_an_ephemeral_container_with_a_resource_is_refused_and_one_without_changes_nothing() -> None:
    base = admitted(pod_of(container("app", {EPC: "4Ki"}))).pod
    plain, greedy = copy.deepcopy(base), copy.deepcopy(base)
    for made, debugger in ((plain, container("debug")), (greedy, container("debug", {EPC: "4Ki"}))):
        spec = made["spec"]
        assert isinstance(spec, dict)
        spec["ephemeralContainers"] = [debugger]

    assert admitted(plain, "UPDATE", "ephemeralcontainers").operations == []
    refused = admitted(greedy, "UPDATE", "ephemeralcontainers").verdict.refusals
    assert refused == (
        "ephemeral container 'debug' (spec.ephemeralContainers[0]): resources.limits[sgx.intel.com/epc] is '4Ki': an "
        "ephemeral container can have no resources; take it out, or declare it in a container of the pod",
    )


def test_annotations_that_were_changed_later_are_set_right_again() -> None:
    good = admitted(pod_of(container("app", {EPC: "4Ki"}))).pod
    bad = copy.deepcopy(good)
    bad["metadata"] = {"annotations": {LIMITS: "{}", f"{UPSTREAM}/pod": "99", "own": "stays"}}
    found = admitted(bad, "UPDATE")

    assert notes(found.pod) == {**notes(good), "own": "stays"}
