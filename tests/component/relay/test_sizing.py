"""Sizes of VMs that are given with RunPodSandbox through the relay, between grpcio's client and a runtime of grpcio's;
and checkpoints and changes of size that a VM cannot do, which are refused there."""

import json
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from nodeward.contracts import cri_pb2 as cri
from nodeward.core.modes import OnError
from nodeward.core.workload import ContainerSpec, PodSpec, PodUid
from nodeward.features.pods.effects import last_known
from nodeward.features.sandboxes.effects import vm_guard
from nodeward.features.settings import KubeSection, NriSection, RelaySection, Settings
from nodeward.host.clock import SystemClock
from nodeward.host.hostfs import OsFiles
from nodeward.programs.relay import away
from nodeward.programs.relay import run as relay
from tests.component.relay import rig
from tests.component.relay.test_limits import UNKNOWN, call, got, runtime

MIB = 1 << 20
SPEC = PodSpec(PodUid("u"), "default", "pod", (ContainerSpec("app", cpu_m=300, memory_request=64 * MIB),))


def run(handler: str = "kata") -> bytes:
    """kubelet's for a pod that requests 300m and has no limit, and a field that CRI does not have yet."""
    made = cri.RunPodSandboxRequest(runtime_handler=handler)
    made.config.metadata.CopyFrom(cri.PodSandboxMetadata(name="pod", uid="u", namespace="default"))
    made.config.linux.resources.cpu_shares = 307
    made.config.linux.resources.cpu_period = 100_000
    return made.SerializeToString() + UNKNOWN


@contextmanager
def node(folder: Path, mode: str) -> Iterator[tuple[Path, rig.Runtime, subprocess.Popen[str]]]:
    """Relay and daemon, which knows the pod by what it has on disk; the daemon's process."""
    settings = folder / "nodeward.yaml"
    (folder / "state").mkdir()
    Path(last_known.FILE.path_in(f"{folder}/state")).write_bytes(
        last_known.FILE.encode(last_known.Remembered((SPEC,), 1_700_000_000 * 10**9))
    )
    settings.write_text(
        f"run_dir: {folder}/run\nstate_dir: {folder}/state\ncgroups: {{root: {folder}}}\nnri: {{enabled: false}}\n"
        f"kube: {{enabled: false}}\nsizing: {{mode: {mode}, handlers: [kata]}}\n"
    )
    with (
        rig.relayed(folder, "--config", str(settings), behave=runtime) as (listen, made, _),
        rig.node_process(folder) as daemon,
    ):
        rig.wait_for(lambda: "daemon=answers" in rig.log_of(listen), "a daemon")
        yield listen, made, daemon


def sent(listen: Path, made: rig.Runtime, handler: str = "kata") -> bytes:
    with rig.client_of(listen) as channel:
        call(channel, "RunPodSandbox", run(handler))
    received = got(made, "RunPodSandbox")
    assert received.startswith(run(handler))
    return received.removeprefix(run(handler))


def resources(added: bytes) -> tuple[int, int, int]:
    linux = cri.RunPodSandboxRequest.FromString(run() + added).config.linux.resources
    assert linux.cpu_shares == 307
    return linux.cpu_period, linux.cpu_quota, linux.memory_limit_in_bytes


def test_a_vm_gets_what_its_pod_requests(tmp_path: Path) -> None:
    with node(tmp_path, "enforce") as (listen, made, _):
        assert resources(sent(listen, made)) == (100_000, 30_000, 64 * MIB)
        assert sent(listen, made, "runc") == b""
        said = rig.people(listen, "status").stdout
        assert "sizes of VMs: mode enforce, 1 others, 1 sized\n    last: default/pod: cpu_m 0 -> 300 (" in said
        with rig.client_of(listen) as channel:
            call(channel, "RunPodSandbox", b"\x0a\xff")
        assert got(made, "RunPodSandbox") == b"\x0a\xff", "what is no request passes as it came"
    assert "sizing=sized pod=default/pod handler=kata what=" in (tmp_path / "node.log").read_text()


