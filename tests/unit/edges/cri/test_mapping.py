"""What CRI's requests say in the words of the model. A change of a request overrules what the client said of the same,
and leaves the rest of its bytes."""

from dataclasses import replace

import pytest

from nodeward.edges.cri import mapping
from nodeward.model.decision import Adjustment, Mount
from nodeward.model.pool_rule import SchedulingClass
from nodeward.model.sizing import Sized, Way
from nodeward.model.workload import CpuRecord
from nodeward.proto import cri_pb2 as cri

GIVEN = Adjustment({"misc.max": "a 1"}, "0-3,8", "1", 512, "gold", "slow", (Mount("/host", "/data"),))


def test_a_create_gets_all_that_is_given(caplog: pytest.LogCaptureFixture) -> None:
    """But a scheduling class: the log says that CRI has no field for it."""
    request = cri.CreateContainerRequest(pod_sandbox_id="s")
    request.config.mounts.add(container_path="/own", host_path="/o")
    request.config.annotations["own"] = "kept"
    resources = request.config.linux.resources
    resources.unified.update({"misc.max": "a 7", "io.x": "y"})
    resources.cpuset_cpus, resources.cpu_shares, resources.cpu_quota = "4", 2, 50

    changed = mapping.changed_create(
        asked := request.SerializeToString(), replace(GIVEN, scheduling=SchedulingClass("calm"))
    )

    assert changed.startswith(asked)
    config = cri.CreateContainerRequest.FromString(changed).config
    assert dict(config.linux.resources.unified) == {"misc.max": "a 1", "io.x": "y"}
    resources = config.linux.resources
    assert (resources.cpuset_cpus, resources.cpuset_mems) == ("0-3,8", "1")
    assert (resources.cpu_shares, resources.cpu_quota) == (512, 50)
    assert dict(config.annotations) == {"own": "kept", mapping.RDT_CLASS: "gold", mapping.BLOCKIO_CLASS: "slow"}
    mounts = [(mount.container_path, mount.host_path, mount.readonly) for mount in config.mounts]
    assert mounts == [("/own", "/o", False), ("/data", "/host", True)]
    assert caplog.messages == ["scheduling=not-carried class=calm: CRI has no field for it"]


def test_an_update_gets_what_it_can_carry() -> None:
    request = cri.UpdateContainerResourcesRequest(container_id="c")
    request.linux.cpuset_cpus = "4"
    changed = cri.UpdateContainerResourcesRequest.FromString(mapping.changed_update(request.SerializeToString(), GIVEN))
    assert (changed.container_id, changed.linux.cpuset_cpus, changed.linux.cpu_shares) == ("c", "0-3,8", 512)
    assert dict(changed.linux.unified) == {"misc.max": "a 1"}


def test_a_create_tells_the_pods_cgroup_and_what_is_asked_of_the_cpus() -> None:
    request = cri.CreateContainerRequest(pod_sandbox_id="s")
    request.sandbox_config.linux.cgroup_parent = "kubepods-burstable-podu.slice"
    resources = request.config.linux.resources
    resources.cpu_shares, resources.cpu_quota, resources.cpu_period, resources.cpuset_cpus = 512, 50_000, 100_000, "4"
    home, made = mapping.creating(request.SerializeToString(), "c")
    assert home.cgroup_parent == "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu.slice"
    assert made.cpu == CpuRecord(512, 50_000, 100_000, 0b1_0000)
    update = cri.UpdateContainerResourcesRequest(container_id="c")
    update.linux.cpu_shares, update.linux.cpu_quota = 1024, -1
    assert mapping.updating(update.SerializeToString(), made).cpu == CpuRecord(1024, -1, 100_000, 0b1_0000)


def test_a_cgroup_that_is_no_path_and_an_impossible_amount_count_as_not_said(caplog: pytest.LogCaptureFixture) -> None:
    request = cri.CreateContainerRequest(pod_sandbox_id="s")
    request.sandbox_config.linux.cgroup_parent = "/kubepods/../etc"
    request.config.linux.resources.cpu_shares = -5
    home, made = mapping.creating(request.SerializeToString(), "c")
    assert (home.cgroup_parent, made.cpu) == ("", CpuRecord())
    assert "cgroup=ignored" in caplog.text
    assert "cpu=ignored error=cpu.shares is -5" in caplog.text


def test_a_sandbox_gets_its_size_by_annotations_and_nothing_else_of_it_changes() -> None:
    request = cri.RunPodSandboxRequest(runtime_handler="kata")
    request.config.annotations.update({"own": "kept", "key": "own"})
    request.config.linux.resources.cpu_shares = 2
    size = Sized(100_000, 200_000, 1 << 20, way=Way.KEYS, annotations={"key": "1"})

    changed = mapping.changed_run(asked := request.SerializeToString(), size)

    assert changed.startswith(asked)
    request.config.annotations["key"] = "1"
    assert cri.RunPodSandboxRequest.FromString(changed) == request


def test_only_the_labels_that_are_named_are_copied_of_a_create_and_of_lists() -> None:
    request = cri.CreateContainerRequest(pod_sandbox_id="s")
    request.sandbox_config.labels.update({"app": "web", "secret": "x"})
    request.config.labels.update({"own": "o", "secret": "x"})
    named = ("pod/labels/app", "labels/own")
    homes = cri.ListPodSandboxResponse(items=[cri.PodSandbox(id="s", labels=request.sandbox_config.labels)])
    ones = cri.ListContainersResponse(containers=[cri.Container(id="c", labels=request.config.labels)])
    home, made = mapping.creating(request.SerializeToString(), "c", named)
    (listed_home,) = mapping.sandboxes((homes.SerializeToString(),), named)
    (listed,) = mapping.containers((ones.SerializeToString(),), named)
    assert home.labels == listed_home.labels == {"pod/labels/app": "web"}
    assert made.labels == listed.labels == {"labels/own": "o"}
