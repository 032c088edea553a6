"""VM sandboxes for people: the arithmetic, who chose the mode, where each part is, and why a figure is missing."""

from dataclasses import replace

import pytest

from nodeward.cli import sandbox_lines
from nodeward.engine.show.explain import explain
from nodeward.engine.show.sandbox_words import mode_sentence
from nodeward.engine.show.sandboxes import sandboxes_view
from nodeward.engine.show.view import node_view
from nodeward.engine.state.pods import KnownSandbox, KnownSpec, Pods
from nodeward.engine.state.root import State
from nodeward.engine.state.sandboxes import Sandboxes, Vm
from nodeward.model.events import SandboxStarted, VmsRead
from nodeward.model.sandbox_rows import SandboxesView, SandboxRow
from nodeward.model.sandboxes import (
    CgroupDriver,
    CgroupReading,
    Drift,
    Expected,
    Fit,
    Handler,
    Headroom,
    Measured,
    ModeSaid,
    Place,
    Profile,
    Task,
    TaskRole,
    Usage,
    VmReading,
    VmSize,
)
from nodeward.model.sandboxes_rule import SandboxesSettings
from nodeward.model.settings import EngineSettings, Mode
from nodeward.model.workload import PodUid, Sandbox, SandboxId
from tests.unit.engine.build import SECOND, Told, pod_spec, sandbox

MI = 1 << 20
POD, KATA, OVERHEAD = "/kubepods/podA", "/kubepods/podA/kata_s-A", "/kata_overhead/s-A"
FILE = "/etc/kata-containers/configuration.toml"
TASKS = (
    Task(TaskRole.VCPU, 11, 13, 5, cgroup=KATA, cpu_cgroup=KATA),
    Task(TaskRole.VCPU, 11, 12, 5, cgroup=KATA, cpu_cgroup=KATA),
    Task(TaskRole.SHIM, 10, 10, 5, cgroup=OVERHEAD, cpu_cgroup=OVERHEAD),
    Task(TaskRole.VMM, 11, 11, 5, cgroup="/system.slice", cpu_cgroup=OVERHEAD),
)
SPLIT = Vm(
    VmReading(
        SandboxId("s-A"),
        3 * SECOND,
        TASKS,
        (CgroupReading(Place.POD, POD, memory_limit=512 * MI, oom_kills=1), CgroupReading(Place.SANDBOX, KATA)),
        "k8s.io",
        "qemu",
        256 * MI,
        2,
    ),
    Profile.KATA_GO,
    ModeSaid(False, FILE),
    Expected(KATA, OVERHEAD, OVERHEAD, OVERHEAD, OVERHEAD, KATA),
    (Drift("elsewhere", "vmm", "/system.slice", OVERHEAD, 1),),
    VmSize(256 * MI, 2, "vmm"),
    Headroom(Fit.FITS, 512 * MI, 256 * MI, 180 * MI, "measured", 76 * MI),
    Usage(guest=100 * MI, vmm=80 * MI, shim=20 * MI, outside=200 * MI),
    {"shim": SECOND, "elsewhere": 2 * SECOND},
    (768 * MI, None),
)


def state(vm: Vm = SPLIT, mode: Mode = Mode.OBSERVE) -> State:
    box = replace(sandbox("A"), handler="kata-qemu")
    spec = replace(pod_spec("A"), runtime_class="kata", overhead_memory=160 * MI, overhead_cpu_m=250)
    return State(
        EngineSettings(sandboxes=SandboxesSettings(mode, samples=10)),
        Pods({PodUid("A"): KnownSpec(spec, 1)}, {box.id: KnownSandbox(box, 1)}, sandbox_of={box.pod_uid: box.id}),
        sandboxes=Sandboxes(
            {"kata-qemu": Handler("kata-qemu", only=False, only_from=FILE, fault="line 3: no value")},
            {box.id: vm},
            {"kata": Measured({100 * MI: 95, 200 * MI: 5}, {50: 99, 90: 1}, 100, 4)},
            version=1,
        ),
    )


