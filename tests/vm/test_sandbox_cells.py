"""The cells of VM sandboxes that this machine does not reach, with cgroup v2 and systemd: the cases of
tests/contract/sandboxes, played in a guest."""

import pytest

from tests.vm.chains import pytest_inside

pytestmark = pytest.mark.nightly

FILES = ("test_cells_go.py", "test_cgroups_rs.py", "test_sandbox_cgroup.py")


def test_with_cgroup_v2_and_systemd() -> None:
    cases = [f"tests/contract/sandboxes/{name}" for name in FILES]
    said = pytest_inside("tests.vm.sandbox_cells", *cases, peers=("cgroupsrs", "katahost"))
    assert ", 1 skipped" in said, "the one that needs cgroup v1"
