"""The size of a VM by our sum, and by Kata's own Go library, for what the relay sends and for odd amounts."""

import math
import os
from dataclasses import replace
from itertools import product

from nodeward.core.annotations import KATA_QUEUES, KATA_SIZES
from nodeward.core.vms import Handler, Profile, Room, Sized, VmReading
from nodeward.core.workload import CpuRecord, HostShare, SandboxId
from nodeward.features.sandboxes import sizing
from nodeward.features.sandboxes.size import CPU_M, size
from tests.peers.katahost import KataSize, kata_sizes, kata_vms
from tests.unit.features.sandboxes.test_sizing import KATA, MOST, ROWS

MIB = 1 << 20
BASE_M, BASE = 1000, 64 * MIB
HANDLER = Handler("kata", profile=Profile.KATA_GO, static=True, default_vcpus_m=BASE_M, default_memory=BASE)
ODD = [
    HostShare(CpuRecord(2, quota, period), memory)
    for quota, period, memory in product(
        (0, 1, 99_999, 100_000, 220_000), (50_000, 100_000), (0, MIB - 1, (1 << 30) + 1)
    )
]


def annotations(sent: HostShare) -> dict[str, str]:
    keys = {"cpu-quota": sent.cpu.quota, "cpu-period": sent.cpu.period, "memory": sent.memory}
    return {f"io.kubernetes.cri.sandbox-{key}": str(value) for key, value in keys.items()}


def ours(sent: HostShare) -> tuple[int | None, int | None]:
    found = size(VmReading(SandboxId("s"), 0), HANDLER, Profile.KATA_GO, asked=sent)
    return found.vcpus, found.memory


def decided(handler: Handler, most: Room = MOST) -> list[Sized]:
    return [sizing.sized(asked, spec, handler, rule, most) for asked, spec, rule, _ in ROWS.values()]


def theirs(found: KataSize) -> tuple[int, int]:
    return math.ceil(BASE_M / 1000 + found.cpus), BASE + found.memory_mib * MIB


GROWS = replace(
    HANDLER,
    runtime_type="io.containerd.kata.v2",
    static=False,
    default_memory=256 * MIB,
    enable_annotations=("default_vcpus", "default_memory"),
    passes=("io.katacontainers.*",),
)


def test_kata_makes_of_our_annotations_what_we_say() -> None:
    vcpus, memory = KATA_SIZES
    here = len(os.sched_getaffinity(0))
    most = Room(here * CPU_M, 1 << 40)
    sent = [one.annotations for one in decided(GROWS, most)]
    assert {tuple(one) for one in sent} >= {(), (memory,), (vcpus, memory)}
    ours = [size(VmReading(SandboxId("s"), 0), GROWS, Profile.KATA_GO, one) for one in sent]
    made = kata_vms(KataSize(BASE_M / CPU_M, 256), GROWS.enable_annotations, sent)
    assert made == [KataSize(one.vcpus or 0, (one.memory or 0) // MIB) for one in ours]
    odd = [{vcpus: str(here + 1)}, {memory: "255"}, {KATA_QUEUES[1]: "1"}]
    refused = kata_vms(KataSize(1, 256), GROWS.enable_annotations, odd)
    says = "greater than the number of CPUs", "less than minimum required 256", "is not enabled"
    assert [word in str(why) for word, why in zip(says, refused, strict=True)] == [True] * 3


def test_our_sum_is_katas() -> None:
    told = [HostShare(CpuRecord(0, one.cpu_quota, one.cpu_period), one.memory_limit) for one in decided(KATA)]
    assert [*map(ours, told + ODD)] == [*map(theirs, kata_sizes([*map(annotations, told + ODD)]))]
    crio = [one.annotations for one in decided(replace(KATA, runtime_type="vm"))]
    assert kata_sizes(crio) == kata_sizes([*map(annotations, told)])
