"""Asks what the decision on a pod's volumes needs, and keeps the claims.

Firm claims, and leases of the host, are in a file of `run_dir` before they are answered, so a daemon that was killed
still knows what guests have mounted and what the host is mounting; a reboot ends these and the file. Leases of guests
are not: after a restart a runtime offers again. While the
file cannot be read, no guest is given a volume. Which sandboxes live is known by NRI, by cgroups and by the relay.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from nodeward.core.errors import NodewardError, RequestError, WireError
from nodeward.core.pulls import PullsView
from nodeward.core.vms import PodNetwork
from nodeward.core.workload import PodUid, SandboxId
from nodeward.features.podapi import view as show
from nodeward.features.podapi import volumes as rule
from nodeward.features.podapi.rows import (
    GUEST,
    HOST,
    ConfirmVolumeRequest,
    ConfirmVolumeResponse,
    HoldVolumeRequest,
    HoldVolumeResponse,
    ListVolumeClaimsRequest,
    ListVolumeClaimsResponse,
    OfferedVolume,
    OfferVolumesRequest,
    OfferVolumesResponse,
    PodVolumeRow,
    Section,
    SpecVolume,
    VolumeClaim,
    VolumeMount,
    VolumeOffer,
)
from nodeward.features.podapi.volumes import Claims, Host, PodVolumes, Standing, VolumeHold
from nodeward.features.root import State
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import GivenUpError, Lane, done_on
from nodeward.host.state_file import MIB, StateFile
from nodeward.neighbours.formats import cgroup_mounts
from nodeward.neighbours.kata import direct_volume
from nodeward.neighbours.kata import network as networks
from nodeward.neighbours.kata import volumes as direct

log = logging.getLogger(__name__)
T = TypeVar("T")
HOST_ROOT: Final = "/proc/1/root"
MOUNTS: Final = "/proc/1/mountinfo"
"""The host's view, from a container with the host's process ids too. Both need CAP_SYS_PTRACE."""
FACTS_S: Final = 4.0
"""For all that is asked before an answer."""
MOST_VOLUMES: Final = 64
"""In one request."""
_MOST_TEXT, _MOST_PATH, _MOST_WORDS = 253, 4096, 32
PATH_RULE: Final = f"path must be a clean absolute path of at most {_MOST_PATH} characters"
_AT_ONCE = 8
UNSEEN: Final = (
    "the daemon sees nothing at its path on the host; name the mount's source there, and give a daemon in a container "
    "the host's process ids (docs/pods.md)"
)
SPEC: Final = "the pod's spec and the claims of volumes"
FILE: Final = StateFile("volume-claims.json", dict[str, VolumeHold], "volume-claims", 8 * MIB)

LOOK_S: Final = 5.0
"""How often it is asked which sandboxes live, while there are claims."""

Relayed = Callable[[], Awaitable[tuple[PullsView | None, bool]]]
"""The sandboxes by the relay, None without an answer; and whether neither it nor NRI will ever tell."""
ReadPod = Callable[[PodUid], Awaitable[tuple[object, int]]]
"""A pod's redacted spec, and when it was read (nanoseconds since 1970). NodewardError where it cannot be had."""


class VolumeRequestError(RequestError):
    """A request that no rule can be applied to; each fault is a line."""


@dataclass(frozen=True, slots=True)
class _Fetched:
    """What a decision on a pod's volumes needs."""

    pod: PodVolumes
    users: Mapping[str, tuple[str, ...]]
    """By name of a PersistentVolumeClaim."""
    unknown: str = ""


