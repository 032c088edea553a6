"""Kubelet's checkpoint of claims (DRA): which pods have which ResourceClaim. Kubelet 1.34 and newer.

The file is kubelet's own (pkg/kubelet/cm/dra/state): JSON, whose `Data` is JSON again, with a CRC-32 of it. Promises:
input is bounded, unknown fields are passed over, and whatever is wrong is a WireError. Must not be written.
"""

import zlib
from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.json import Decoder

from nodeward.core.wire_errors import WireError
from nodeward.neighbours.formats.kube_objects import decode_bounded

PLACE = "dra_manager_state"
"""Below kubelet's root folder."""
MAX_BYTES = 16 * 1024 * 1024
_WHAT = "kubelet's checkpoint of claims"


class _File(Struct, frozen=True):
    data: str = field(name="Data")
    checksum: int = field(name="Checksum")


class _Claim(Struct, frozen=True):
    name: str = field(name="ClaimName")
    namespace: str = field(name="Namespace")
    pods: dict[str, dict[str, str]] | None = field(name="PodUIDs", default=None)


class _Data(Struct, frozen=True):
    claims: tuple[_Claim, ...] | None = field(name="ClaimInfoStateList", default=None)


_FILES, _DATA = Decoder(_File), Decoder(_Data)


def decode(data: bytes) -> Mapping[str, tuple[str, ...]]:
    """UIDs of the pods that have it, by NAMESPACE/NAME of a claim."""
    file = decode_bounded(_FILES, data, _WHAT, MAX_BYTES)
    inner = file.data.encode("utf-8", "surrogatepass")
    if zlib.crc32(inner) != file.checksum:
        raise WireError(_WHAT, "Checksum is not that of Data: torn, or written by an unknown kubelet")
    found: dict[str, dict[str, None]] = {}
    for one in decode_bounded(_DATA, inner, _WHAT, MAX_BYTES).claims or ():
        found.setdefault(f"{one.namespace}/{one.name}", {}).update(dict.fromkeys(one.pods or ()))
    return {claim: tuple(uids) for claim, uids in found.items()}
