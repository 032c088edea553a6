"""Kata's own host side: its libraries place VMM, vCPU threads and shim of pods that a real containerd starts. Our
reader finds them there, and what `nodeward node` says of them is held to /proc and to the files of cgroups.

Each case has what the table says for both cgroup versions, and plays the machine's: `tests/vm/test_kata_host.py` runs
them with cgroup v2 and systemd.
"""

import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeward.core.vms import Handler, Profile, TaskRole, VmReading
from nodeward.core.workload import ContainerSpec, CpuRecord, HostShare, PodSpec, PodUid, SandboxId
from nodeward.features.pods.effects import last_known
from nodeward.features.sandboxes.size import size
from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.cgroups.hierarchy import mounted
from nodeward.neighbours.kata.cgroups import trees
from nodeward.neighbours.kata.reader import Reader
from tests.component.relay.rig import log_of, node_process, relay_process, wait_for
from tests.patience import until
from tests.peers.cgroups import CGROUP_ROOT, hierarchies
from tests.peers.containerd import IMAGE, Containerd, running_containerd
from tests.peers.cri import Cri, container_config, pod_config, remove_pod
from tests.peers.katahost import (
    MODE_ANNOTATION,
    OVERHEAD,
    PASSED_ON,
    KataOptions,
    KataSandbox,
    KataSize,
    kata_cgroups_as_before,
    kata_sizes,
    processes,
    write_kata,
)
from tests.peers.nriside import Record, text

MEMORY_MIB = 64
REQUEST_MIB = 96
VCPUS = 2
UNIFIED = (CGROUP_ROOT / "cgroup.procs").exists()
HANDLERS = {"kata": True, "kata-overhead": False}
"""Runtime handlers, and the mode in the configuration of each."""
GROWS, LEAST_MIB = "kata-grows", 256
"""A handler that takes sizes by annotation, and the memory of its VM, below which Kata takes none."""
LEFT = UNIFIED
"""Kata moves processes to the pod's cgroup before it removes the sandbox's; with cgroup v2 that may be refused."""


@pytest.fixture(name="containerd", scope="module")
def _containerd() -> Iterator[Containerd]:
    """One containerd with both handlers; each VM uses its whole memory."""
    with tempfile.TemporaryDirectory(prefix="ctd") as folder, kata_cgroups_as_before():
        kata = {
            name: write_kata(
                Path(folder) / name, KataOptions(only, VCPUS, MEMORY_MIB, prealloc=True, named_threads=True)
            )
            for name, only in HANDLERS.items()
        }
        kata[GROWS] = write_kata(Path(folder) / GROWS, KataOptions(True, 1, LEAST_MIB, enabled=("default_.*",)))
        with running_containerd(Path(folder), handlers=kata, annotations=(PASSED_ON,)) as runtime:
            yield runtime


@contextmanager
def running_pod(
    containerd: Containerd, cri: Cri, handler: str, annotations: Record
) -> Iterator[tuple[str, KataSandbox]]:
    pod = pod_config(handler, containerd.cgroup_parent, containerd.folder / "logs") | {"annotations": annotations}
    sandbox = text(cri.call("RunPodSandbox", {"config": pod, "runtime_handler": handler}), "pod_sandbox_id")
    try:
        container: Record = {"pod_sandbox_id": sandbox, "config": container_config("c", IMAGE), "sandbox_config": pod}
        cri.call("StartContainer", {"container_id": text(cri.call("CreateContainer", container), "container_id")})
        yield f"{containerd.cgroup_parent}/pod{handler}", KataSandbox.of(sandbox)
    finally:
        remove_pod(cri, sandbox)


