"""Checkpoints of devices as kubelet writes them."""

import json
import zlib
from collections.abc import Mapping, Sequence

import msgspec

from nodeward.neighbours.kubelet.checkpoint_file import Data, checksum


def claims(pods: Mapping[str, Sequence[str] | None], driver: str = "d.io") -> bytes:
    """Kubelet's checkpoint of claims: UIDs of pods by NAMESPACE/NAME of a claim, whose own UID is that of its first
    pod."""
    rows: list[dict[str, object]] = [
        {
            "ClaimUID": next(iter(uids or ()), f"c-{number}"),
            "ClaimName": claim.partition("/")[2],
            "Namespace": claim.partition("/")[0],
            "PodUIDs": None if uids is None else {uid: {} for uid in uids},
            "DriverState": {driver: {"Devices": [{"PoolName": "p", "DeviceName": "d"}]}},
        }
        for number, (claim, uids) in enumerate(pods.items())
    ]
    data = json.dumps({"kind": "DRACheckpoint", "ClaimInfoStateList": rows})
    return json.dumps({"Data": data, "Checksum": zlib.crc32(data.encode())}).encode()


def entry(
    uid: object, ids: object, resource: str, container: str = "compute", answer: str | None = "c2VjcmV0"
) -> dict[str, object]:
    names = ("PodUID", "ContainerName", "ResourceName", "DeviceIDs", "AllocResp")
    return dict(zip(names, (uid, container, resource, ids, answer), strict=True))


def file(entries: Sequence[dict[str, object]] | None, registered: object = None) -> bytes:
    data = {"PodDeviceEntries": entries, "RegisteredDevices": registered}
    try:
        total = checksum(msgspec.json.decode(json.dumps(data), type=Data))
    except msgspec.ValidationError:
        total = 0
    return json.dumps({"Data": data, "Checksum": total, "BootID": "b"}).encode()
