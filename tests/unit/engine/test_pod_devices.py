"""Which devices of a pod may be handed on: whose they are, what resolves, what is one, and what contradicts."""

from dataclasses import replace

import pytest

from nodeward.engine.podapi.devices import judged
from nodeward.model.pod_devices import CdiDevice, CdiFault, DeviceKind, Evidence, Told, kind_of
from nodeward.model.workload import PodUid

UID, OTHER = PodUid("u-new"), PodUid("u-old")
PLUGIN, DRA = "a.b/nic", "shop/claim"
NIC, GPU, SAME = "a.b/nic=vf0", "c.d/gpu=g0", "c.d/nic=same"
NIC_AT, GPU_AT = "0000:01:00.0", "0000:02:00.0"
HOST = Evidence(
    devices={
        NIC: CdiDevice("/etc/cdi/a.json", ("/dev/vfio/1",), (NIC_AT,), (1,)),
        GPU: CdiDevice("/run/cdi/c.json", ("/dev/vfio/2",), (GPU_AT,)),
        SAME: CdiDevice("/run/cdi/c.json", ("/dev/vfio/1",), (NIC_AT,), (1,)),
    },
    holders={(PLUGIN, "vf0"): (UID,), ("a.b/key", "k7"): (UID,)},
    claims={DRA: (UID, "of a pod that shares it")},
)


def plugin(device: str = "vf0", resource: str = PLUGIN, container: str = "app") -> Told:
    return Told(container, DeviceKind.PLUGIN, resource, device, (f"{resource}={device}",), (0,))


def dra(*names: str, container: str = "app", device: str = "g0") -> Told:
    return Told(container, DeviceKind.DRA, DRA, f"d.io/pool/{device}", names)


@pytest.mark.parametrize(
    ("told", "handed"),
    [
        pytest.param([], {}, id="none"),
        pytest.param([plugin(), dra(GPU)], {"app": (NIC, GPU)}, id="one of each"),
        pytest.param([plugin("k7", "a.b/key"), dra(GPU)], {"app": (GPU,)}, id="an id that is no CDI device"),
        pytest.param([plugin(), dra(SAME)], {"app": (NIC,)}, id="one told by both"),
        pytest.param([dra(SAME), plugin(container="b")], {"app": (SAME,)}, id="one in two containers"),
        pytest.param([dra(GPU), dra(GPU, NIC, device="g1")], {"app": (GPU, NIC)}, id="kubelet 1.37 repeats names"),
        pytest.param([dra()], {}, id="a claim without CDI"),
    ],
)
def test_each_device_is_handed_on_once(told: list[Told], handed: dict[str, tuple[str, ...]]) -> None:
    found = judged(told, UID, HOST)
    assert (found.refused, found.handed()) == ("", handed)


def test_a_device_that_two_tell_of_is_one_with_both_sources_and_its_place() -> None:
    (found,) = judged([plugin(), dra(SAME)], UID, HOST).devices
    assert (found.paths, found.pci, found.numa) == (("/dev/vfio/1",), (NIC_AT,), (1,))
    plugins = "device-plugin a.b/nic", "CDI /etc/cdi/a.json", "its plugin says NUMA node 0"
    assert found.sources == (*plugins, "dra shop/claim", "CDI /run/cdi/c.json")
    assert (
        judged([plugin(), plugin(container="b")], UID, HOST).devices[1].left_out == f"handed on by another name, {NIC}"
    )


OVERLAP = replace(HOST, devices={**HOST.devices, GPU: CdiDevice("c", pci=(NIC_AT, GPU_AT))})


@pytest.mark.parametrize(
    ("told", "evidence", "why"),
    [
        (plugin(), replace(HOST, holders={(PLUGIN, "vf0"): (OTHER,)}), "it is of pod UID u-old by"),
        (plugin(), replace(HOST, holders={(PLUGIN, "vf0"): (OTHER, UID)}), "u-old, u-new"),
        (plugin(), replace(HOST, holders={}), "it is of no pod by kubelet's checkpoint of devices"),
        (plugin(), replace(HOST, holders_fault="/x: torn"), "whose it is cannot be read: /x: torn"),
        (dra(GPU), replace(HOST, claims={DRA: (OTHER,)}), "it is of pod UID u-old by"),
        (dra(GPU), replace(HOST, claims_fault="/y: No such file"), "/y: No such file"),
        (dra("gpu0"), HOST, "names a CDI device 'gpu0', which is no VENDOR/CLASS=DEVICE"),
        (dra("c.d/gpu=g\n0"), HOST, "which is no VENDOR/CLASS=DEVICE"),
        (dra("c.d/gpu=g9"), HOST, "no CDI spec has a device c.d/gpu=g9; the driver's specs must be in"),
        (plugin("k7", "a.b/key"), replace(HOST, faults=(CdiFault("/s", "torn"),)), "cannot be used: /s: torn"),
        (plugin("k7", "a.b/key"), replace(HOST, faults=(CdiFault("/s", "torn", "a.b/key"),)), "/s: torn"),
    ],
)
def test_what_is_anothers_or_cannot_be_known_is_refused_with_the_reason(
    told: Told, evidence: Evidence, why: str
) -> None:
    assert why in judged([told], UID, evidence).refused


def test_devices_that_overlap_in_part_are_refused() -> None:
    why = f"the CDI devices {NIC} and {GPU} both have PCI device {NIC_AT}, and are not the same device"
    assert judged([plugin(), dra(GPU)], UID, OVERLAP).refused == why


def test_a_spec_of_another_kind_that_cannot_be_used_does_not_matter() -> None:
    assert judged([plugin("k7", "a.b/key")], UID, replace(HOST, faults=(CdiFault("/s", "x", "z.z/y"),))).refused == ""


def test_without_a_known_pod_only_one_without_devices_is_answered() -> None:
    assert judged([], None, HOST).refused == ""
    assert "no pod of this name is known" in judged([plugin()], None, HOST).refused


@pytest.mark.parametrize("name", ["", "a.b/c", "a.b/c=", "a.b=c", "1a/b=c", "a.b/c=-d", "a/b=c=d", "a/b=" + "c" * 999])
def test_what_is_no_cdi_name(name: str) -> None:
    assert kind_of(name) == ""
