"""Kubelet's checkpoint of claims, `dra_manager_state`: which claims of which pods it has prepared.

Source: k8s.io/kubernetes 1.37, pkg/kubelet/cm/dra/state. Must not: do I/O.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Raw, Struct, field
from msgspec.json import Decoder

from nodeward.core.errors import WireError
from nodeward.neighbours.formats.kube_objects import decode_bounded

PLACE = "dra_manager_state"
"""Below kubelet's root folder."""
MAX_BYTES = 16 * 1024 * 1024
_WHAT = "kubelet's checkpoint of claims"


class _File(Struct, frozen=True):
    data: str = field(name="Data")
    checksum: int = field(name="Checksum")


class _Driver(Struct, frozen=True):
    """What a driver has answered; nothing before it has."""

    devices: tuple[Raw, ...] | None = field(name="Devices", default=None)


class _Claim(Struct, frozen=True):
    name: str = field(name="ClaimName")
    namespace: str = field(name="Namespace")
    uid: str = field(name="ClaimUID", default="")
    pods: dict[str, dict[str, str]] | None = field(name="PodUIDs", default=None)
    drivers: dict[str, _Driver] | None = field(name="DriverState", default=None)


class _Data(Struct, frozen=True):
    claims: tuple[_Claim, ...] | None = field(name="ClaimInfoStateList", default=None)


_FILES, _DATA = Decoder(_File), Decoder(_Data)


@dataclass(frozen=True, slots=True)
class KubeletClaim:
    """A claim that kubelet prepares, has prepared, or has still to take back. `drivers`: those that have answered."""

    uid: str
    namespace: str
    name: str
    pods: tuple[str, ...]
    drivers: tuple[str, ...]

    @property
    def title(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"


def decode(data: bytes) -> tuple[KubeletClaim, ...]:
    """Every claim; WireError for a torn, foreign or too large file."""
    file = decode_bounded(_FILES, data, _WHAT, MAX_BYTES)
    inner = file.data.encode("utf-8", "surrogatepass")
    if zlib.crc32(inner) != file.checksum:
        raise WireError(_WHAT, "Checksum is not that of Data: torn, or written by an unknown kubelet")
    return tuple(
        KubeletClaim(
            one.uid,
            one.namespace,
            one.name,
            tuple(one.pods or ()),
            tuple(name for name, driver in (one.drivers or {}).items() if driver.devices),
        )
        for one in decode_bounded(_DATA, inner, _WHAT, MAX_BYTES).claims or ()
    )


def pods_by_claim(data: bytes) -> Mapping[str, tuple[str, ...]]:
    """UIDs of the pods that have it, by NAMESPACE/NAME of a claim."""
    found: dict[str, dict[str, None]] = {}
    for one in decode(data):
        found.setdefault(one.title, {}).update(dict.fromkeys(one.pods))
    return {claim: tuple(uids) for claim, uids in found.items()}
