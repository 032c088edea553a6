"""Checkpoints and changes of size that a VM cannot do, refused by the relay between grpcio's client and a runtime of
grpcio's."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from nodeward.aio.clock import SystemClock
from nodeward.aio.hostfs import OsFiles
from nodeward.app.relay import run as relay
from nodeward.app.relay import vm_guard
from nodeward.app.relay.vm_guard import VmGuard
from nodeward.model.rows import VmGuardRow
from nodeward.model.settings import OnError, RelaySection, Settings
from nodeward.proto import cri_pb2 as cri
from tests.component.relay.rig import WAIT_S, Runtime, client_of, relay_here, runtime_at, wait_for
from tests.component.relay.test_limits import call
from tests.component.relay.test_status import people

HANDLERS = {
    "kata": "static_sandbox_resource_mgmt = true",
    "grows": "static_sandbox_resource_mgmt = false",
    "unread": "",
}
HAS = cri.LinuxContainerResources(cpu_shares=512, cpu_quota=50_000, cpu_period=100_000, memory_limit_in_bytes=1 << 20)
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION


def runtime(name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
    """One with a container in a sandbox of each handler, which have the handler's name; it fails where that is `broken`
    and tells no resources of the container `unsaid`."""
    if b"broken" in request and name == "ListPodSandbox":
        context.abort(grpc.StatusCode.INTERNAL, "broken")
    match name:
        case "ListContainers":
            one = cri.ListContainersRequest.FromString(request).filter.id
            found = [] if one == "gone" else [cri.Container(id=one, pod_sandbox_id=f"{one}-sandbox")]
            return cri.ListContainersResponse(containers=found).SerializeToString()
        case "ListPodSandbox":
            home = cri.ListPodSandboxRequest.FromString(request).filter.id
            handler = home.removesuffix("-sandbox").replace("unsaid", "kata")
            return cri.ListPodSandboxResponse(
                items=[cri.PodSandbox(id=home, runtime_handler=handler)]
            ).SerializeToString()
        case "ContainerStatus":
            made = cri.ContainerStatusResponse()
            if cri.ContainerStatusRequest.FromString(request).container_id != "unsaid":
                made.status.resources.linux.CopyFrom(HAS)
            return made.SerializeToString()
        case _:
            return b""


@contextmanager
def node(folder: Path, rule: OnError = OnError.REFUSE) -> Iterator[tuple[Path, Runtime, VmGuard | None]]:
    tables = ""
    for name, line in HANDLERS.items():
        config = folder / f"etc/{name}.toml"
        config.parent.mkdir(exist_ok=True)
        config.write_text(f"[hypervisor.qemu]\n[runtime]\n{line}\n" if line else "[runtime")
        tables += f"[plugins.cri.containerd.runtimes.{name}]\nruntime_type = 'io.containerd.kata.v2'\n"
        tables += f"options = {{ConfigPath = '/etc/{name}.toml'}}\n"
    (folder / "etc/containerd").mkdir()
    (folder / "etc/containerd/config.toml").write_text(tables)
    listen, behind = folder / "cri.sock", folder / "runtime.sock"
    section = RelaySection(str(listen), str(behind), vm_checkpoint=rule, vm_resize=rule)
    settings = Settings(run_dir=str(folder / "run"), relay=section)
    plan = relay.plan(settings, SystemClock(), OsFiles(str(folder)))
    with runtime_at(behind, runtime) as made, relay_here(plan):
        yield listen, made, plan.guard


def checkpoint(container: str) -> bytes:
    return cri.CheckpointContainerRequest(container_id=container, location="/c.tar").SerializeToString()


def resize(container: str, **changed: int | str) -> bytes:
    asked = cri.UpdateContainerResourcesRequest(container_id=container)
    asked.linux.CopyFrom(HAS)
    for name, value in changed.items():
        setattr(asked.linux, name, value)
    return asked.SerializeToString()


REFUSED = [
    ("CheckpointContainer", checkpoint("kata"), "checkpoint of container kata refused: a container of the runtime"),
    ("UpdateContainerResources", resize("kata", cpu_quota=60_000), "infeasible: VMs of the runtime handler kata"),
    ("UpdateContainerResources", resize("kata", memory_limit_in_bytes=2 << 20), "memory limit (1048576 to 2097152)"),
    (
        "UpdatePodSandboxResources",
        cri.UpdatePodSandboxResourcesRequest(pod_sandbox_id="kata-sandbox").SerializeToString(),
        "so the resources of the pod cannot change while the VM runs",
    ),
]
CPUSET = cri.UpdateContainerResourcesRequest(
    container_id="kata", linux=cri.LinuxContainerResources(cpuset_cpus="0-1")
).SerializeToString()
PASSED = [
    ("CheckpointContainer", checkpoint("runc"), {"passed": 1}),
    ("CheckpointContainer", checkpoint("gone"), {"unknown": 1}),
    ("CheckpointContainer", checkpoint("broken"), {"unknown": 1}),
    ("UpdateContainerResources", CPUSET, {}),
    ("UpdateContainerResources", resize("kata", cpuset_cpus="0-1"), {"passed": 1}),
    ("UpdateContainerResources", resize("runc", cpu_quota=60_000), {"passed": 1}),
    ("UpdateContainerResources", resize("grows", cpu_quota=60_000), {"passed": 1}),
    ("UpdateContainerResources", resize("unread", cpu_quota=60_000), {"unknown": 1}),
    ("UpdateContainerResources", resize("unsaid", cpu_quota=60_000), {"unknown": 1}),
    ("UpdateContainerResources", b"\x0a\xff", {}),
    ("CheckpointPod", cri.CheckpointPodRequest(pod_sandbox_id="kata-sandbox").SerializeToString(), {}),
]


def test_what_a_vm_cannot_do_is_refused_with_the_reason(tmp_path: Path) -> None:
    with node(tmp_path) as (listen, made, guard), client_of(listen) as channel:
        for version in ("v1", "v1alpha2"):
            for method, request, says in REFUSED:
                with pytest.raises(grpc.RpcError) as refused:
                    call(channel, method, request, version)
                assert (refused.value.code(), says in str(refused.value.details())) == (PRECONDITION, True)
        assert {name for name, _ in made.got} == {"ListContainers", "ListPodSandbox", "ContainerStatus"}
        assert guard is not None
        assert guard.row().counts == {"checkpoints refused": 2, "resizes refused": 6}
        wait_for((tmp_path / "run/relay.sock").is_socket, "the relay's status")
        said = " ".join(people(listen, "status").stdout.split())
        assert "VM sandboxes: vm_checkpoint refuse, vm_resize refuse; 2 checkpoints refused, 6 resizes refused" in said
        assert json.loads(people(listen, "status", "-o", "json").stdout)["relay"]["guard"]["last"].startswith(
            "sandbox "
        )


def test_what_it_can_do_and_what_is_unknown_passes_as_it_came(tmp_path: Path) -> None:
    so_far = Counter[str]()
    with node(tmp_path) as (listen, made, guard), client_of(listen) as channel:
        assert guard is not None
        for method, request, counts in PASSED:
            call(channel, method, request)
            so_far.update(counts)
            assert (made.got[-1], guard.row().counts) == ((method, request), so_far)


def test_a_runtime_that_is_late_with_its_answer_does_not_keep_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vm_guard, "ASK_S", 0.05)
    over = threading.Event()

    def late(name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        if name == "ListContainers":
            over.wait(WAIT_S)
        return runtime(name, request, context)

    with node(tmp_path) as (listen, made, guard), client_of(listen) as channel:
        made.behave = late
        call(channel, "CheckpointContainer", checkpoint("kata"))
        over.set()
        assert guard is not None
        assert guard.row().counts == {"unknown": 1}


def test_each_setting_is_for_its_own_calls_and_without_both_nothing_is_held(tmp_path: Path) -> None:
    settings = Settings(relay=RelaySection(vm_checkpoint=OnError.REFUSE))
    (method, request, _), *_ = REFUSED
    assert VmGuard(settings, OsFiles()).row() == VmGuardRow("refuse")
    decider = VmGuard(settings, OsFiles()).decider
    names = ("CheckpointContainer", "UpdateContainerResources", "UpdatePodSandboxResources", "CreateContainer")
    assert [decider.holds(f"/runtime.v1.RuntimeService/{name}") for name in names] == [True, False, False, False]
    with node(tmp_path, OnError.PASS) as (listen, made, guard), client_of(listen) as channel:
        call(channel, method, request)
        assert (made.got, guard) == ([(method, request)], None)
