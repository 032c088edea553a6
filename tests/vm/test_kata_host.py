"""Kata's host side with cgroup v2 and systemd: the cases of tests/real/test_kata_host.py, played in a guest."""

import pytest

from tests.vm.chains import pytest_inside

pytestmark = pytest.mark.nightly


def test_with_cgroup_v2_and_systemd() -> None:
    said = pytest_inside("pytest", "tests/real/test_kata_host.py", peers=("containerd", "katahost"), stock=True)
    assert "5 passed" in said