def shown(vm: Vm = SPLIT) -> SandboxesView:
    found = sandboxes_view(state(vm), 5 * SECOND)
    assert found is not None
    return found


def row(vm: Vm = SPLIT) -> SandboxRow:
    return shown(vm).rows[0]


def test_explain_says_mode_places_verdict_and_cost() -> None:
    assert explain(node_view(state(), 5 * SECOND, {}), "shop/pod-A") == [
        "sandbox shop/pod-A: VM (qemu), runtime handler kata-qemu, kata-go.",
        f"  Mode: sandbox_cgroup_only false, by {FILE}.",
        f"  Pod's cgroup (pod below): {POD}",
        f"  shim: in {OVERHEAD} for 4 s",
        f"  vmm: in /system.slice, CPU in {OVERHEAD}",
        "  vcpu x2: in pod/kata_s-A",
        f"  Drift: vmm in /system.slice; it should be in {OVERHEAD} (for 3 s).",
        "  VM: 2 vCPU(s), memory 256Mi, by vmm.",
        "  Fit: limit 512Mi - VM 256Mi - overhead 180Mi (measured) = 76Mi left: fits.",
        "  Memory: unknown: a cgroup's memory could not be read, 200Mi of it outside the pod; guest RAM "
        "100Mi, VMM 80Mi, shim 20Mi; overhead 100Mi, declared 160Mi.",
        "  CPU: unknown: CPU use needs two readings.",
        "  Pod's limit: memory 768Mi by its containers and overhead, the kernel has 512Mi.",
        "  The kernel's OOM killer ended 1 process(es) in the pod's cgroup.",
    ]


def test_a_figure_that_is_missing_is_none_and_the_row_says_why() -> None:
    bare = row(Vm(VmReading(SandboxId("s-A"), 0)))
    figures = ("vm_memory", "memory", "guest_memory", "vmm_memory", "shim_memory", "overhead_memory", "cpu_m", "only")
    assert [getattr(bare, name) for name in figures] == [None] * len(figures)
    assert [name for name in figures if not bare.unknown.get(name)] == []
    assert bare.unknown["guest_memory"] == "no VMM process was found"
    assert "virtiofsd_memory" not in bare.unknown
    assert bare.fit.sentence == "unknown: the figures are not read yet"
    assert mode_sentence(bare) == "sandbox_cgroup_only unknown: line 3: no value"
    assert mode_sentence(row(replace(SPLIT, mode=ModeSaid(True, "/a\nb.toml")))).endswith("true, by /a\\u000ab.toml")


