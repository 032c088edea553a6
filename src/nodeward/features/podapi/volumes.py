"""Decides who mounts a volume, the host or the guest, by offers with a lease. Claims and facts in, claims and answers
out.

Two mounts of one block device destroy its file system, so the host is the owner wherever anything is unknown. A guest
is offered a volume for LEASE_S; once it confirms, the claim is firm until its sandbox ends or it is released. A lease
that runs out falls back to the host, who may mount it at once: a late confirmation is refused. While the host mounts,
it has a lease too, of the path.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from nodeward.core.workload import PodUid, SandboxId
from nodeward.features.podapi.rows import (
    BLOCK,
    GUEST,
    HOST,
    NFS,
    ConfirmVolumeRequest,
    ConfirmVolumeResponse,
    HoldVolumeRequest,
    HoldVolumeResponse,
    OfferedVolume,
    SpecVolume,
    VolumeClaim,
    VolumeOffer,
)

LEASE_S: Final = 30
MAKING_S: Final = 300
"""How long a sandbox can be in the making: kubelet gives RunPodSandbox four minutes."""
MOST_CLAIMS: Final = 4096
"""On a node."""
_SECOND = 1_000_000_000
PVC: Final = "persistentVolumeClaim"
EPHEMERAL: Final = "ephemeral"
_WRITTEN = "kubelet writes it on the host, and again when it changes: the guest would not see that"
_HOST_KINDS: Mapping[str, str] = {
    "secret": _WRITTEN,
    "configMap": _WRITTEN,
    "projected": _WRITTEN,
    "downwardAPI": _WRITTEN,
    "hostPath": "it is a folder of the host, which others on the host use",
}
_GUEST_KINDS = (PVC, EPHEMERAL, "csi", "emptyDir")
CONFIRMED: Final = "this sandbox has confirmed it"
_ASKS_NOBODY = "kubelet or the runtime mounts this kind by itself and asks nobody whose it is"


@dataclass(frozen=True, slots=True)
class VolumeHold:
    """A volume that a sandbox has (`ends_ns` 0) or is offered."""

    volume: str
    path: str
    namespace: str
    pod: str
    pod_uid: str
    sandbox: str
    claim_name: str
    ends_ns: int
    seen: bool = False
    """The runtime has told of the sandbox; without it a sandbox that is not known is only being made."""
    since_ns: int = 0
    """When it was offered, or confirmed."""
    holder: str = ""
    """Who on the host is mounting it; then there is no sandbox, and only time ends it."""


Claims = Mapping[str, VolumeHold]
"""By `key`: one volume has one claim at most."""


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """The pod as its spec has it."""

    uid: str
    namespace: str
    name: str
    volumes: tuple[SpecVolume, ...]


@dataclass(frozen=True, slots=True)
class Host:
    """What the host knows of one volume."""

    users: tuple[str, ...] = ()
    """Other pods of this node with the same claim, as NAMESPACE/NAME."""
    fs_type: str = ""
    """By Kata's mountInfo.json."""
    recorded: str = ""
    """The sandbox that has recorded itself there."""
    mounted: bool = False
    """Something is mounted at its path."""
    direct: bool = False
    """Kata's mountInfo.json is there."""
    unknown: str = ""
    """What could not be learned, and why."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Which sandboxes and pods there are."""

    sandboxes: Collection[str]
    ended: Collection[str] = ()
    listed: bool = False
    """All sandboxes of the runtime are in `sandboxes`."""
    alone: bool = False
    """Neither NRI nor a relay will ever tell of sandboxes."""
    pods: Collection[str] | None = None
    """UIDs; None while the API server does not answer."""
    sandbox_of: Mapping[PodUid, SandboxId] = field(default_factory=dict)
    by_cgroup: Collection[PodUid] = ()
    """Pods whose sandbox is known by its cgroup only: whichever it is, it lives."""


def key(namespace: str, uid: str, volume: SpecVolume) -> str:
    """What a claim is of: the PersistentVolumeClaim, which pods can share, else the pod's own volume."""
    return f"claim {namespace}/{volume.claim_name}" if volume.claim_name else f"pod {uid}/{volume.name}"


def kept(claims: Claims, standing: Standing, now_ns: int) -> Claims:
    """The claims without those that have ended: the lease ran out, or the sandbox is no more."""
    found: dict[str, VolumeHold] = {}
    for place, claim in claims.items():
        here = claim.sandbox in standing.sandboxes or bool(claim.holder)
        late = claim.ends_ns and not now_ns < claim.ends_ns <= now_ns + LEASE_S * _SECOND
        if late or (not here and _is_over(claim, standing, now_ns)):
            continue
        found[place] = replace(claim, seen=True) if here and not claim.seen else claim
    return found


def _is_over(claim: VolumeHold, standing: Standing, now_ns: int) -> bool:
    """Whether a sandbox that is not known has ended, or never began. Nothing but a word on sandboxes ends one; a
    pod can be deleted, or its next sandbox begin, while it lives."""
    uid = PodUid(claim.pod_uid)
    if claim.sandbox in standing.ended or uid in standing.by_cgroup:
        return claim.sandbox in standing.ended
    gone = standing.pods is not None and uid not in standing.pods
    if not standing.listed:
        return standing.alone and gone and not claim.seen
    followed = standing.sandbox_of.get(uid, claim.sandbox) != claim.sandbox
    return claim.seen or ((gone or followed) and now_ns - claim.since_ns >= MAKING_S * _SECOND)


