"""Claims of volumes on a node: what is asked of pods and files, what outlives the daemon, and the sections shown."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nodeward.core.errors import NodewardError
from nodeward.core.pulls import PullsView
from nodeward.core.vms import PodInterface, PodNetwork, PodRoute
from nodeward.core.workload import PodUid, SandboxId
from nodeward.features.podapi import rows as api
from nodeward.features.podapi.effects import redaction
from nodeward.features.podapi.effects.volumes import FILE, HOST_ROOT, PodVolumeClaims, VolumeRequestError
from nodeward.features.podapi.volumes import LEASE_S
from nodeward.features.pods.state import Ended, KnownSandbox, KnownSpec, Pods
from nodeward.features.root import State
from nodeward.host.hostfs import FileInfo, HostFiles, OsFiles
from nodeward.neighbours.kata import network, volumes
from nodeward.neighbours.kata.direct_volume import MountInfo
from tests.faults import FaultyFiles
from tests.rigs.daemon import AtOnce, YieldingClock
from tests.unit.features.build import ManualClock, pod_spec, sandbox, there
from tests.unit.formats.test_kata_files import SECRET, entry

RUN = "/run/nodeward"
PATH = "/pods/u1/volumes/kubernetes.io~csi/pv/mount"
MOUNTS = "31 23 0:27 / {} rw,relatime - ext4 /dev/sdb rw\n"


class Linked(OsFiles):
    def stat(self, path: str) -> FileInfo:
        found = super().stat(path)
        return found._replace(device=found.device + path.endswith(PATH))


def pod(claim: str = "disk", **mount: object) -> object:
    """A pod as the API server has it, redacted: one PersistentVolumeClaim and a Secret."""
    data = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    kept = {"name": "keys", "secret": {"secretName": SECRET}}
    mounts = [{"name": "data", "mountPath": "/d", "readOnly": True, **mount}, {"name": "keys", "mountPath": "/k"}]
    spec = {"containers": [{"name": "app", "volumeMounts": mounts}], "volumes": [data, kept]}
    return redaction.redacted({"spec": spec})


@dataclass(slots=True)
class Host:
    """A node with the pods u1, u2 and so on, whose sandboxes are s-u1 and so on, and files below a folder."""

    folder: Path
    pods: dict[str, object] = field(default_factory=lambda: {"u1": pod()})
    clock: ManualClock = field(default_factory=YieldingClock)
    standing: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    api_up: bool = True
    listed: bool = True

    def __post_init__(self) -> None:
        for name in (RUN, f"{HOST_ROOT}{PATH}"):
            (self.folder / name.lstrip("/")).mkdir(parents=True)
        self.mounts("/elsewhere")

    def mounts(self, place: str) -> None:
        (self.folder / "proc/1/mountinfo").write_text(MOUNTS.format(place))

    def state(self) -> State:
        boxes = {SandboxId(f"s-{uid}"): KnownSandbox(sandbox(uid), 1) for uid in self.standing}
        of = {one.sandbox.pod_uid: name for name, one in boxes.items()}
        specs = {PodUid(uid): KnownSpec(pod_spec(uid), 1) for uid in self.pods}
        gone = {f"s-{uid}": Ended(1) for uid in self.ended}
        return State(pods=Pods(specs, boxes, sandbox_of=of, ended=gone, listed=self.listed, api_up=self.api_up))

    async def relayed(self) -> tuple[PullsView | None, bool]:
        return None, False

    async def read(self, uid: PodUid) -> tuple[object, int]:
        found = self.pods[uid]
        if isinstance(found, Exception):
            raise found
        return found, 7

    def life(self, files: HostFiles | None = None) -> PodVolumeClaims:
        files = files or OsFiles(str(self.folder))
        return PodVolumeClaims(*(self.state, self.read, files, AtOnce(), self.clock, RUN, self.relayed))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


async def offered(claims: PodVolumeClaims, uid: str = "u1", *volume: str, **more: str) -> tuple[str, str]:
    rows = tuple(api.OfferedVolume(name, more.get("path", PATH), ("block",)) for name in volume or ("data",))
    said = await claims.offer(api.OfferVolumesRequest(uid, more.get("sandbox", f"s-{uid}"), rows))
    assert [one.volume for one in said.offers] == [one.volume for one in rows]
    return said.offers[0].owner, said.offers[0].why


async def confirmed(claims: PodVolumeClaims, uid: str = "u1", release: bool = False) -> tuple[str, str]:
    said = await claims.confirm(api.ConfirmVolumeRequest(uid, f"s-{uid}", "data", release))
    return said.owner, said.why


async def owners(claims: PodVolumeClaims, path: str = PATH) -> Mapping[str, str]:
    return {one.sandbox: one.by for one in (await claims.claims(api.ListVolumeClaimsRequest(path))).claims}


async def test_a_sandbox_that_ended_while_the_daemon_was_away_has_nothing_once_the_runtime_says_so(host: Host) -> None:
    """Though its pod stands: that it has lived is on disk."""
    first, file = host.life(), host.folder / RUN.lstrip("/") / FILE.name
    await offered(first)
    await confirmed(first)
    host.standing = ("u1",)
    keeps = asyncio.create_task(first.run())
    while b'"seen":true' not in file.read_bytes():
        await asyncio.sleep(0)
    keeps.cancel()
    host.standing, host.listed = (), False
    second = host.life()
    assert await owners(second) == {"s-u1": "ConfirmVolume"}
    host.listed = True
    assert await owners(second) == {}


async def test_a_holder_on_the_host_that_died_has_its_lease_for_no_longer_than_it_lasts(host: Host) -> None:
    """And one that lives renews it; nobody else has it meanwhile, also while it is mounted."""
    claims, ask = host.life(), api.HoldVolumeRequest(PATH, "csi-1")
    assert (await claims.hold(ask)).held
    host.mounts(PATH)
    host.clock.ns += (LEASE_S - 1) * 10**9
    again = await claims.hold(ask)
    assert (again.held, again.lease_s) == (True, LEASE_S)
    host.mounts("/elsewhere")
    host.clock.ns += (LEASE_S - 1) * 10**9
    assert await offered(host.life()) == (api.HOST, "csi-1 mounts it on the host, for 1 s more")
    other = await claims.hold(api.HoldVolumeRequest(PATH, "csi-2"))
    assert (other.held, other.held_by) == (False, "csi-1")
    host.clock.ns += 10**9
    assert (await offered(claims))[0] == api.GUEST
    refused = await claims.hold(ask)
    assert (refused.held, refused.held_by) == (False, "s-u1")
    host.mounts(PATH)
    await confirmed(claims, release=True)
    assert (await claims.hold(ask)).why == "it is mounted on the host already"
    volumes.write(OsFiles(str(host.folder)), PATH, MountInfo("/dev/sdb", "ext4"), f"{HOST_ROOT}{volumes.FOLDER}")
    assert (await claims.hold(ask)).why.startswith("it has a mountInfo.json, so its VM mounts it")


async def test_no_guest_has_a_volume_whose_claim_is_not_on_disk(host: Host) -> None:
    for number in range(1, 40):
        files = FaultyFiles(OsFiles(str(host.folder)), fail_at=number)
        claims = host.life(files)
        await offered(claims)
        owner, _ = await confirmed(claims)
        assert (owner == api.GUEST) == bool(await owners(host.life()))
        if files.total < number:
            return
        (host.folder / RUN.lstrip("/") / FILE.name).unlink(missing_ok=True)
    raise AssertionError("more calls than expected")


@pytest.mark.parametrize("content", [b"", b'{"v":2,"holds":{}}', b'{"v":1,"holds":{"x":5}}'])
async def test_while_the_claims_cannot_be_read_no_guest_is_given_a_volume(host: Host, content: bytes) -> None:
    file = host.folder / RUN.lstrip("/") / FILE.name
    file.write_bytes(content)
    claims = host.life()
    owner, why = await offered(claims)
    assert (owner, why.partition(" cannot be read: ")[0]) == (api.HOST, FILE.path_in(RUN))
    assert not (await claims.claims(api.ListVolumeClaimsRequest())).complete
    file.unlink()
    assert (await offered(claims))[0] == api.GUEST


async def test_a_claim_that_another_pod_of_the_node_uses_stays_with_the_host(host: Host) -> None:
    """Only pods of the namespace that name claims are read; where one cannot be, that is said."""
    host.pods["u2"] = pod("other")
    claims = host.life()
    assert (await offered(claims))[0] == api.GUEST
    host.pods["u3"] = pod()
    assert await confirmed(claims) == (api.HOST, "since the offer: pod shop/pod-u3 on this node uses the same claim")
    host.pods["u3"] = NodewardError("the API server is away")
    why = "whether another pod of this node uses the claim is not known: the API server is away"
    assert await offered(claims) == (api.HOST, why)


async def test_what_the_host_has_at_the_path_is_looked_at(host: Host) -> None:
    claims, files = host.life(), OsFiles(str(host.folder))
    host.mounts(PATH)
    assert await offered(claims) == (api.HOST, "it is mounted on the host already")
    host.mounts("/elsewhere")
    linked = host.life(Linked(str(host.folder)))
    assert await offered(linked) == (api.HOST, "it is mounted on the host already")
    assert (await offered(claims, path="/not/there"))[1].startswith("the daemon sees nothing at its path")
    assert await owners(claims, f"{PATH}/new") == {}, "a folder that a CSI driver is about to make"
    with pytest.raises(VolumeRequestError, match="path must be a clean absolute path"):
        await owners(claims, "/a/../b")
    written = volumes.write(files, PATH, MountInfo("/dev/sdb", "ext4"), f"{HOST_ROOT}{volumes.FOLDER}")
    taken = host.folder / written.lstrip("/").replace("mountInfo.json", "s-u9")
    taken.touch()
    assert (await offered(claims))[0] == api.GUEST, "a sandbox that is no more has left its name"
    host.listed = False
    assert await owners(host.life()) == {"s-u9": "mountInfo.json"}, "it may stand: not all is known"
    host.listed = True
    host.pods["u9"], host.standing = pod("x"), ("u9",)
    assert await offered(claims) == (api.HOST, "sandbox s-u9 has recorded itself in its mountInfo.json")
    assert await owners(claims) == {"s-u9": "mountInfo.json"}
    (host.folder / "proc/1/mountinfo").unlink()
    assert (await offered(claims))[1].startswith("the host's mounts cannot be read")
    assert not (await claims.claims(api.ListVolumeClaimsRequest(PATH))).complete


async def test_what_is_not_known_stays_with_the_host(host: Host) -> None:
    claims = host.life()
    assert await offered(claims, "u7") == (api.HOST, "the pod is not known on this node, or is gone")
    host.pods["u2"], host.standing = pod(), ("u2",)
    assert await offered(claims, sandbox="s-u2") == (api.HOST, "the sandbox is of another pod")
    host.pods["u1"] = NodewardError("the API server is away")
    assert await offered(claims) == (api.HOST, "the pod's spec cannot be read: the API server is away")


async def test_while_the_api_server_is_away_no_guest_is_given_a_volume_and_one_that_has_it_keeps_it(host: Host) -> None:
    """Another pod of the node may use the claim by now, and nobody has told."""
    away = "the API server does not answer, so whether another pod uses its volumes is not known"

    claims = host.life()
    host.api_up = False
    assert await offered(claims) == (api.HOST, away)
    host.api_up = True
    await offered(claims)
    host.api_up = False
    assert await confirmed(claims) == (api.HOST, f"since the offer: {away}")
    host.api_up = True
    await offered(claims)
    await confirmed(claims)
    host.api_up = False
    assert await offered(claims) == (api.GUEST, "this sandbox has confirmed it")


V = api.OfferedVolume("v")


@pytest.mark.parametrize(
    ("volumes", "fault"),
    [
        ((V,) * 65, "are 65"),
        ((V, V), r"volumes\[1\].volume is there twice"),
        ((api.OfferedVolume("v", "/a/../b"),), r"volumes\[0\].path"),
        ((api.OfferedVolume("v", "/" + "a" * 5000),), r"volumes\[0\].path"),
        ((api.OfferedVolume("v", "/\ud800"),), r"volumes\[0\].path"),
        ((api.OfferedVolume("v", fs=("x" * 300,)),), r"volumes\[0\].fs"),
    ],
)
async def test_a_request_that_cannot_be_is_refused_with_every_fault(
    host: Host, volumes: tuple[api.OfferedVolume, ...], fault: str
) -> None:
    with pytest.raises(VolumeRequestError, match=fault):
        await host.life().offer(api.OfferVolumesRequest("u", "s", volumes))
    with pytest.raises(VolumeRequestError, match=r"pod_uid must .*\nsandbox must .*\nvolumes must be 1 to 64, are 0"):
        await host.life().offer(api.OfferVolumesRequest("", "s\n", ()))


async def test_the_section_of_volumes_says_who_mounts_each_and_no_secret(host: Host) -> None:
    host.pods["u1"] = pod(subPath=SECRET)
    claims = host.life()
    section = await claims.volumes(PodUid("u1"))
    value = there(section.value)
    data = api.PodVolumeRow(
        *("data", "persistentVolumeClaim", "disk", "", (api.VolumeMount("app", True, True),), api.HOST),
        "container app mounts a part of it (subPath), which kubelet prepares on the host",
    )
    assert (value[0], section.complete, section.observed_at) == (data, True, 7)
    assert (value[1].kind, value[1].owner) == ("secret", api.HOST)
    assert SECRET not in repr(section)
    host.pods["u1"] = pod()
    await offered(claims)
    row = there((await claims.volumes(PodUid("u1"))).value)[0]
    assert (row.owner, row.sandbox, row.firm, row.lease_s) == (api.GUEST, "s-u1", False, LEASE_S)
    host.pods["u1"] = NodewardError("the API server is away")
    assert (await claims.volumes(PodUid("u1"))).why == "the API server is away"


async def test_the_section_of_the_network_is_by_dan_else_by_cni(host: Host) -> None:
    claims = host.life()
    assert "NRI or the relay" in (await claims.network("")).why
    assert "host's network" in (await claims.network("s-u1")).why
    folder = host.folder / network.CNI.lstrip("/")
    folder.mkdir(parents=True)
    (folder / "pods-s-u1-eth0").write_bytes(entry(containerId="s-u1"))
    (folder / "pods-s-u11-eth0").write_bytes(entry(containerId="s-u11"))
    by_cni = await claims.network("s-u1")
    routes = (PodRoute("0.0.0.0/0", "10.0.0.1", "eth0"), PodRoute("10.9.0.0/16", "10.0.0.9", "eth0"))
    assert by_cni.value == PodNetwork("/run/netns/x", (PodInterface("eth0", "", 1450, ("10.0.0.5/24",)),), routes)
    assert SECRET not in repr(by_cni)
    (folder / "pods-s-u1-eth1").write_bytes(b"{")
    assert not (await claims.network("s-u1")).complete
    device = {"type": "vfio", "pci_device_id": "0000:3b:00.1"}
    row = {"name": "eth0", "device": device, "network_info": {"interface": {"ip_addresses": ["10.0.0.5/24"]}}}
    network.write(OsFiles(str(host.folder)), "s-u1", json.dumps({"devices": [row]}).encode())
    found = await claims.network("s-u1")
    assert found.value == PodNetwork("", (PodInterface("eth0", "", 1500, ("10.0.0.5/24",), "vfio", "0000:3b:00.1"),))
    assert (found.source, found.complete) == (f"{network.DANS}/s-u1.json", True)