class PodVolumeClaims:
    """The claims of this node. Belongs to the loop; `lane` is for files."""

    def __init__(
        self,
        state: Callable[[], State],
        read: ReadPod,
        files: HostFiles,
        lane: Lane,
        clock: Clock,
        run_dir: str,
        relayed: Relayed,
    ) -> None:
        self._known, self._read, self._files, self._lane, self._clock = state, read, files, lane, clock
        self._run_dir, self._file = run_dir, FILE.writer(files, run_dir)
        self._relayed = relayed
        self._told: PullsView | None = None
        self._alone = False
        self._claims: Claims = {}
        self._on_disk: Claims | None = None
        """What the file has; None for not known."""
        self._loaded, self._unread = False, ""
        self._saving = asyncio.Lock()

    async def run(self) -> None:
        """Keeps the claims and their file to the sandboxes that live, until cancelled."""
        while True:
            await self._load()
            if self._loaded and (self._claims or self._on_disk):
                await self._look()
                self._kept()
                try:
                    await self._save()
                except (OSError, GivenUpError) as error:
                    log.warning("volume-claims=not-kept path=%s error=%s", self._file.path, error)
            await self._clock.sleep(LOOK_S)

    async def offer(self, asked: OfferVolumesRequest) -> OfferVolumesResponse:
        """Who is to mount each volume. VolumeRequestError for a request that cannot be; all that is unknown makes the
        host the owner, and says so."""
        _check(asked.pod_uid, asked.sandbox, asked.volumes)
        await self._load()
        await self._look()
        host = await self._on_host(tuple(one.path for one in asked.volumes))
        why, found = await self._fetched(asked.pod_uid, asked.sandbox)
        claims, standing, now = self._kept()
        if found is None:
            owners = (rule.unknown(claims, asked.pod_uid, asked.sandbox, one.volume, why) for one in asked.volumes)
            return OfferVolumesResponse(asked.pod_uid, asked.sandbox, tuple(owners))
        offers = list[VolumeOffer]()
        for one in asked.volumes:
            its = _joined(host[one.path], found, one.volume)
            claims, offer = rule.offered(claims, found.pod, asked.sandbox, one, its, standing, now)
            offers.append(offer)
            log.info("volume=%s sandbox=%s offered=%s why=%r", one.volume, asked.sandbox, offer.owner, offer.why)
        self._claims = claims
        return OfferVolumesResponse(asked.pod_uid, asked.sandbox, tuple(offers))

    async def confirm(self, asked: ConfirmVolumeRequest) -> ConfirmVolumeResponse:
        """Makes a lease firm, or gives the volume back. A firm claim is on disk at return."""
        _check(asked.pod_uid, asked.sandbox, (OfferedVolume(asked.volume),))
        await self._load()
        await self._look()
        path = next((one.path for one in self._kept()[0].values() if rule.is_of(one, asked)), "")
        host = (await self._on_host((path,)))[path]
        why, found = ("", None) if asked.release else await self._fetched(asked.pod_uid, asked.sandbox)
        host = _joined(host, found, asked.volume) if found is not None else Host(unknown=why)
        before, _, now = self._kept()  # the lease may have run out meanwhile
        self._claims, answer = rule.confirmed(before, found.pod if found is not None else None, asked, host, now)
        if _firm(self._claims) != _firm(before):
            answer = await self._saved(asked, answer)
        log.info("volume=%s sandbox=%s owner=%s why=%r", asked.volume, asked.sandbox, answer.owner, answer.why)
        return answer

    async def _saved(self, asked: ConfirmVolumeRequest, answer: ConfirmVolumeResponse) -> ConfirmVolumeResponse:
        """The answer once the claims are on disk; without the disk no guest gets a volume."""
        try:
            await self._save()
        except (OSError, GivenUpError) as error:
            log.warning("volume-claim=not-kept path=%s error=%s", self._file.path, error)
            if answer.owner == GUEST:
                self._claims = {where: one for where, one in self._claims.items() if not rule.is_of(one, asked)}
                why = f"the claim could not be written to {self._file.path}: {error}; mend that and offer it again"
                return ConfirmVolumeResponse(asked.volume, HOST, why)
        return answer

    async def hold(self, asked: HoldVolumeRequest) -> HoldVolumeResponse:
        """Gives the host a lease while it mounts, which is on disk at return; or takes it back."""
        if not _is_path(asked.path):
            raise VolumeRequestError(PATH_RULE)
        if not _is_name(asked.holder):
            raise VolumeRequestError(f"holder must be 1 to {_MOST_TEXT} printable characters")
        await self._load()
        await self._look()
        host = (await self._on_host((asked.path,)))[asked.path]
        before, _, now = self._kept()
        if self._unread:
            return HoldVolumeResponse(asked.path, False, self._unread)
        self._claims, answer = rule.held(before, asked, host, now)
        try:
            await self._save()
        except (OSError, GivenUpError) as error:
            log.warning("volume-lease=not-kept path=%s error=%s", self._file.path, error)
            if answer.held:
                rest = {where: one for where, one in self._claims.items() if not rule.is_hold(one, asked)}
                self._claims = rest | {where: one for where, one in before.items() if rule.is_hold(one, asked)}
                why = f"the lease could not be written to {self._file.path}: {error}; mend that and ask again"
                answer = HoldVolumeResponse(asked.path, False, why)
        log.info("path=%s holder=%r held=%s why=%r", asked.path, asked.holder, answer.held, answer.why)
        return answer

    async def _save(self) -> None:
        """Writes what outlives the daemon, unless it is on disk."""
        async with self._saving:
            firm = _firm(self._claims)
            if firm != self._on_disk:
                self._on_disk = None
                await self._job("volume claims", partial(self._file.replace, firm))
                self._on_disk = firm

    async def claims(self, asked: ListVolumeClaimsRequest) -> ListVolumeClaimsResponse:
        """Which volumes guests have, or are offered; of a path also what Kata's shim has recorded."""
        if asked.path and not _is_path(asked.path):
            raise VolumeRequestError(PATH_RULE)
        await self._load()
        await self._look()
        claims, _, now = self._kept()
        found = rule.listed(claims, asked.path, asked.pod_uid, now)
        if asked.path and not found:
            host = (await self._on_host((asked.path,)))[asked.path]
            if host.unknown:
                return ListVolumeClaimsResponse((), False, host.unknown)
            if host.recorded:
                by_kata = VolumeClaim("", asked.path, "", "", "", host.recorded, "", True, 0, direct_volume.FILE)
                found = (by_kata,)
        return ListVolumeClaimsResponse(found, not self._unread, self._unread)

    async def volumes(self, uid: PodUid) -> Section[tuple[PodVolumeRow, ...]]:
        """The section `volumes` of a pod."""
        try:
            pod, at = await self._read(uid)
            named = self._pod(uid, pod)
        except NodewardError as error:
            return Section(None, SPEC, False, str(error))
        await self._load()
        await self._look()
        claims, _, now = self._kept()
        rows = tuple(_row(claims, named, one, now) for one in named.volumes)
        return Section(rows, SPEC, not self._unread, self._unread, at)

    async def network(self, sandbox: str) -> Section[PodNetwork]:
        """The section `network` of the pod with this sandbox, empty for not known: Kata's DAN file, else CNI's result
        cache."""
        if not sandbox:
            return Section(None, networks.CNI, False, "no sandbox's id is known yet: NRI or the relay tells it")
        at = self._clock.wall_ns()
        try:
            found = await self._job("network of a pod", partial(_network, self._files, sandbox))
        except (OSError, GivenUpError, WireError) as error:
            return Section(None, networks.CNI, False, f"{networks.CNI} cannot be read: {error}")
        if found is None:
            why = f"neither {networks.DANS} nor {networks.CNI} has an entry: is the pod on the host's network?"
            return Section(None, networks.CNI, False, why)
        return Section(found.network, found.file, not found.faults, "; ".join(found.faults), at)

    # ---- what is asked of others

    async def _fetched(self, pod_uid: str, sandbox: str) -> tuple[str, _Fetched | None]:
        """Why not, or the pod with what its neighbours use."""
        state, uid = self._state(), PodUid(pod_uid)
        stands = state.pods.sandboxes.get(SandboxId(sandbox))
        if stands is not None and stands.sandbox.pod_uid != uid:
            return "the sandbox is of another pod", None
        if uid not in state.pods.specs or state.pods.specs[uid].gone:
            return "the pod is not known on this node, or is gone", None
        if self._unread:
            return self._unread, None
        if not state.pods.api_up:
            return "the API server does not answer, so whether another pod uses its volumes is not known", None
        try:
            async with asyncio.timeout(FACTS_S):
                pod = self._pod(uid, (await self._read(uid))[0])
                return "", await self._users(pod)
        except NodewardError as error:
            return f"the pod's spec cannot be read: {error}", None
        except TimeoutError:
            return f"the pod's spec was not read within {FACTS_S:g} s", None

    async def _users(self, pod: PodVolumes) -> _Fetched:
        """Which other pods of the namespace use the same claims. Where one of them cannot be read, that is unknown."""
        wanted = {one.claim_name: list[str]() for one in pod.volumes if one.claim_name}
        if not wanted:
            return _Fetched(pod, {})
        pods, turn = self._state().pods, asyncio.Semaphore(_AT_ONCE)

        async def other(uid: PodUid, name: str) -> None:
            async with turn:
                its = self._pod(uid, (await self._read(uid))[0])
            for claim in {one.claim_name: None for one in its.volumes if one.claim_name in wanted}:
                wanted[claim].append(f"{pod.namespace}/{name}")

        others = [
            other(uid, known.spec.name)
            for uid, known in pods.specs.items()
            if uid != pod.uid
            and known.spec.namespace == pod.namespace
            and (not known.spec.terminal or uid in pods.sandbox_of)
        ]
        failed = [one for one in await asyncio.gather(*others, return_exceptions=True) if one is not None]
        for one in failed:
            if not isinstance(one, NodewardError):
                raise one
        unknown = f"whether another pod of this node uses the claim is not known: {failed[0]}" if failed else ""
        return _Fetched(pod, {name: tuple(sorted(users)) for name, users in wanted.items()}, unknown)

    async def _on_host(self, paths: tuple[str, ...]) -> Mapping[str, Host]:
        """What files of the host say of the volumes at these paths; nothing of an empty one."""
        named = tuple(path for path in paths if path)
        found: dict[str, Host] = {"": Host()}
        if named:
            try:
                read = await self._job("volumes on the host", partial(_at_paths, self._files, named))
            except (OSError, GivenUpError) as error:
                read = dict.fromkeys(named, f"the host's mounts cannot be read (CAP_SYS_PTRACE is needed): {error}")
            standing = self._standing()
            found |= {path: _host(one, standing) for path, one in read.items()}
        return found

    def _kept(self) -> tuple[Claims, Standing, int]:
        standing, now = self._standing(), self._clock.now_ns()
        self._claims = rule.kept(self._claims, standing, now)
        return self._claims, standing, now

    def _state(self) -> State:
        """What is known, with the sandboxes that only the relay has told of."""
        return show.with_told(self._known(), self._told.sandboxes if self._told is not None else ())

    def _standing(self) -> Standing:
        pods, told = self._state().pods, self._told
        relayed = told.sandboxes if told is not None else ()
        ended = frozenset((*pods.ended, *(one.id for one in relayed if one.stopped)))
        here = (*self._known().pods.sandboxes, *pods.lingering, *(one.id for one in relayed if one.id not in ended))
        known = {uid: None for uid, spec in pods.specs.items() if not spec.gone} if pods.api_up else None
        by_cgroup = [uid for uid, one in pods.sandbox_of.items() if pods.sandboxes[one].by_cgroup]
        return Standing(
            frozenset(here),
            ended,
            pods.listed or (told is not None and told.listed),
            self._alone,
            known,
            pods.sandbox_of,
            by_cgroup,
        )

    async def _look(self) -> None:
        """Asks the relay which sandboxes live."""
        self._told, self._alone = await self._relayed()

    def _pod(self, uid: PodUid, pod: object) -> PodVolumes:
        known = self._known().pods.specs.get(uid)
        if known is None:
            raise NodewardError("the pod is gone")
        return PodVolumes(uid, known.spec.namespace, known.spec.name, spec_volumes(pod, known.spec.name))

    # ---- the file

    async def _load(self) -> None:
        """Reads the firm claims once; what cannot be read is tried again at the next request."""
        if self._loaded:
            return
        try:
            found = await self._job("volume claims", partial(_read_claims, self._files, self._run_dir))
        except (OSError, GivenUpError, ValueError) as error:
            self._unread = (
                f"{self._file.path} cannot be read: {error}; once no VM has a volume of its own, remove the file"
            )
            return
        self._claims, self._on_disk = {**found, **self._claims}, found
        self._loaded, self._unread = True, ""

    async def _job(self, name: str, job: Callable[[], T]) -> T:
        return await done_on(self._lane, name, job)


