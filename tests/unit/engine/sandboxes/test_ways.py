"""By which way a handler learns the size of a VM, and what is sent by it."""

from dataclasses import replace

import pytest

from nodeward.engine.sandboxes import sizing, ways
from nodeward.engine.sandboxes.size import MIB
from nodeward.model.annotations import CRI_SIZES, KATA_QUEUES, KATA_SIZES
from nodeward.model.sandboxes import Handler, Profile
from nodeward.model.sizing import Room, Sized, SizingSettings, Way
from nodeward.model.workload import HostShare, PodSpec
from tests.unit.engine.sandboxes.test_sizing import MOST, RULE, kubelet, one, pod

VCPUS, MEMORY = KATA_SIZES
GO = Handler(
    "kata",
    "io.containerd.kata.v2",
    Profile.KATA_GO,
    "/etc/kata.toml",
    static=True,
    default_vcpus_m=1000,
    default_memory=2048 * MIB,
    enable_annotations=(".*",),
    passes=("io.katacontainers.*",),
)
GROWS = replace(GO, static=False)
RS = replace(GO, profile=Profile.KATA_RS, overhead_vcpus_m=200, overhead_memory=32 * MIB)
REQUESTS = kubelet(3000), pod(one(3000, request=512 * MIB))
"""What kubelet sends of a pod that requests 3 CPUs and 512 MiB and has no limit, and its spec."""


@pytest.mark.parametrize(
    ("handler", "way"),
    [
        pytest.param(GO, Way.RESOURCES, id="fixed size"),
        pytest.param(replace(GO, enable_annotations=(), passes=()), Way.RESOURCES, id="fixed size, no annotations"),
        pytest.param(replace(GO, runtime_type="vm", passes=()), Way.KEYS, id="fixed size, CRI-O"),
        pytest.param(replace(RS, serves=True), Way.KEYS, id="fixed size, the shim serves the sandbox"),
        pytest.param(GROWS, Way.DEFAULTS, id="grows"),
        pytest.param(replace(GROWS, runtime_type="vm", passes=()), Way.DEFAULTS, id="grows, CRI-O"),
        pytest.param(replace(GROWS, passes=()), Way.NONE, id="grows, not handed on"),
        pytest.param(replace(GROWS, enable_annotations=("default_vcpus",)), Way.NONE, id="grows, half allowed"),
    ],
)
def test_way(handler: Handler, way: Way) -> None:
    assert ways.way(handler) is way
    assert bool(sizing.why_not("kata", handler, RULE)) is (way is Way.NONE)


def sized(
    handler: Handler, asked: HostShare, spec: PodSpec | None, most: Room = MOST, rule: SizingSettings = RULE, **own: str
) -> Sized:
    notes = {key: own[name] for key in (VCPUS, MEMORY, *KATA_QUEUES) if (name := key.rpartition(".")[2]) in own}
    return sizing.sized(asked, spec, handler, rule, most, own=notes)


HALF = kubelet(3000, 1000, 256 * MIB), pod(one(1000, 1000, 256 * MIB, 256 * MIB), one(2000, request=256 * MIB))


@pytest.mark.parametrize(
    ("handler", "pods", "most", "sent"),
    [
        pytest.param(GROWS, REQUESTS, MOST, ("4", "2560"), id="requests on top of the defaults"),
        pytest.param(GROWS, HALF, MOST, ("3", "2304"), id="limits come with the containers"),
        pytest.param(GROWS, (kubelet(2500), pod(one(2500))), MOST, ("4", None), id="whole vCPUs"),
        pytest.param(GROWS, REQUESTS, Room(2000, 2100 * MIB), ("2", "2100"), id="no more than the host has"),
        pytest.param(GROWS, REQUESTS, Room(1000, MIB), (None, None), id="the default is all there is"),
        pytest.param(GROWS, REQUESTS, Room(), (None, None), id="a host of unknown size"),
        pytest.param(GROWS, (kubelet(1, 1000), pod(one(1, 1000))), MOST, (None, None), id="limits only"),
        pytest.param(replace(GROWS, default_memory=None), REQUESTS, MOST, ("4", None), id="a default that is not told"),
        pytest.param(
            replace(GROWS, default_memory=64 * MIB),
            (kubelet(), pod(one(request=MIB))),
            MOST,
            (None, "256"),
            id="Kata Go's least memory",
        ),
        pytest.param(
            replace(RS, static=False, default_memory=32 * MIB),
            (kubelet(), pod(one(request=MIB))),
            MOST,
            (None, "64"),
            id="runtime-rs's least memory",
        ),
    ],
)
def test_defaults(
    handler: Handler, pods: tuple[HostShare, PodSpec], most: Room, sent: tuple[str | None, str | None]
) -> None:
    found = sized(handler, *pods, most)
    assert (found.annotations.get(VCPUS), found.annotations.get(MEMORY)) == sent
    assert (found.way, found.changes) == (Way.DEFAULTS, any(sent))
    assert (found.cpu_quota, found.memory_limit) == (pods[0].cpu.quota, pods[0].memory)


