"""Who mounts a pod's volumes, its host or its guest: what is asked of the Pod API, and what it answers.

Texts are empty and numbers 0 where there is nothing to say. `owner` is HOST or GUEST.
"""

from dataclasses import dataclass
from typing import Final

HOST: Final = "HOST"
GUEST: Final = "GUEST"
BLOCK: Final = "block"
NFS: Final = "nfs"


@dataclass(frozen=True, slots=True)
class OfferedVolume:
    """A volume that a runtime could mount in its guest."""

    volume: str
    """Its name in the pod's spec."""
    path: str = ""
    """The mount's source as the container has it. Without it the host cannot be told, and stays the owner."""
    capabilities: tuple[str, ...] = ()
    """How the guest can get it: block, nfs, virtiofs. Other words are ignored."""
    fs: tuple[str, ...] = ()
    """The guest's file systems; empty for any."""


@dataclass(frozen=True, slots=True)
class OfferVolumesRequest:
    """A runtime offers to mount these."""

    pod_uid: str
    sandbox: str
    volumes: tuple[OfferedVolume, ...]


@dataclass(frozen=True, slots=True)
class VolumeOffer:
    """Who is to mount one volume."""

    volume: str
    owner: str
    why: str
    lease_s: int = 0
    """GUEST until then, unless it is confirmed; 0 where it is confirmed, or where the host is the owner."""
    firm: bool = False
    held_by: str = ""
    """The sandbox that has it instead."""


@dataclass(frozen=True, slots=True)
class OfferVolumesResponse:
    """One offer for each volume that was asked for, in that order."""

    pod_uid: str
    sandbox: str
    offers: tuple[VolumeOffer, ...]


@dataclass(frozen=True, slots=True)
class ConfirmVolumeRequest:
    """The guest mounts the volume; or, with `release`, it does not or no longer."""

    pod_uid: str
    sandbox: str
    volume: str
    release: bool = False


@dataclass(frozen=True, slots=True)
class ConfirmVolumeResponse:
    """Who mounts it from now on."""

    volume: str
    owner: str
    why: str


@dataclass(frozen=True, slots=True)
class ListVolumeClaimsRequest:
    """Which claims: of a path, of a pod, or all."""

    path: str = ""
    pod_uid: str = ""


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A volume that a guest has, or is offered."""

    volume: str
    path: str
    namespace: str
    pod: str
    pod_uid: str
    sandbox: str
    claim_name: str
    """Of the PersistentVolumeClaim."""
    firm: bool
    lease_s: int
    by: str
    """Who said so: `OfferVolumes`, `ConfirmVolume`, `HoldVolume` of the host, or `mountInfo.json` where Kata's shim has
    recorded itself."""
    holder: str = ""
    """Who on the host is mounting it."""


@dataclass(frozen=True, slots=True)
class HoldVolumeRequest:
    """Somebody on the host is about to mount the volume at `path`, or asks for more time; or, with `release`, it is
    done."""

    path: str
    holder: str
    """Any name that no other on the host has, such as a driver's with its process id."""
    release: bool = False


@dataclass(frozen=True, slots=True)
class HoldVolumeResponse:
    """Whether the holder has the volume; without it nothing may be mounted there."""

    path: str
    held: bool
    why: str
    lease_s: int = 0
    """Ask again within it, for as long as it takes."""
    held_by: str = ""
    """The sandbox, or the holder, that has it instead."""


@dataclass(frozen=True, slots=True)
class ListVolumeClaimsResponse:
    """The claims. While `complete` is false a volume that is not among them may be a guest's all the same."""

    claims: tuple[VolumeClaim, ...]
    complete: bool = True
    why: str = ""


@dataclass(frozen=True, slots=True)
class VolumeMount:
    """Where a container has the volume."""

    container: str
    read_only: bool = False
    sub_path: bool = False
    """By subPath or subPathExpr."""
    raw: bool = False
    """As a block device, without a file system."""
    shared: bool = False
    """Mounts made later pass between host and container (mountPropagation)."""


@dataclass(frozen=True, slots=True)
class SpecVolume:
    """A volume of a pod's spec."""

    name: str
    kind: str
    """The name of its source, such as secret or persistentVolumeClaim."""
    claim_name: str = ""
    medium: str = ""
    """Of an emptyDir."""
    mounts: tuple[VolumeMount, ...] = ()


@dataclass(frozen=True, slots=True)
class PodVolumeRow:
    """A volume for the section `volumes`."""

    name: str
    kind: str
    claim_name: str
    medium: str
    mounts: tuple[VolumeMount, ...]
    owner: str
    why: str
    """Why the host must mount it, or who has it."""
    sandbox: str = ""
    firm: bool = False
    lease_s: int = 0