def _firm(claims: Claims) -> dict[str, VolumeHold]:
    return {where: one for where, one in claims.items() if not one.ends_ns or one.holder}


def _stands(sandbox: str, standing: Standing) -> bool:
    """Whether a sandbox that has recorded itself may still have the volume."""
    return sandbox in standing.sandboxes or not (standing.listed or sandbox in standing.ended)


def _read_claims(files: HostFiles, folder: str) -> Claims:
    claims = FILE.read(files, folder) or {}
    if any(one.ends_ns and not one.holder for one in claims.values()):
        raise ValueError("a claim in it ends, and has no holder")
    return claims


Found = str | tuple[direct.Volume | None, bool]
"""Why a path's volume cannot be told; or Kata's direct volume, and whether something is mounted there."""


def _at_paths(files: HostFiles, paths: tuple[str, ...]) -> dict[str, Found]:
    places = {one.place: None for one in cgroup_mounts.mounts(files.read(MOUNTS, cgroup_mounts.MAX_BYTES))}
    found: dict[str, Found] = {}
    for path in paths:
        try:
            found[path] = (
                direct.of(files, path, f"{HOST_ROOT}{direct.FOLDER}"),
                path in places or _is_mount(files, path),
            )
        except FileNotFoundError:
            found[path] = UNSEEN
        except OSError as error:
            found[path] = f"its path on the host cannot be read (CAP_SYS_PTRACE is needed): {error}"
        except WireError as error:
            found[path] = str(error)
    return found