def test_a_pods_own_default_stands() -> None:
    found = sized(GROWS, *REQUESTS, default_vcpus="1")
    assert found.annotations == {MEMORY: "2560"}
    assert "own annotation stands" in sizing.told(REQUESTS[0], found)


CRIO_RS = replace(RS, runtime_type="vm")


@pytest.mark.parametrize(
    ("handler", "pods", "sent"),
    [
        pytest.param(CRIO_RS, REQUESTS, ("100000", "300000", str(512 * MIB)), id="requests"),
        pytest.param(
            replace(GO, runtime_type="vm"),
            (kubelet(1, 2000), pod(one(1, 2000))),
            ("100000", "200000", None),
            id="limits, which nobody else hands on",
        ),
        pytest.param(
            CRIO_RS,
            (kubelet(1, 2000), pod(one(1, 2000))),
            ("100000", "200000", str(2048 * MIB)),
            id="runtime-rs leaves its default of memory out",
        ),
        pytest.param(
            CRIO_RS,
            (kubelet(0, 0, MIB), pod(one(0, 0, MIB, MIB))),
            ("100000", "100000", str(MIB)),
            id="runtime-rs leaves its default of CPUs out",
        ),
        pytest.param(
            replace(CRIO_RS, default_memory=None),
            (kubelet(1, 2000), pod(one(1, 2000))),
            (None, None, None),
            id="a default that is not told",
        ),
        pytest.param(CRIO_RS, (kubelet(), pod(one())), (None, None, None), id="nothing requested"),
    ],
)
def test_keys(handler: Handler, pods: tuple[HostShare, PodSpec], sent: tuple[str | None, ...]) -> None:
    found = sized(handler, *pods)
    assert tuple(found.annotations.get(key) for key in CRI_SIZES) == sent
    assert (found.way, found.changes) == (Way.KEYS, any(sent))


QUEUES = SizingSettings(queues=True)


@pytest.mark.parametrize(
    ("handler", "pods", "number"),
    [
        pytest.param(RS, REQUESTS, "4", id="3.2 vCPUs"),
        pytest.param(RS, (kubelet(20_000, 20_000), None), "8", id="no more than 8"),
        pytest.param(RS, (kubelet(), pod(one())), None, id="one vCPU"),
        pytest.param(replace(RS, static=False), HALF, "4", id="a VM that grows, with what comes later"),
        pytest.param(CRIO_RS, REQUESTS, "4", id="by keys"),
        pytest.param(replace(RS, enable_annotations=()), REQUESTS, None, id="not allowed"),
        pytest.param(GO, REQUESTS, None, id="Kata Go"),
    ],
)
def test_queues(handler: Handler, pods: tuple[HostShare, PodSpec | None], number: str | None) -> None:
    found = sized(handler, *pods, rule=QUEUES)
    assert [found.annotations.get(key) for key in KATA_QUEUES] == [number, number]
    assert not any(key in sized(handler, *pods).annotations for key in KATA_QUEUES)
    own = sized(handler, *pods, rule=QUEUES, network_queues="2")
    assert KATA_QUEUES[0] not in own.annotations
