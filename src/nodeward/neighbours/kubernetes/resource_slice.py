"""What a ResourceSlice of a driver of ours says (resource.k8s.io/v1): the devices of this node. `owned` keeps it there.

One slice is the whole pool, so that a change of a capacity is one atomic update, and the generation of the pool stays.
Kubelet deletes every slice of its node when it begins, and a driver's 30 seconds after its last connection ended.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from nodeward.core.quantity import QuantityError, exact_units
from nodeward.neighbours.kubernetes.owned import Found, ObjectKind, Said

DROPPED = (
    "the API server drops a part of what is published, so a claim would be given a whole device, or one that is "
    "withheld: nothing is published. The feature gates DRAConsumableCapacity and DRADeviceTaints are on since "
    "Kubernetes 1.36; switch them on in kube-apiserver and kube-scheduler, or "
)


MOST = 253
"""Characters of a name."""


def slice_name(driver: str, node: str) -> str:
    """The slice's name: the same in every life of the daemon, so that there is never a second one."""
    whole = f"{node}-{driver}"
    return whole if len(whole) <= MOST else f"{hashlib.blake2b(whole.encode(), digest_size=16).hexdigest()}-{driver}"


def resource_slice(driver: str, node: str, setting: str) -> ObjectKind[str]:
    """The slice of a driver on this node; it is wanted as the JSON of its devices."""

    def said(devices: str) -> Said:
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        return {"spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": msgspec.json.decode(devices)}}

    return ObjectKind(
        "ResourceSlice",
        "resource.k8s.io/v1",
        "resourceslices",
        setting=setting,
        unserved="Kubernetes 1.34 or newer serves them",
        said=said,
        plain=_plain,
        dropped=DROPPED + setting,
    )


class _Capacity(Struct, frozen=True):
    value: str = "0"


class _Taint(Struct, frozen=True):
    effect: str = ""


class _Device(Struct, frozen=True):
    name: str = ""
    capacity: dict[str, _Capacity] | None = None
    taints: tuple[_Taint, ...] | None = None


class _Spec(Struct, frozen=True):
    devices: tuple[_Device, ...] | None = None


def sold(found: Found | None) -> Mapping[str, int] | None:
    """How much of each device the scheduler counts by, whoever has written the slice: its capacity, 0 for one that is
    withheld. None for a slice that cannot be read."""
    if found is None:
        return {}
    try:
        return dict(_sold(msgspec.json.decode(found.fields.get("spec", b"{}"), type=_Spec)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, QuantityError):
        return None


def to_be_sold(devices: str) -> Mapping[str, int]:
    """The same of devices that are about to be published."""
    return dict(_sold(_Spec(msgspec.json.decode(devices, type=tuple[_Device, ...]))))


def _sold(spec: _Spec) -> Iterator[tuple[str, int]]:
    for one in spec.devices or ():
        withheld = any(taint.effect == "NoSchedule" for taint in one.taints or ())
        yield one.name, 0 if withheld else sum([exact_units(of.value) for of in (one.capacity or {}).values()])


def _plain(_: str, spec: Any) -> Any:
    """Without the time that the API server adds to a taint, and with numbers for quantities, which it spells in its own
    way; a slice without devices has no field for them."""
    for device in spec.setdefault("devices", []):
        for taint in device.get("taints", ()):
            taint.pop("timeAdded", None)
        for capacity in device.get("capacity", {}).values():
            _number(capacity, "value")
            policy = capacity.get("requestPolicy", {})
            _number(policy, "default")
            policy["validValues"] = [exact_units(one) for one in policy.get("validValues", ())]
            for name in ("min", "step", "max"):
                _number(policy.get("validRange", {}), name)
    return spec


def _number(of: dict[str, Any], name: str) -> None:
    if isinstance(of.get(name), str):
        of[name] = exact_units(of[name])