def _is_mount(files: HostFiles, path: str) -> bool:
    """By its device: a symbolic link on the way gives the mount another path. FileNotFoundError where not even the
    folder above it is there."""
    above = files.stat(f"{HOST_ROOT}{os.path.dirname(path)}")
    try:
        return files.stat(f"{HOST_ROOT}{path}").device != above.device
    except FileNotFoundError:
        return False  # whoever mounts it makes the folder first


def _host(found: Found, standing: Standing) -> Host:
    if isinstance(found, str):
        return Host(unknown=found)
    volume, mounted = found
    if volume is None:
        return Host(mounted=mounted)
    taken = [one for one in volume.sandboxes if _stands(one, standing)]
    fs_type = volume.info.fs_type if volume.info is not None else ""
    return Host(fs_type=fs_type, recorded=taken[0] if taken else "", mounted=mounted, direct=True)


def _joined(host: Host, found: _Fetched, volume: str) -> Host:
    claim = next((one.claim_name for one in found.pod.volumes if one.name == volume), "")
    unknown = host.unknown or (found.unknown if claim else "")
    return replace(host, users=found.users.get(claim, ()), unknown=unknown)


def _row(claims: Claims, pod: PodVolumes, volume: SpecVolume, now_ns: int) -> PodVolumeRow:
    named = volume.name, volume.kind, volume.claim_name, volume.medium, volume.mounts
    claim = claims.get(rule.key(pod.namespace, pod.uid, volume))
    if claim is None:
        return PodVolumeRow(*named, HOST, rule.host_only(pod, volume) or "no runtime has asked for it")
    if claim.pod_uid != pod.uid:
        return PodVolumeRow(*named, HOST, f"pod {claim.namespace}/{claim.pod} has it", claim.sandbox)
    firm = not claim.ends_ns
    return PodVolumeRow(
        *named, GUEST, "confirmed" if firm else "offered", claim.sandbox, firm, rule.left_s(claim, now_ns)
    )


