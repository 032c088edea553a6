"""Cgroup names of both drivers, and names that must not lead anywhere else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.wire.cgroup_paths import (
    by_controller,
    container_id,
    container_path,
    is_qos,
    joined,
    of_process,
    parent_path,
    pod_uid,
    pods_root,
)
from nodeward.wire.errors import WireError

UID = "pod1234_5678"


@pytest.mark.parametrize(
    ("named", "path"),
    [
        ("", ""),
        (f"/kubepods/burstable/{UID}", f"/kubepods/burstable/{UID}"),
        (f"kubepods-burstable-{UID}.slice", f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-{UID}.slice"),
        (
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-{UID}.slice",
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-{UID}.slice",
        ),
    ],
    ids=["none", "cgroupfs", "systemd, name only", "systemd, whole path"],
)
def test_a_pods_cgroup(named: str, path: str) -> None:
    assert parent_path(named) == path


@pytest.mark.parametrize(
    ("named", "path"),
    [
        ("", ""),
        ("/kubepods/pod1/c0ffee", "/kubepods/pod1/c0ffee"),
        (
            "kubepods-pod1.slice:cri-containerd:c0ffee",
            "/kubepods.slice/kubepods-pod1.slice/cri-containerd-c0ffee.scope",
        ),
        ("kubepods-pod1.slice:crio:c0ffee", "/kubepods.slice/kubepods-pod1.slice/crio-c0ffee.scope"),
    ],
    ids=["none", "cgroupfs", "containerd by systemd", "CRI-O by systemd"],
)
def test_a_containers_cgroup(named: str, path: str) -> None:
    assert container_path(named) == path


@pytest.mark.parametrize("named", ["/kubepods/../../etc", "/a//b", "/a/./b", "a--b.slice", "/a\0b", "/" + "a" * 5000])
def test_a_name_that_is_no_plain_path_is_refused(named: str) -> None:
    with pytest.raises(WireError):
        parent_path(named)


def test_a_name_with_another_line_end_in_it_forges_no_line() -> None:
    named = "/user.slice/a\u20280::/kubepods/podvictim"
    data = f"0::{named}\n".encode()
    assert (of_process(data), by_controller(data)) == ((named, ""), {"": named})
    assert not joined(data, "/kubepods/podvictim", "c0ffee")


@given(st.text(max_size=100))
def test_whatever_the_name_the_path_stays_below_the_root(named: str) -> None:
    for resolve in (parent_path, container_path):
        try:
            path = resolve(named)
        except WireError:
            continue
        assert path == "" or (path.startswith("/") and ".." not in path.split("/"))


ID = "0123456789abcdef" * 4
SLICES = "/kubepods.slice/kubepods-burstable.slice"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        pytest.param(ID, ID, id="cgroupfs"),
        pytest.param(f"cri-containerd-{ID}.scope", ID, id="containerd, systemd"),
        pytest.param(f"crio-{ID}.scope", ID, id="CRI-O, systemd"),
        pytest.param(f"crio-conmon-{ID}.scope", "", id="CRI-O's monitor"),
        pytest.param(f"x{ID}", "", id="a longer name"),
        pytest.param(ID.upper(), "", id="no id: upper case"),
        pytest.param(ID[:-1], "", id="too short"),
        pytest.param("cgroup.procs", "", id="a file"),
        pytest.param("kata_overhead", "", id="Kata's overhead"),
    ],
)
def test_a_containers_id_in_the_name_of_its_cgroup(name: str, found: str) -> None:
    assert container_id(name) == found


@pytest.mark.parametrize(
    ("path", "uid", "root"),
    [
        ("/kubepods/pod12-34", "12-34", "/kubepods"),
        ("/kubepods/burstable/pod12-34", "12-34", "/kubepods"),
        (f"{SLICES}/kubepods-burstable-pod12_34.slice", "12-34", "/kubepods.slice"),
        ("/kubepods.slice/kubepods-pod12_34.slice", "12-34", "/kubepods.slice"),
        ("/mine/pod1", "1", "/mine"),
        ("/system.slice/foo.service", "", "/system.slice"),
        ("/kubepods.slice/kubepods-burstable.slice", "", "/kubepods.slice"),
    ],
)
def test_a_pods_uid_and_the_root_of_all_pods(path: str, uid: str, root: str) -> None:
    assert (pod_uid(path.rpartition("/")[2]), pods_root(path)) == (uid, root)


@pytest.mark.parametrize("name", ["burstable", "besteffort", "kubepods-besteffort.slice", "a-b-burstable.slice"])
def test_names_of_qos_classes(name: str) -> None:
    assert is_qos(name)
    assert not is_qos(name.replace("st", "ts"))
