"""A pod as the API server has it becomes what the model says of it."""

import json

import pytest

from nodeward.edges.kube.mapping import pod_event, pod_spec
from nodeward.model.events import PodGone, PodSeen
from nodeward.model.workload import PodUid, Qos, Role
from nodeward.wire.kube_objects import Change, PodChange, PodObject, decode_pod

EPC = "sgx.intel.com/epc"
Json = dict[str, object]


def read(spec: Json, status: Json | None = None, annotations: dict[str, str] | None = None) -> PodObject:
    metadata = {"name": "a", "namespace": "ns", "uid": "u", "annotations": annotations or {}}
    return decode_pod(json.dumps({"metadata": metadata, "spec": spec, "status": status or {}}).encode())


def limits(**amounts: object) -> Json:
    return {"limits": {EPC if name == "epc" else name: amount for name, amount in amounts.items()}}


def test_roles_follow_the_field_and_the_restart_policy_and_init_containers_come_first() -> None:
    spec = pod_spec(
        read(
            {
                "containers": [{"name": "c", "restartPolicy": "Always"}],
                "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
                "ephemeralContainers": [{"name": "e"}],
            }
        )
    )
    assert [(one.name, one.role) for one in spec.containers] == [
        ("i", Role.INIT),
        ("s", Role.SIDECAR),
        ("c", Role.REGULAR),
        ("e", Role.EPHEMERAL),
    ]


@pytest.mark.parametrize(
    ("resources", "declared"),
    [
        pytest.param(limits(epc="1Mi"), {"sgx_epc": 1048576}, id="a limit"),
        pytest.param({"requests": {EPC: "2"}}, {"sgx_epc": 2}, id="a request alone"),
        pytest.param({"limits": {EPC: "1"}, "requests": {EPC: "2"}}, {"sgx_epc": 1}, id="the limit wins"),
        pytest.param(limits(epc=0), {"sgx_epc": 0}, id="zero is declared and denies"),
        pytest.param(limits(cpu="1", memory="1Gi"), {}, id="other resources do not enter"),
        pytest.param({}, {}, id="nothing"),
    ],
)
def test_declared_amounts_are_in_the_kernels_names_and_units(resources: Json, declared: dict[str, int]) -> None:
    spec = pod_spec(read({"containers": [{"name": "c", "resources": resources}]}))
    assert spec.containers[0].declared == declared
    assert spec.containers[0].faults == ()


def test_a_quantity_that_cannot_be_read_is_a_fault_with_its_path_and_hides_nothing_else() -> None:
    spec = pod_spec(
        read(
            {
                "containers": [
                    {"name": "bad", "resources": limits(epc="1MiB")},
                    {"name": "good", "resources": limits(epc="1Mi")},
                ]
            }
        )
    )
    bad, good = spec.containers
    assert bad.declared == {}
    assert len(bad.faults) == 1
    assert bad.faults[0].startswith("spec.containers[0].resources.limits[sgx.intel.com/epc]: ")
    assert "1MiB" in bad.faults[0]
    assert good.declared == {"sgx_epc": 1048576}


def test_overhead_is_the_pods_and_its_fault_is_shown_at_the_first_container() -> None:
    assert pod_spec(read({"overhead": {EPC: "4Ki", "cpu": "1"}})).overhead == {"sgx_epc": 4096}
    odd = pod_spec(read({"overhead": {EPC: "-1"}, "containers": [{"name": "c"}]}))
    assert odd.overhead == {}
    assert odd.containers[0].faults[0].startswith("spec.overhead[sgx.intel.com/epc]: ")


def test_container_ids_lose_the_runtimes_scheme_and_absent_ones_are_left_out() -> None:
    status: Json = {
        "containerStatuses": [{"name": "c", "containerID": "containerd://abc"}, {"name": "later"}],
        "initContainerStatuses": [{"name": "i", "containerID": "cri-o://def"}, {"name": "none", "containerID": ""}],
        "ephemeralContainerStatuses": [{"name": "e", "containerID": "containerd://"}],
    }
    assert pod_spec(read({}, status)).container_ids == {"c": "abc", "i": "def"}


@pytest.mark.parametrize(
    ("phase", "terminal"),
    [("Pending", False), ("Running", False), ("Unknown", False), ("Succeeded", True), ("Failed", True)],
)
def test_a_pod_is_terminal_when_its_phase_says_so(phase: str, terminal: bool) -> None:
    assert pod_spec(read({}, {"phase": phase})).terminal is terminal