def _network(files: HostFiles, sandbox: str) -> networks.SandboxNetwork | None:
    return networks.by_dan(files, sandbox) or networks.by_cni(files, sandbox)


def _check(pod_uid: str, sandbox: str, volumes: tuple[OfferedVolume, ...]) -> None:
    """VolumeRequestError with every fault. Values are not repeated: they are somebody else's."""
    faults = [f"{name} must be 1 to {_MOST_TEXT} printable characters" for name, value in
              (("pod_uid", pod_uid), ("sandbox", sandbox)) if not _is_name(value)]  # fmt: skip
    if not 1 <= len(volumes) <= MOST_VOLUMES:
        faults.append(f"volumes must be 1 to {MOST_VOLUMES}, are {len(volumes)}")
    for number, one in enumerate(volumes[:MOST_VOLUMES]):
        path = f"volumes[{number}]"
        if not _is_name(one.volume):
            faults.append(f"{path}.volume must be a volume's name in the pod's spec")
        elif one.volume in [other.volume for other in volumes[:number]]:
            faults.append(f"{path}.volume is there twice; ask for each volume once")
        if one.path and not _is_path(one.path):
            faults.append(f"{path}.{PATH_RULE}")
        for name, words in (("capabilities", one.capabilities), ("fs", one.fs)):
            if len(words) > _MOST_WORDS or any(not _is_name(word) for word in words):
                faults.append(f"{path}.{name} must be at most {_MOST_WORDS} short words")
    if faults:
        raise VolumeRequestError("\n".join(faults))


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _MOST_TEXT and text.isprintable()


