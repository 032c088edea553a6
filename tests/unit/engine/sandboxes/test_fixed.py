"""What a VM of a fixed size cannot be given while it runs."""

import pytest

from nodeward.engine.sandboxes.fixed import changes, resizes, why_no_resize
from nodeward.model.sandboxes import Handler
from nodeward.model.workload import CpuRecord, HostShare

KATA = Handler("kata", config="/etc/kata.toml", static=True)
HAS = HostShare(CpuRecord(512, 50_000, 100_000), 1 << 20)
FREE = HostShare(CpuRecord(2, 0, 0))


@pytest.mark.parametrize(
    ("before", "asked", "says"),
    [
        pytest.param(HAS, HAS, [], id="the same again"),
        pytest.param(HAS, HostShare(), [], id="nothing said"),
        pytest.param(HAS, HostShare(CpuRecord(1024)), ["CPU shares (512 to 1024)"], id="shares alone"),
        pytest.param(HAS, HostShare(CpuRecord(512, 60_000, 100_000)), ["the CPU quota (50000 to 60000)"], id="quota"),
        pytest.param(HAS, HostShare(CpuRecord(512, 50_000, 50_000)), ["the CPU period (100000 to 50000)"], id="period"),
        pytest.param(HAS, HostShare(memory=2 << 20), ["the memory limit (1048576 to 2097152)"], id="memory"),
        pytest.param(
            HAS,
            HostShare(CpuRecord(quota=-1), -1),
            ["the CPU quota (50000 to none)", "the memory limit (1048576 to none)"],
            id="no limit any more",
        ),
        pytest.param(FREE, HostShare(CpuRecord(2, -1, 100_000), -1), [], id="no limit as before"),
        pytest.param(FREE, HostShare(memory=1), ["the memory limit (none to 1)"], id="a first limit"),
    ],
)
def test_what_changes(before: HostShare, asked: HostShare, says: list[str]) -> None:
    assert [*changes(before, asked)] == says
    assert why_no_resize(KATA, before, asked).startswith("infeasible: ") == bool(says)


def test_who_resizes() -> None:
    assert [resizes(Handler("kata", static=static)) for static in (True, False, None)] == [False, True, None]