HASH, MIRROR, SOURCE = (f"kubernetes.io/config.{name}" for name in ("hash", "mirror", "source"))


def test_of_the_annotations_only_the_config_hash_enters() -> None:
    spec = pod_spec(read({}, annotations={HASH: "h", MIRROR: "h", "token": "s3cret"}))
    assert spec.config_hash == "h"
    assert "s3cret" not in repr(spec)


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({HASH: "h"}, id="a hash alone"),
        pytest.param({HASH: "h", SOURCE: "file"}, id="a source that only kubelet's own view could tell"),
        pytest.param({HASH: "h", MIRROR: "other"}, id="a mirror of another"),
        pytest.param({MIRROR: "h"}, id="a mirror of nothing"),
        pytest.param({HASH: "", MIRROR: ""}, id="empty"),
    ],
)
def test_what_is_no_mirror_to_kubelet_claims_nobodys_place(annotations: dict[str, str]) -> None:
    assert pod_spec(read({}, annotations=annotations)).config_hash == ""


def test_other_tables_read_other_resources() -> None:
    spec = pod_spec(
        read({"containers": [{"name": "c", "resources": {"limits": {"tdx.intel.com/keys": "1", EPC: "1"}}}]}),
        {"tdx.intel.com/keys": "tdx"},
    )
    assert spec.containers[0].declared == {"tdx": 1}


def test_changes_become_seen_and_gone() -> None:
    pod = read({})
    assert pod_event(PodChange(Change.ADDED, pod)) == PodSeen(pod_spec(pod))
    assert pod_event(PodChange(Change.MODIFIED, pod)) == PodSeen(pod_spec(pod))
    assert pod_event(PodChange(Change.DELETED, pod)) == PodGone(PodUid("u"))


def test_names_of_the_same_thing_add_up() -> None:
    """A KubeVirt launcher asks by its name and a Kata runtime class by another: each takes a key of its own."""
    table = {"devices.kubevirt.io/tdx": "tdx", "tdx.intel.com/keys": "tdx"}
    asked: Json = {"limits": {"devices.kubevirt.io/tdx": "1", "tdx.intel.com/keys": "2"}}
    found = pod_spec(read({"containers": [{"name": "vm", "resources": asked}]}), table)
    assert found.containers[0].declared == {"tdx": 3}


@pytest.mark.parametrize(
    ("resources", "cpu_m", "limit_m"),
    [
        pytest.param({"requests": {"cpu": "500m"}}, 500, 0, id="a request alone"),
        pytest.param({"limits": {"cpu": "1.5"}}, 1500, 1500, id="the limit is the request"),
        pytest.param({"requests": {"cpu": "0.1"}, "limits": {"cpu": 2}}, 100, 2000, id="both"),
        pytest.param({"requests": {"cpu": "0"}, "limits": {"cpu": "2"}}, 0, 2000, id="a request of nothing"),
        pytest.param({"limits": {"memory": "1Gi"}}, 0, 0, id="another resource"),
    ],
)
def test_what_is_asked_of_the_cpus_is_in_thousandths(resources: Json, cpu_m: int, limit_m: int) -> None:
    (one,) = pod_spec(read({"containers": [{"name": "c", "resources": resources}]})).containers
    assert (one.cpu_m, one.cpu_limit_m, one.faults) == (cpu_m, limit_m, ())


TWO: Json = {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}


@pytest.mark.parametrize(
    ("status", "cpu_m", "limit_m"),
    [
        pytest.param(
            {"allocatedResources": {"cpu": "2"}, "resources": TWO}, 2000, 2000, id="a resize that is deferred"
        ),
        pytest.param({"allocatedResources": {"cpu": "3"}, "resources": TWO}, 3000, 3000, id="a resize under way"),
        pytest.param({"resources": TWO}, 2000, 2000, id="what was set, where nothing else is told"),
        pytest.param({"allocatedResources": {"memory": "1Gi"}}, 40_000, 40_000, id="nothing of the CPU"),
        pytest.param({"allocatedResources": {"cpu": "two"}}, 40_000, 40_000, id="what cannot be read"),
    ],
)
def test_a_container_requests_what_kubelet_has_allocated_not_what_a_resize_wishes(
    status: Json, cpu_m: int, limit_m: int
) -> None:
    wish: Json = {"requests": {"cpu": "40"}, "limits": {"cpu": "40"}}
    pod = read({"containers": [{"name": "c", "resources": wish}]}, {"containerStatuses": [{"name": "c", **status}]})
    (one,) = pod_spec(pod).containers
    assert (one.cpu_m, one.cpu_limit_m, one.faults) == (cpu_m, limit_m, ())