def _is_path(text: str) -> bool:
    clean = os.path.normpath(text) == text and not text.startswith("//")
    return clean and text.startswith("/") and text.isprintable() and len(text) <= _MOST_PATH


def spec_volumes(pod: object, name: str) -> tuple[SpecVolume, ...]:
    """The volumes of a redacted pod of that name, with where each container has them."""
    mounts: dict[str, list[VolumeMount]] = {}
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in _rows(_within(pod, "spec"), kind):
            its = _text(container.get("name"))
            for one in _rows(container, "volumeMounts"):
                sub_path = "subPath" in one or "subPathExpr" in one
                shared = one.get("mountPropagation") not in (None, "None")
                mount = VolumeMount(its, one.get("readOnly") is True, sub_path, False, shared)
                mounts.setdefault(_text(one.get("name")), []).append(mount)
            for one in _rows(container, "volumeDevices"):
                mounts.setdefault(_text(one.get("name")), []).append(VolumeMount(its, raw=True))
    return tuple(_volume(one, name, mounts) for one in _rows(_within(pod, "spec"), "volumes"))


def _volume(row: Mapping[str, object], pod: str, mounts: Mapping[str, list[VolumeMount]]) -> SpecVolume:
    name = _text(row.get("name"))
    kind = next((one for one in row if one != "name"), "emptyDir")
    source = _within(row, kind)
    claim = _text(source.get("claimName")) if kind == rule.PVC else f"{pod}-{name}" if kind == rule.EPHEMERAL else ""
    medium = source.get("medium")
    said = medium if isinstance(medium, str) else "withheld" if medium else ""
    return SpecVolume(name, kind, claim, said, tuple(mounts.get(name, ())))


def _within(value: object, name: str) -> Mapping[str, object]:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _rows(table: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    found = table.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
