"""Files that CSI drivers and CNI plugins write for Kata: every fault at its path, and nothing secret in or out."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.core.errors import WireError
from nodeward.core.vms import PodInterface, PodNetwork, PodRoute
from nodeward.neighbours.kata import dan, direct_volume
from nodeward.neighbours.kata.direct_volume import MountInfo
from nodeward.neighbours.kata.json_tree import is_secret
from nodeward.neighbours.kata.network import read_result

SECRET = "s3cr3t-canary"
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
TAP = {"type": "host-tap", "tap_name": "tap0", "queue_num": 2, "queue_size": 256}


def device(**changed: object) -> dict[str, object]:
    """A device of a DAN file, without those fields that are changed to None."""
    interface = {"ip_addresses": ["10.0.0.5/24", "fd00::5/64"], "mtu": 1450, "ntype": "tuntap", "flags": 0}
    routes = [{"dest": "", "gateway": "10.0.0.1"}, {"dest": "10.1.0.0/16", "source": "10.0.0.5", "mtu": 1400}]
    neighbors = [{"ip_address": "10.0.0.1", "hardware_addr": "02:00:00:00:00:01", "state": 128}]
    info = {"interface": interface, "routes": routes, "neighbors": neighbors}
    row = {"name": "eth0", "guest_mac": "02:00:00:00:00:05", "device": TAP, "network_info": info, **changed}
    return {name: value for name, value in row.items() if value is not None}


def faults(tree: object) -> list[str]:
    return [one.partition(":")[0] for one in dan.read(json.dumps(tree).encode()).faults]


@given(
    st.builds(
        MountInfo,
        TEXT.map(lambda one: f"/dev/{one}"),
        st.sampled_from(["ext4", "xfs"]),
        st.sampled_from(direct_volume.TYPES),
        st.dictionaries(st.sampled_from(["fsGroup", "createFilesystem"]), st.integers(0, 2**32 - 1).map(str)),
        st.lists(TEXT.filter(lambda one: not is_secret(*one.partition("=")[::2])), max_size=3).map(tuple),
    )
)
def test_what_is_written_is_read_back(info: MountInfo) -> None:
    found = direct_volume.read(direct_volume.encode(info))

    assert (found.info, found.faults, found.withheld) == (info, (), ())


@given(TEXT)
def test_a_volumes_folder_names_its_path(name: str) -> None:
    path = "/var/" + name.replace("/", "-").replace(".", "-")

    assert direct_volume.path_of(direct_volume.folder_of(path)) == path


@pytest.mark.parametrize("path", ["a/b", "/a/", "/a//b", "/a/../b", "", "/" + "x" * 189, "/a\0"])
def test_a_path_that_kata_would_not_find_has_no_folder(path: str) -> None:
    with pytest.raises(WireError, match=r"clean absolute path|too long for Linux"):
        direct_volume.folder_of(path)


@pytest.mark.parametrize("folder", ["x", "L2EvYg", "L2EvYg==\n", "L2EvYi8=", "_w==", ""])
def test_a_folder_that_no_path_has_is_refused(folder: str) -> None:
    with pytest.raises(WireError, match="Kata never finds it: remove it"):
        direct_volume.path_of(folder)


def test_every_fault_of_a_mount_info_is_told_at_its_path() -> None:
    data = {
        "volume-type": "blok",
        "device": "sdb",
        "fsType": "ext4",
        "metadata": {"fsGroup": "-1", "fsGroupChangePolicy": "Never", "other": 5},
        "options": ["ro", 3, "a\nb"],
    }
    found = direct_volume.read(json.dumps(data).encode())

    assert found.faults[0] == "fsType: runtime-rs does not read it; write fstype"
    assert [one.partition(":")[0] for one in found.faults] == [
        *("fsType", "volume-type", "device", "fstype", "metadata.other", "metadata.fsGroup"),
        *("metadata.fsGroupChangePolicy", "options[1]", "options[2]"),
    ]
    assert found.info == MountInfo("", "", "", {"fsGroup": "-1", "fsGroupChangePolicy": "Never"}, ("ro",))


SECRETS = (
    *("encryptionKey", "encryption-key", "dbPassword", "api_key", "secretRef", "authToken", "luksKey", "luks_key"),
    *("LUKSKEY", "lukskey", "privKey", "dek", "volumeDEK", "kek", "pwd", "user.PWD", "passwd", "passphrase", "Cookie"),
    *("bearer", "auth", "basicAuth", "Authorization", "userpass", "key", "KEYS", "keyFile", "keyfile", "psk"),
)


@pytest.mark.parametrize(
    "name", ["keyboard", "keyring", "monkey", "keySize", "key_id", "bypass", "author", "deck", "seeks"]
)
def test_a_word_that_only_resembles_a_secrets_is_written(name: str) -> None:
    assert direct_volume.read(direct_volume.encode(MountInfo("/dev/a", "ext4", options=(f"{name}=1",)))).faults == ()


@pytest.mark.parametrize("key", SECRETS)
def test_a_secret_is_neither_written_nor_shown(key: str) -> None:
    tree = {"volume-type": "block", "device": "/dev/a", "fstype": "ext4", "metadata": {key: SECRET}}
    found = direct_volume.read(json.dumps({**tree, "options": [f"{key}={SECRET}"]}).encode())
    with pytest.raises(WireError) as refused:
        direct_volume.encode(MountInfo("/dev/a", "ext4", "block", {key: SECRET}, (f"{key}={SECRET}",)))

    assert found.withheld == (f"metadata.{key}", "options[0]")
    assert len(found.faults) == 2
    assert SECRET not in repr(found) + str(refused.value)


def test_what_a_driver_keeps_for_itself_is_withheld_and_no_fault() -> None:
    tree = {"volume-type": "block", "device": "/dev/a", "fstype": "ext4", "metadata": {"tier": SECRET}}
    found = direct_volume.read(json.dumps(tree).encode())

    assert (found.faults, found.withheld) == ((), ("metadata.tier",))
    assert SECRET not in repr(found)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"a": NaN}', b'["\\ud800"]', b"[" * 60000, b"1" * 5000])
def test_no_json_is_told_without_its_content(data: bytes) -> None:
    with pytest.raises(WireError, match="no JSON"):
        direct_volume.read(data)


def test_a_good_dan_file_is_a_network() -> None:
    tree = {"netns": "/run/netns/a", "devices": [device(), device(name="eth1", device={**TAP, "queue_num": 0})]}
    data = json.dumps(tree).encode()
    addresses = ("10.0.0.5/24", "fd00::5/64")
    first = PodInterface("eth0", "02:00:00:00:00:05", 1450, addresses, "host-tap", "tap0", 2)
    routes = [
        PodRoute(dest, gateway, name, mtu)
        for name in ("eth0", "eth1")
        for dest, gateway, mtu in (("", "10.0.0.1", 0), ("10.1.0.0/16", "", 1400))
    ]
    second = PodInterface("eth1", "02:00:00:00:00:05", 1450, addresses, "host-tap", "tap0", 0)

    assert dan.read(data) == dan.DanRead(PodNetwork("/run/netns/a", (first, second), tuple(routes)))
    assert json.loads(dan.encode(data)) == tree


def info(**changed: object) -> dict[str, object]:
    base = device()["network_info"]
    assert isinstance(base, dict)
    return device(network_info={**base, **changed})


INFO = "devices[0].network_info"
WRONG = {
    "no devices": ({}, ["devices"]),
    "no object": ([], ["must be an object, is a list"]),
    "no name and no address": ({"devices": [info(interface={"ip_addresses": []}), device(name=None)]}, [
        f"{INFO}.interface.ip_addresses", "devices[1].name"]),
    "twice the name": ({"devices": [device(), device()]}, ["devices[1].name"]),
    "a mac of null": ({"devices": [{**device(), "guest_mac": None}]}, ["devices[0].guest_mac"]),
    "a mac of a group": ({"devices": [device(guest_mac="01:00:5e:00:00:01")]}, ["devices[0].guest_mac"]),
    "another type": ({"devices": [device(device={"type": "ipvlan"})]}, ["devices[0].device.type"]),
    "vfio": ({"devices": [device(device={"type": "vfio", "pci_device_id": "3b:00", "queue_num": 1})]}, [
        "devices[0].device.queue_num", "devices[0].device.pci_device_id"]),
    "vhost-user": ({"devices": [device(device={"type": "vhost-user", "path": "s", "queue_size": 3})]}, [
        "devices[0].device.path", "devices[0].device.queue_size"]),
    "queues": ({"devices": [device(device={**TAP, "queue_num": -1, "queue_size": True})]}, [
        "devices[0].device.queue_num", "devices[0].device.queue_size"]),
    "addresses": ({"devices": [info(interface={"ip_addresses": [
        "10.0.0.5", "x/1", "fe80::1%eth0/64", "10.0.0.1/255.0.0.0", 7]})]}, [
        f"{INFO}.interface.ip_addresses[{number}]" for number in range(5)]),
    "mtu": ({"devices": [info(interface={"ip_addresses": ["10.0.0.5/8"], "mtu": 1500.5})]}, [
        f"{INFO}.interface.mtu"]),
    "routes": ({"devices": [info(routes=[{}, {"dest": "10.0.0.0/8", "gateway": "fd00::1"}, {"dst": "x"}])]}, [
        f"{INFO}.routes[0]", f"{INFO}.routes[1]", f"{INFO}.routes[2].dst", f"{INFO}.routes[2]"]),
    "neighbors": ({"devices": [info(neighbors=[{"hardware_addr": "x", "state": 2**32}, 1])]}, [
        f"{INFO}.neighbors[0].hardware_addr", f"{INFO}.neighbors[0].state", f"{INFO}.neighbors[1]"]),
    "empty objects": ({"devices": [{}, device(network_info={}), info(interface={})]}, [
        "devices[0].name", "devices[0].device", "devices[0].network_info", "devices[1].network_info.interface",
        "devices[2].network_info.interface.ip_addresses", "devices[2].name"]),
    "too many": ({"devices": [device(name=f"e{number}") for number in range(33)]}, ["devices"]),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_every_fault_of_a_dan_file_is_told_at_its_path(case: str) -> None:
    tree, expected = WRONG[case]

    assert faults(tree) == expected
    with pytest.raises(WireError):
        dan.encode(json.dumps(tree).encode())


def test_a_field_that_is_there_twice_is_a_fault() -> None:
    """serde refuses the file; Go takes the last."""
    assert dan.read(b'{"devices": [], "devices": []}').faults[0].startswith("devices: is there twice")


@pytest.mark.parametrize("sandbox", ["", "..", "a/b", "-x", "x" * 129, "a\n"])
def test_what_is_no_sandbox_has_no_file(sandbox: str) -> None:
    with pytest.raises(WireError, match="sandbox's id"):
        dan.file_of(sandbox)


def entry(**changed: object) -> bytes:
    """An entry of CNI's cache as libcni writes it, with a secret wherever one may be."""
    result = {
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "cni0"}, {"name": "eth0", "mtu": 1450, "sandbox": "/run/netns/x"}],
        "ips": [{"interface": 1, "address": "10.0.0.5/24", "gateway": "10.0.0.1"}, {"address": SECRET}],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.9.0.0/16", "gw": "10.0.0.9"}, {"dst": SECRET}],
        "dns": {"options": [SECRET]},
    }  # fmt: skip
    cached = {"kind": "cniCacheV1", "containerId": "sb1", "ifName": "eth0", "networkName": SECRET, "config": SECRET}
    return json.dumps({**cached, "cniArgs": [["K", SECRET]], "result": result, **changed}).encode()


def test_an_entry_of_cnis_cache_is_a_network_without_its_configuration() -> None:
    found = read_result(entry(), "sb1")

    assert found == PodNetwork(
        "/run/netns/x",
        (PodInterface("eth0", "", 1450, ("10.0.0.5/24",)),),
        (PodRoute("0.0.0.0/0", "10.0.0.1", "eth0"), PodRoute("10.9.0.0/16", "10.0.0.9", "eth0")),
    )
    assert SECRET not in repr(found)


@pytest.mark.parametrize(
    "data", [b"{}", b"x", entry(kind="cniCacheV2"), entry(containerId="sb2"), entry(result={"ips": [SECRET]})]
)
def test_another_entry_is_refused_without_its_content(data: bytes) -> None:
    with pytest.raises(WireError) as refused:
        read_result(data, "sb1")
    assert SECRET not in str(refused.value)