def test_observe_says_and_changes_nothing_until_the_settings_are_others(tmp_path: Path) -> None:
    with node(tmp_path, "observe") as (listen, made, daemon):
        assert sent(listen, made) == b""
        settings = tmp_path / "nodeward.yaml"
        settings.write_text(settings.read_text().replace("mode: observe", "mode: enforce, unlimited: '1'"))
        daemon.send_signal(signal.SIGHUP)
        log = tmp_path / "node.log"
        rig.wait_for(lambda: "settings=accepted" in log.read_text(), "word of the settings")
        assert resources(sent(listen, made)) == (100_000, 100_000, 64 * MIB)
    assert "sizing=would-size pod=default/pod handler=kata what=" in log.read_text()


HANDLERS = {
    "kata": "static_sandbox_resource_mgmt = true",
    "grows": "static_sandbox_resource_mgmt = false",
    "unread": "",
}
HAS = cri.LinuxContainerResources(cpu_shares=512, cpu_quota=50_000, cpu_period=100_000, memory_limit_in_bytes=1 << 20)
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION


def of_handlers(name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
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


def counts(listen: Path) -> dict[str, int]:
    found = json.loads(rig.people(listen, "status", "-o", "json").stdout)["vm_guard"]["counts"]
    assert isinstance(found, dict)
    return found


@contextmanager
def guarded(folder: Path) -> Iterator[tuple[Path, rig.Runtime]]:
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
    settings = Settings(
        run_dir=str(folder / "run"),
        nri=NriSection(enabled=False),
        kube=KubeSection(enabled=False),
        relay=RelaySection(str(listen), str(behind), vm_checkpoint=OnError.REFUSE, vm_resize=OnError.REFUSE),
    )
    plan = relay.plan(settings, SystemClock())
    with (
        rig.runtime_at(behind, of_handlers) as made,
        rig.relay_here(plan),
        rig.daemon_here(settings, OsFiles(str(folder))),
    ):
        rig.wait_for(lambda: bool(plan.asks and plan.asks.daemon), "a daemon")
        yield listen, made


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
    with guarded(tmp_path) as (listen, made), rig.client_of(listen) as channel:
        for version in ("v1", "v1alpha2"):
            for method, request, says in REFUSED:
                with pytest.raises(grpc.RpcError) as refused:
                    call(channel, method, request, version)
                assert (refused.value.code(), says in str(refused.value.details())) == (PRECONDITION, True)
        assert {name for name, _ in made.got} == {"ListContainers", "ListPodSandbox", "ContainerStatus"}
        assert counts(listen) == {"checkpoints refused": 2, "resizes refused": 6}
        said = " ".join(rig.people(listen, "status").stdout.split())
        assert "VM sandboxes: vm_checkpoint refuse, vm_resize refuse; 2 checkpoints refused, 6 resizes refused" in said
        assert json.loads(rig.people(listen, "status", "-o", "json").stdout)["vm_guard"]["last"].startswith("sandbox ")


def test_what_it_can_do_and_what_is_unknown_passes_as_it_came(tmp_path: Path) -> None:
    so_far = Counter[str]()
    with guarded(tmp_path) as (listen, made), rig.client_of(listen) as channel:
        for method, request, more in PASSED:
            call(channel, method, request)
            so_far.update(more)
            assert (made.got[-1], counts(listen)) == ((method, request), so_far)


def test_a_runtime_that_is_late_with_its_answer_does_not_keep_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vm_guard, "ASK_S", 0.05)
    over = threading.Event()

    def late(name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        if name == "ListContainers":
            over.wait(rig.WAIT_S)
        return of_handlers(name, request, context)

    with guarded(tmp_path) as (listen, made), rig.client_of(listen) as channel:
        made.behave = late
        call(channel, "CheckpointContainer", checkpoint("kata"))
        over.set()
        assert counts(listen) == {"unknown": 1}


def test_each_setting_is_for_its_own_calls() -> None:
    settings = Settings(relay=RelaySection(vm_checkpoint=OnError.REFUSE))
    names = ("CheckpointContainer", "UpdateContainerResources", "UpdatePodSandboxResources", "CreateContainer")
    held = away.held(settings)
    assert [f"/runtime.v1.RuntimeService/{name}" in held for name in names] == [True, False, False, False]
    assert relay.plan(Settings(), SystemClock()).decider is None, "nothing is held without any"