def offered(
    claims: Claims, pod: PodVolumes, sandbox: str, asked: OfferedVolume, host: Host, standing: Standing, now_ns: int
) -> tuple[Claims, VolumeOffer]:
    """The claims after the offer, and the answer. Asked again, a lease begins anew and a firm claim stays."""
    volume = next((one for one in pod.volumes if one.name == asked.volume), None)
    if volume is None:
        return claims, VolumeOffer(asked.volume, HOST, "the pod's spec has no such volume")
    place = key(pod.namespace, pod.uid, volume)
    held = claims.get(place)
    if held is not None and held.sandbox == sandbox and not held.ends_ns:
        return claims, VolumeOffer(asked.volume, GUEST, CONFIRMED, firm=True)
    rest, other = dict(claims), None
    for where, claim in claims.items():
        if where != place and claim.path != asked.path:
            continue
        earlier = claim.pod_uid == pod.uid and claim.sandbox != sandbox and claim.sandbox not in standing.sandboxes
        if (earlier and claim.ends_ns) or (where == place and claim.sandbox == sandbox):
            del rest[where]  # a new sandbox of the pod follows one that has confirmed nothing
        else:
            other = claim
    if other is not None:
        return claims, VolumeOffer(asked.volume, HOST, _has(other, now_ns), held_by=other.sandbox or other.holder)
    why = host_only(pod, volume) or _unfit(asked, host, sandbox)
    if not why and len(rest) >= MOST_CLAIMS:
        why = f"{len(rest)} volumes of this node have a claim, which is the most"
    if why:
        return rest, VolumeOffer(asked.volume, HOST, why, held_by=host.recorded if host.recorded != sandbox else "")
    named = asked.volume, asked.path, pod.namespace, pod.name, pod.uid, sandbox, volume.claim_name
    lease = VolumeHold(*named, now_ns + LEASE_S * _SECOND, since_ns=now_ns)
    said = f"no other pod of this node uses it; confirm it within {LEASE_S} s"
    return {**rest, place: lease}, VolumeOffer(asked.volume, GUEST, said, LEASE_S)


def unknown(claims: Claims, pod_uid: str, sandbox: str, volume: str, why: str) -> VolumeOffer:
    """The answer while the pod, or who else uses its volumes, is not known: what was confirmed stays."""
    asked = ConfirmVolumeRequest(pod_uid, sandbox, volume)
    if any(is_of(one, asked) and not one.ends_ns for one in claims.values()):
        return VolumeOffer(volume, GUEST, CONFIRMED, firm=True)
    return VolumeOffer(volume, HOST, why)


def held(claims: Claims, asked: HoldVolumeRequest, host: Host, now_ns: int) -> tuple[Claims, HoldVolumeResponse]:
    """The claims with the host's lease of a path, or without it, and the answer. `claims` are without those that have
    ended."""
    place = f"host {asked.path}"
    mine = claims.get(place)
    own = mine is not None and mine.holder == asked.holder
    if asked.release:
        rest = {where: one for where, one in claims.items() if not own or where != place}
        return rest, HoldVolumeResponse(asked.path, False, "released" if own else "it had no lease")
    other = next((one for one in claims.values() if one.path == asked.path and one is not mine), None if own else mine)
    if other is not None:
        return claims, HoldVolumeResponse(asked.path, False, _has(other, now_ns), 0, other.sandbox or other.holder)
    why = host.unknown
    if host.recorded:
        why = f"sandbox {host.recorded} has recorded itself in its mountInfo.json"
    elif not why and host.direct:
        why = "it has a mountInfo.json, so its VM mounts it; `nodeward vms volume remove` takes that back"
    elif not why and not own and host.mounted:
        why = "it is mounted on the host already"
    elif not why and not own and len(claims) >= MOST_CLAIMS:
        why = f"{len(claims)} volumes of this node have a claim, which is the most"
    if why:
        return claims, HoldVolumeResponse(asked.path, False, why, 0, host.recorded)
    ends = now_ns + LEASE_S * _SECOND
    lease = VolumeHold("", asked.path, "", "", "", "", "", ends, since_ns=now_ns, holder=asked.holder)
    return {**claims, place: lease}, HoldVolumeResponse(asked.path, True, "", LEASE_S)


def _has(claim: VolumeHold, now_ns: int) -> str:
    left = f"for {left_s(claim, now_ns)} s more" if claim.ends_ns else ""
    if claim.holder:
        return f"{claim.holder} mounts it on the host, {left}"
    who = f"sandbox {claim.sandbox} of pod {claim.namespace}/{claim.pod}"
    return f"{who} is offered it {left}" if left else f"{who} has it"


