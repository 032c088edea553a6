"""The size of a VM by our sum, and by Kata's own Go library, for what the relay sends and for odd amounts."""

import math
from itertools import product

from nodeward.engine.sandboxes import sizing
from nodeward.engine.sandboxes.size import size
from nodeward.model.sandboxes import Handler, Profile, VmReading
from nodeward.model.workload import CpuRecord, HostShare, SandboxId
from tests.peers.katahost import KataSize, kata_sizes
from tests.unit.engine.sandboxes.test_sizing import KATA, MOST, ROWS

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
    """What containerd makes of it."""
    keys = {"cpu-quota": sent.cpu.quota, "cpu-period": sent.cpu.period, "memory": sent.memory}
    return {f"io.kubernetes.cri.sandbox-{key}": str(value) for key, value in keys.items()}


def ours(sent: HostShare) -> tuple[int | None, int | None]:
    found = size(VmReading(SandboxId("s"), 0), HANDLER, Profile.KATA_GO, asked=sent)
    return found.vcpus, found.memory


def theirs(found: KataSize) -> tuple[int, int]:
    return math.ceil(BASE_M / 1000 + found.cpus), BASE + found.memory_mib * MIB


def test_our_sum_is_katas() -> None:
    decided = [sizing.sized(asked, spec, KATA, rule, MOST) for asked, spec, rule, _ in ROWS.values()]
    sent = [HostShare(CpuRecord(0, one.cpu_quota, one.cpu_period), one.memory_limit) for one in decided] + ODD
    assert [*map(ours, sent)] == [*map(theirs, kata_sizes([*map(annotations, sent)]))]