def read(sandbox: str) -> VmReading:
    files, root = OsFiles(), str(CGROUP_ROOT)
    reader = Reader(files, trees(mounted(files, root), root), lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    try:
        return next(one for one in reader.read({}).readings if one.sandbox == sandbox)
    finally:
        reader.close()


def memory_bytes(path: str) -> int:
    file = f"{path.lstrip('/')}/memory.current" if UNIFIED else f"memory{path}/memory.usage_in_bytes"
    return int((CGROUP_ROOT / file).read_text())


@pytest.mark.parametrize(
    ("handler", "annotations", "only"),
    [
        pytest.param("kata", {}, True, id="sandbox cgroup only"),
        pytest.param("kata-overhead", {}, False, id="with an overhead cgroup"),
        pytest.param("kata", {MODE_ANNOTATION: "false"}, False, id="the pod's annotation against the configuration"),
    ],
)
def test_where_kata_puts_a_pod(containerd: Containerd, handler: str, annotations: Record, only: bool) -> None:
    with containerd.cri() as cri, running_pod(containerd, cri, handler, annotations) as (parent, pod):
        sandbox, overhead = f"{parent}/kata_{pod.id}", f"/{OVERHEAD}/{pod.id}"
        vmm = sandbox if only or UNIFIED else overhead
        assert (pod.shim_in(), pod.vmm_in(), pod.vcpus_in()) == ([sandbox if only else overhead], [vmm], [sandbox])
        reading = read(pod.id)
        assert (reading.vmm, reading.vm_memory, reading.vm_vcpus) == ("qemu", MEMORY_MIB << 20, VCPUS)
        assert [(one.pid, one.cgroup) for one in reading.of(TaskRole.SHIM)] == [(pod.shim, pod.shim_in()[0])]
        assert [(one.pid, one.cgroup) for one in reading.of(TaskRole.VMM)] == [(pod.vmm, vmm)]
        assert [one.cpu_cgroup for one in reading.of(TaskRole.VCPU)] == [sandbox] * VCPUS
        if UNIFIED:  # Kata passes on no memory controller, so neither cgroup has one
            assert not (CGROUP_ROOT / vmm.lstrip("/") / "memory.current").exists()
        else:
            assert memory_bytes(vmm) > MEMORY_MIB << 20
    until(lambda: processes(pod.id) == [], "end of its processes")
    assert LEFT or _named(pod.id) == []


def _named(word: str) -> list[str]:
    """The cgroups with this in their names. Others come and go meanwhile, which `os.walk` bears."""
    walks = (os.walk(root) for root in hierarchies())
    return [f"{above}/{name}" for walk in walks for above, names, _ in walk for name in names if word in name]


IN_ETC = 'mount -t overlay overlay -o "lowerdir=$0:/etc" /etc && exec "$@"'
"""Nodeward finds containerd's configuration there, and nobody else does."""


def started(
    containerd: Containerd, folder: Path, handler: str, sizing: str, resources: Record, within: Sequence[str] = ()
) -> tuple[list[str], str, dict[str, str]]:
    """The first words of `-smp` and `-m` of the VM that Kata starts for a pod that requests a CPU and REQUEST_MIB,
    behind a relay and beside a daemon that knows the pod; the sandbox, and the annotations that Kata was passed."""
    app = ContainerSpec("c", cpu_m=1000, memory_request=REQUEST_MIB << 20)
    spec = PodSpec(PodUid(f"uid-{handler}"), "default", handler, (app,))
    settings, listen = folder / "nodeward.yaml", folder / "cri.sock"
    (folder / "state").mkdir()
    Path(last_known.FILE.path_in(f"{folder}/state")).write_bytes(
        last_known.FILE.encode(last_known.Remembered((spec,), 1_700_000_000 * 10**9))
    )
    settings.write_text(
        f"run_dir: {folder}/run\nstate_dir: {folder}/state\nnri: {{enabled: false}}\nkube: {{enabled: false}}\n"
        f"limits: {{mode: off}}\nsizing: {sizing}\n"
    )
    pod = pod_config(handler, containerd.cgroup_parent, containerd.folder / "logs")
    linux = pod["linux"]
    assert isinstance(linux, dict)
    linux["resources"] = resources
    with (
        relay_process(listen, containerd.cri_socket, "--config", str(settings), within=within),
        node_process(folder, within=within),
        Cri(listen, containerd.peer / "proto" / "cri.proto") as cri,
    ):
        wait_for(lambda: "daemon=answers" in log_of(listen), "a daemon")
        sandbox = text(cri.call("RunPodSandbox", {"config": pod, "runtime_handler": handler}), "pod_sandbox_id")
        try:
            vmm = Path(f"/proc/{KataSandbox.of(sandbox).vmm}/cmdline").read_bytes().decode().split("\0")
            passed: dict[str, str] = json.loads(containerd.ctr("containers", "info", sandbox).stdout)["Spec"][
                "annotations"
            ]
        finally:
            remove_pod(cri, sandbox)
    return [vmm[vmm.index(flag) + 1].split(",")[0] for flag in ("-smp", "-m")], sandbox, passed


def test_a_vm_is_started_with_what_its_pod_requests(containerd: Containerd, tmp_path: Path) -> None:
    resources: Record = {"cpu_shares": 1024, "cpu_period": 100_000}
    vm, sandbox, passed = started(containerd, tmp_path, "kata", "{mode: enforce, handlers: [kata]}", resources)
    assert kata_sizes([passed]) == [KataSize(1.0, REQUEST_MIB)]
    kata = Handler("kata", static=True, default_vcpus_m=VCPUS * 1000, default_memory=MEMORY_MIB << 20)
    sent = HostShare(CpuRecord(1024, 100_000, 100_000), REQUEST_MIB << 20)
    ours = size(VmReading(SandboxId(sandbox), 0), kata, Profile.KATA_GO, asked=sent)
    assert (ours.vcpus, ours.memory) == (VCPUS + 1, (MEMORY_MIB + REQUEST_MIB) << 20)
    assert vm == [str(ours.vcpus), f"{MEMORY_MIB + REQUEST_MIB}M"]


def test_a_vm_that_grows_is_started_with_what_its_pod_requests(containerd: Containerd, tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    (etc / "containerd").mkdir(parents=True)
    said = (containerd.folder / GROWS / "configuration.toml").read_text()
    (etc / "kata.toml").write_text(said.replace("resource_mgmt = true", "resource_mgmt = false"))
    (etc / "containerd" / "config.toml").write_text(
        f"[plugins.cri.containerd.runtimes.{GROWS}]\nruntime_type = 'io.containerd.kata.v2'\n"
        f"pod_annotations = ['{PASSED_ON}']\noptions = {{ConfigPath = '{etc}/kata.toml'}}\n"
    )
    within = ("unshare", "-m", "sh", "-c", IN_ETC, str(etc))
    vm, _, _ = started(containerd, tmp_path, GROWS, "{mode: enforce}", {}, within)
    most = str(min(2, os.cpu_count() or 1))
    assert vm == [most, f"{LEAST_MIB + REQUEST_MIB}M"], "no more CPUs than the machine has"