@pytest.mark.parametrize(
    ("headroom", "said"),
    [
        (Headroom(Fit.UNKNOWN, 512 * MI, None, 180 * MI, "measured"), "the size of its VM is not known"),
        (Headroom(Fit.UNKNOWN, 512 * MI, 256 * MI, MI, "measured", MI), "a limit above it could not be read"),
        (Headroom(Fit.UNLIMITED), "the pod's cgroup has no memory limit"),
        (Headroom(Fit.OUTSIDE, vm=256 * MI), "the VM's memory (256Mi) is not charged to the pod, so the pod's limit"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_verdict_without_arithmetic_says_why(headroom: Headroom, said: str) -> None:
    assert f"{headroom.fit.value}: {said}" in row(replace(SPLIT, headroom=headroom)).fit.sentence


def test_two_vms_in_one_pods_cgroup_are_counted_together_and_both_are_named() -> None:
    """As a pod has while a second sandbox of it starts: each fits alone, and the pod's limit does not hold both."""
    told = Told(State(EngineSettings(sandboxes=SandboxesSettings(Mode.OBSERVE))))
    boxes = [replace(sandbox("A"), id=SandboxId(one)) for one in ("s-A", "s-B")]

    def read(box: Sandbox, second: int, *there: Sandbox) -> None:
        inside = f"{POD}/{box.id}"
        tasks = tuple(replace(one, cgroup=inside, cpu_cgroup=inside, rss=40 * MI) for one in TASKS[2:])
        cgroups = (
            CgroupReading(Place.POD, POD, 200 * MI, 512 * MI),
            CgroupReading(Place.SANDBOX, inside, memory=100 * MI),
        )
        seen = VmReading(box.id, second * SECOND, tasks, cgroups, "k8s.io", "qemu", 256 * MI, 2, 0)
        told(VmsRead((seen,), 2, CgroupDriver.CGROUPFS, tuple(one.id for one in there) or None))

    for box in boxes:
        told(SandboxStarted(box))
    for second in (1, 2):
        for box in boxes:
            read(box, second)
    both = node_view(told.state, 2 * SECOND, {})
    read(boxes[0], 3, boxes[0])
    read(boxes[0], 4)

    assert both.sandboxes is not None
    lines = "\n".join(sandbox_lines.sandboxes(both.sandboxes))
    sum_ = "limit 512Mi - VM 256Mi - overhead 80Mi (measured) - 336Mi of the VM of s-B in the same pod"
    assert f"shop/pod-A (s-A): {sum_} = 160Mi too little: will be killed at 96Mi of guest memory" in lines
    assert "shop/pod-A (s-B): " in lines
    assert "In the same pod's cgroup: the VM of s-B." in "\n".join(explain(both, "shop/pod-A") or ())
    assert [row.memory for row in both.sandboxes.rows] == [100 * MI] * 2, "nothing is counted twice"
    alone = sandboxes_view(told.state, 4 * SECOND)
    assert alone is not None
    assert [(row.fit.fit, row.fit.others) for row in alone.rows] == [("fits", ())]


def test_a_sandbox_of_a_known_pod_comes_before_one_that_no_runtime_told_of_which_is_found_by_its_id() -> None:
    now = state(replace(SPLIT, drifts=tuple(Drift("elsewhere", "io", f"/{n}", KATA, 1) for n in range(9))))
    vms = {SandboxId("forged"): SPLIT, **now.sandboxes.vms}
    view = node_view(replace(now, sandboxes=replace(now.sandboxes, vms=vms)), 5 * SECOND, {})
    assert view.sandboxes is not None
    assert [one.id for one in view.sandboxes.rows] == ["s-A", "forged"]
    assert (explain(view, "forg") or [""])[0].startswith("sandbox forged: VM")
    assert explain(view, "for") is None
    lines = [line for line, _ in sandbox_lines.status(view)]
    assert lines[0].startswith("sandboxes observe | 2 VM sandbox(es)")
    assert (len(lines), lines[-1].startswith("... and ")) == (7, True)
    assert sandbox_lines.status(node_view(state(mode=Mode.OFF), 0, {})) == []


def test_the_table_has_a_line_for_each_sandbox_then_what_is_wrong() -> None:
    assert list(sandbox_lines.sandboxes(shown())) == [
        "sandboxes observe | 1 VM sandbox(es): 1 fits | 1 with drift",
        "POD         HANDLER    ONLY          VMM   VM     LIMIT  MEMORY  OVERHEAD  CPU  FIT   ELSEWHERE",
        "shop/pod-A  kata-qemu  false (file)  qemu  256Mi  512Mi  ?       100Mi     ?    fits  vmm",
        "charged to no pod: memory 200Mi, CPU unknown: it is not known of every sandbox yet; to cover it, raise "
        "kubelet's system-reserved by memory 220Mi, CPU unknown: it is not known of every sandbox yet; "
        "processes in a wrong place are in it: mend that first",
        "shop/pod-A: the kernel's OOM killer ended 1 process(es) in the pod's cgroup",
        f"shop/pod-A: vmm in /system.slice; it should be in {OVERHEAD}",
        "runtime handler kata-qemu: line 3: no value",
    ]


def test_a_class_has_what_was_measured_declared_and_recommended() -> None:
    assert list(sandbox_lines.classes(shown()))[:4] == [
        "CLASS  SAMPLES  SANDBOXES          P50    P95    P99    DECLARED  RECOMMENDED",
        "kata   100      4          memory  100Mi  100Mi  200Mi  160Mi     220Mi",
        "                           cpu     50m    50m    50m    250m      60m",
        "kata: the 99th percentile of 100 samples of 4 sandboxes, and 10 % more",
    ]