def test_the_limit_of_a_burstable_container_is_the_one_that_was_set() -> None:
    wish: Json = {"requests": {"cpu": "1"}, "limits": {"cpu": "9"}}
    told = {"name": "c", "allocatedResources": {"cpu": "500m"}, "resources": {"limits": {"cpu": "2"}}}
    pod = read({"containers": [{"name": "c", "resources": wish}]}, {"containerStatuses": [told]})
    (one,) = pod_spec(pod).containers
    assert (one.cpu_m, one.cpu_limit_m) == (500, 2000)


def test_an_amount_of_cpus_that_cannot_be_read_is_a_fault_and_no_request() -> None:
    found = pod_spec(read({"containers": [{"name": "c", "resources": {"requests": {"cpu": "two"}}}]}))
    (one,) = found.containers
    assert (one.cpu_m, found.qos) == (None, None)
    assert one.faults == (
        "spec.containers[0].resources.requests[cpu]: 'two' is not a Kubernetes quantity; write for example 500m or 2",
    )


def of(cpu: str = "", memory: str = "", more: Json | None = None) -> Json:
    """A container with these limits, which are its requests too, and with `more` requests."""
    amounts = {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}
    return {"name": "c", "resources": {"limits": amounts, "requests": {**amounts, **(more or {})}}}


@pytest.mark.parametrize(
    ("spec", "qos"),
    [
        pytest.param({"containers": [of("2", "1Gi")]}, Qos.GUARANTEED, id="all limited"),
        pytest.param({"containers": [of("2", "1Gi", {"cpu": "2000m"})]}, Qos.GUARANTEED, id="written otherwise"),
        pytest.param({"containers": [of("2", "1Gi", {"cpu": "1"})]}, Qos.BURSTABLE, id="less requested"),
        pytest.param({"containers": [of("2")]}, Qos.BURSTABLE, id="no memory"),
        pytest.param({"containers": [of("2", "1Gi"), of()]}, Qos.BURSTABLE, id="one that asks for nothing"),
        pytest.param(
            {"containers": [of("2", "1Gi")], "initContainers": [of("1")]}, Qos.BURSTABLE, id="init containers count"
        ),
        pytest.param({"containers": [of(), of()]}, Qos.BEST_EFFORT, id="nothing"),
        pytest.param({"containers": [of(more={EPC: "1"})]}, Qos.BEST_EFFORT, id="other resources do not count"),
        pytest.param({"containers": [of()], "resources": of("2", "1Gi")["resources"]}, Qos.GUARANTEED, id="of the pod"),
    ],
)
def test_a_pods_class_follows_from_its_resources_where_its_status_does_not_tell_it(spec: Json, qos: Qos) -> None:
    assert pod_spec(read(spec)).qos is qos
    assert pod_spec(read(spec, {"qosClass": "Burstable"})).qos is Qos.BURSTABLE


def test_resources_of_the_pod_as_a_whole_are_told() -> None:
    assert not pod_spec(read({"containers": [of("2")], "resources": {}})).pod_level
    asks = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1500m", "memory": "lots"}}
    found = pod_spec(read({"containers": [of()], "resources": asks}))
    assert found.pod_level
    assert found.whole is not None
    assert (found.whole.cpu_m, found.whole.cpu_limit_m, found.whole.memory_limit) == (1500, 2000, 1 << 30)
    assert "spec.resources.requests[memory]" in found.whole.faults[0]


def test_a_pod_in_a_vm_has_its_class_its_overhead_and_its_containers_memory() -> None:
    limits = {"cpu": "500m", "memory": "256Mi"}
    spec: dict[str, object] = {
        "runtimeClassName": "kata",
        "overhead": {"cpu": "250m", "memory": "160Mi"},
        "containers": [{"name": "app", "resources": {"limits": limits}}, {"name": "side"}],
    }
    found = pod_spec(read(spec))
    assert (found.runtime_class, found.overhead_cpu_m, found.overhead_memory) == ("kata", 250, 160 << 20)
    assert [one.memory_limit for one in found.containers] == [256 << 20, 0]
