"""What the page's server keeps of the pictures that went by."""

from nodeward.features.limits.rows import CgroupRow, ResourceRow
from nodeward.people.rows import NodeView
from nodeward.programs.page.memory import HISTORY, Memory

MIB = 1 << 20


def node(**refused: int) -> NodeView:
    rows = tuple(
        CgroupRow(
            *("pod", "shop", name, "", "", f"/{name}", "enforced", "spec", "declared"),
            (ResourceRow("sgx_epc", 8 * MIB, 8 * MIB, 4 * MIB, 5 * MIB, count),),
        )
        for name, count in refused.items()
    )
    sizes, used, promised = {"sgx_epc": 64 * MIB}, {"sgx_epc": 20 * MIB}, {"sgx_epc": 8 * MIB}
    return NodeView("enforce", "c", "answers", True, sizes, used, rows, promised=promised)


def test_ten_minutes_are_kept_and_refusals_by_the_second() -> None:
    memory = Memory()
    for second in range(HISTORY + 5):
        memory.look(node(web=2 * second, calm=0), float(second))
    assert (len(memory.times), memory.times[0]) == (HISTORY, 5.0)
    used, promised = memory.used["sgx_epc"], memory.promised["sgx_epc"]
    assert (len(used), used[-1], len(promised), promised[-1]) == (HISTORY, 20 * MIB, HISTORY, 8 * MIB)
    assert {pod: set(counts) for pod, counts in memory.sparks.items()} == {"shop/web": {2}}
    memory.look(node(calm=3), 998.0)
    assert list(memory.sparks["shop/calm"]) == [3], "the first refusal counts too"
    memory.look(node(), 999.0)
    assert memory.sparks == {}, "a pod that is gone is forgotten"
