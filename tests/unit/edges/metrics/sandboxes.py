"""A picture of VM sandboxes of which everything is known, and one of which nothing is."""

from nodeward.model.sandbox_rows import (
    ClassRow,
    DriftRow,
    FitRow,
    HandlerRow,
    Percentiles,
    SandboxesView,
    SandboxRow,
)

MIB = 1 << 20
KNOWN = SandboxRow(
    id="5ab1e",
    namespace="ns",
    pod="web",
    runtime_class="kata-qemu",
    handler="kata",
    profile="kata-go",
    vmm="qemu",
    only=False,
    only_from="annotation",
    drifts=(DriftRow("outside-pod", "it is outside"), DriftRow("elsewhere", "a"), DriftRow("elsewhere", "b")),
    vm_memory=2048 * MIB,
    vm_vcpus=3,
    fit=FitRow("will be killed", limit=2000 * MIB, left=-200 * MIB, killed_at=1800 * MIB),
    memory=700 * MIB,
    guest_memory=500 * MIB,
    guest_used=300 * MIB,
    vmm_memory=120 * MIB,
    shim_memory=40 * MIB,
    virtiofsd_memory=10 * MIB,
    overhead_memory=170 * MIB,
    outside_memory=45 * MIB,
    overhead_cpu_m=80,
    cpu_ns=9_500_000_000,
    vcpu_ns=9_000_000_000,
    oom_kills=2,
    declared_memory=160 * MIB,
    declared_cpu_m=250,
    limit_now=2000 * MIB,
    faults=("it could not be read",),
    age_ms=1500,
)
BARE = SandboxRow(id="d0cke7", limit_now=-1)
"""Only its id is known, and that its cgroup has no limit."""
SANDBOXES = SandboxesView(
    mode="observe",
    version=2,
    driver="systemd",
    rows=(KNOWN, BARE),
    handlers=(
        HandlerRow("kata", profile="kata-go", hypervisor="qemu", only=False),
        HandlerRow("kata-fc", fault="it is no TOML"),
    ),
    classes=(
        ClassRow(
            "kata-qemu",
            samples=600,
            memory=Percentiles(150 * MIB, 170 * MIB, 180 * MIB),
            cpu_m=Percentiles(40, 80, 120),
            declared_memory=160 * MIB,
            declared_cpu_m=250,
            recommended_memory=192 * MIB,
            recommended_cpu_m=150,
        ),
        ClassRow("new", samples=3),
    ),
    unaccounted_memory=45 * MIB,
    unaccounted_cpu_m=80,
    reserved_memory=64 * MIB,
    reserved_cpu_m=120,
    writes=4,
    misses={"/kubepods/podu": "EACCES"},
)
