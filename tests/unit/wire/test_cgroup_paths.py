"""Cgroup names of both drivers, and names that must not lead anywhere else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.wire.cgroup_paths import container_path, parent_path
from nodeward.wire.errors import WireError

UID = "pod1234_5678"


@pytest.mark.parametrize(
    ("named", "path"),
    [
        ("", ""),
        (f"/kubepods/burstable/{UID}", f"/kubepods/burstable/{UID}"),
        (
            f"kubepods-burstable-{UID}.slice",
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-{UID}.slice",
        ),
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


@given(st.text(max_size=100))
def test_whatever_the_name_the_path_stays_below_the_root(named: str) -> None:
    for resolve in (parent_path, container_path):
        try:
            path = resolve(named)
        except WireError:
            continue
        assert path == "" or (path.startswith("/") and ".." not in path.split("/"))
