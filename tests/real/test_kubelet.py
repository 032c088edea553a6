"""A real kubelet 1.37 on real containerd, joined to a real API server, with `nodeward node` beside them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.peers.containerd import Containerd, running_containerd, wait_until
from tests.peers.kubelet import SYSCTLS, Kubelet, hierarchies, running_kubelet

LEFT_BEHIND = ("/var/lib/kubelet", "/var/log/containers", "/usr/libexec/kubernetes")

LIKED = {"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}
"""What a kubelet makes of a machine's settings, where it can."""


class BrokenTestError(Exception):
    """What a test that fails raises."""


@contextmanager
def kubelet_alone() -> Iterator[tuple[Containerd, Kubelet]]:
    """A kubelet that nobody tells of pods."""
    with (
        tempfile.TemporaryDirectory(prefix="ctd") as folder,
        running_containerd(Path(folder)) as containerd,
        running_kubelet(containerd, Path(folder) / "kubelet", "node-1") as kubelet,
    ):
        yield containerd, kubelet


def machine() -> dict[str, object]:
    """What a kubelet changes on a machine, as it is now."""
    sysctls = {name: Path("/proc/sys", name).read_text() for name in SYSCTLS}
    return {**sysctls, **{path: Path(path).exists() for path in LEFT_BEHIND}}


def cgroups_of(containerd: Containerd) -> list[Path]:
    """Our cgroup in each hierarchy where it is."""
    places = [root / containerd.cgroup_parent.lstrip("/") for root in hierarchies()]
    return [place for place in places if place.is_dir()]


def test_the_machine_is_as_before_also_when_a_test_fails() -> None:
    """Given a machine, when a kubelet makes sysctls and cgroups to its liking and the test fails, then none is left."""
    before = machine()
    places: list[Path] = []

    def story() -> None:
        with kubelet_alone() as (containerd, kubelet):
            places.extend(cgroups_of(containerd))
            wait_until(lambda: any((place / "kubepods" / "besteffort").is_dir() for place in places), "kubepods cgroup")
            wait_until(lambda: {name: kubelet.sysctl(name) for name in LIKED} == LIKED, "sysctls")
            assert machine() == before
            raise BrokenTestError(containerd.folder)

    with pytest.raises(BrokenTestError) as broken:
        story()
    assert machine() == before
    assert places
    assert not [place for place in places if place.exists()]
    assert str(broken.value) not in Path("/proc/self/mountinfo").read_text()