def left_s(claim: VolumeHold, now_ns: int) -> int:
    """Whole seconds until the lease runs out, the last one counted whole; 0 for a firm claim."""
    return max(-((now_ns - claim.ends_ns) // _SECOND), 0) if claim.ends_ns else 0


def host_only(pod: PodVolumes, volume: SpecVolume) -> str:
    """Why the host must mount a volume, by the spec alone; empty where a guest could."""
    if volume.kind not in _GUEST_KINDS:
        return f"{volume.kind or 'its kind'}: {_HOST_KINDS.get(volume.kind, _ASKS_NOBODY)}"
    if volume.medium:
        return f"emptyDir with medium {volume.medium}: kubelet mounts it, and it counts against the pod's memory limit"
    if volume.kind == PVC and not volume.claim_name:
        return "the name of its PersistentVolumeClaim is not known"
    if not volume.mounts:
        return "no container mounts it"
    for mount in volume.mounts:
        if mount.sub_path:
            return f"container {mount.container} mounts a part of it (subPath), which kubelet prepares on the host"
        if mount.raw:
            return f"container {mount.container} has it as a raw device: there is nothing to mount"
        if mount.shared:
            return f"container {mount.container} shares mounts below it with the host (mountPropagation)"
    twin = next((one for one in pod.volumes if one is not volume and _same(one, volume)), None)
    return f"volume {twin.name} of this pod is the same claim {volume.claim_name}" if twin is not None else ""


def _same(one: SpecVolume, other: SpecVolume) -> bool:
    return bool(one.claim_name) and one.claim_name == other.claim_name


def _unfit(asked: OfferedVolume, host: Host, sandbox: str) -> str:
    """Why the guest cannot have it as things are on this host."""
    if not asked.path:
        return "no path was given: whoever mounts it could not be told"
    if BLOCK not in asked.capabilities and NFS not in asked.capabilities:
        return f"the runtime takes neither {BLOCK} nor {NFS}; by virtiofs the host mounts it"
    if host.unknown:
        return host.unknown
    if host.users:
        return f"pod {host.users[0]} on this node uses the same claim"
    if host.recorded and host.recorded != sandbox:
        return f"sandbox {host.recorded} has recorded itself in its mountInfo.json"
    if host.mounted:
        return "it is mounted on the host already"
    if host.fs_type and asked.fs and host.fs_type not in asked.fs:
        return f"its file system is {host.fs_type}, which the guest does not have"
    return ""


def confirmed(
    claims: Claims, pod: PodVolumes | None, asked: ConfirmVolumeRequest, host: Host, now_ns: int
) -> tuple[Claims, ConfirmVolumeResponse]:
    """The claims after a confirmation or a release. `claims` are without leases that ran out; without a lease, or with
    another user since the offer, the host is the owner."""
    found = [(where, one) for where, one in claims.items() if is_of(one, asked)]
    if not found:
        said = "it had no claim" if asked.release else "no lease of this sandbox, or it ran out: offer it again"
        return claims, ConfirmVolumeResponse(asked.volume, HOST, said)
    place, claim = found[0]
    rest = {where: one for where, one in claims.items() if where != place}
    if asked.release:
        return rest, ConfirmVolumeResponse(asked.volume, HOST, "released")
    if not claim.ends_ns:
        return claims, ConfirmVolumeResponse(asked.volume, GUEST, "it was confirmed before")
    volume = next((one for one in pod.volumes if one.name == asked.volume), None) if pod is not None else None
    now = OfferedVolume(asked.volume, claim.path, (BLOCK,))
    why = host.unknown or "the pod's spec has no such volume"
    if pod is not None and volume is not None:
        why = host_only(pod, volume) or _unfit(now, host, asked.sandbox)
    if why:
        return rest, ConfirmVolumeResponse(asked.volume, HOST, f"since the offer: {why}")
    return {**rest, place: replace(claim, ends_ns=0, since_ns=now_ns)}, ConfirmVolumeResponse(
        asked.volume, GUEST, "confirmed"
    )


def is_of(claim: VolumeHold, asked: ConfirmVolumeRequest) -> bool:
    """Whether the claim is the one that is confirmed or released."""
    return (claim.pod_uid, claim.sandbox, claim.volume) == (asked.pod_uid, asked.sandbox, asked.volume)


def _by(claim: VolumeHold) -> str:
    return "HoldVolume" if claim.holder else "OfferVolumes" if claim.ends_ns else "ConfirmVolume"


def is_hold(claim: VolumeHold, asked: HoldVolumeRequest) -> bool:
    """Whether the claim is this lease of the host."""
    return (claim.holder, claim.path) == (asked.holder, asked.path)


def listed(claims: Claims, path: str, pod_uid: str, now_ns: int) -> tuple[VolumeClaim, ...]:
    """The claims of that path and pod, by pod and volume; empty texts for any."""
    found = [
        VolumeClaim(
            *(one.volume, one.path, one.namespace, one.pod, one.pod_uid, one.sandbox, one.claim_name),
            *(not one.ends_ns, left_s(one, now_ns), _by(one), one.holder),
        )
        for one in claims.values()
        if path in ("", one.path) and pod_uid in ("", one.pod_uid)
    ]
    return tuple(sorted(found, key=lambda one: (one.namespace, one.pod, one.volume)))
