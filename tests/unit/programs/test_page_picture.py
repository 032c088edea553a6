"""What the page shows of a view: order, history, squares."""

from dataclasses import replace

from nodeward.core.conditions import HappenedRow
from nodeward.features.keys.rows import KeyElsewhere, KeyHolder, KeyIdRow, KeyRow
from nodeward.features.limits.rows import CgroupRow, ResourceRow
from nodeward.people.rows import NodeView
from nodeward.programs.page.picture import HISTORY, Memory, picture, promised

MIB = 1 << 20


def node(*pods: tuple[str, str, int], keys: tuple[KeyRow, ...] = ()) -> NodeView:
    """Pods by name, state and refusals, each with a limit of 8 MiB."""
    rows = tuple(
        CgroupRow(
            *("pod", "shop", name, "", "", f"/{name}", state, "spec", "declared"),
            (ResourceRow("sgx_epc", 8 * MIB, 8 * MIB, 4 * MIB, 5 * MIB, refused),),
        )
        for name, state, refused in pods
    )
    sizes, used, outside = {"sgx_epc": 64 * MIB}, {"sgx_epc": 20 * MIB}, {"sgx_epc": 4 * MIB}
    return NodeView("enforce", "c", "answers", True, sizes, used, rows, elsewhere=outside, keys=keys)


def test_who_has_a_problem_comes_first_and_numbers_count_as_numbers() -> None:
    view = node(("pod-10", "enforced", 0), ("pod-2", "enforced", 0), ("z", "drift", 0), ("a", "stale", 0))
    shown = picture(view, Memory(), (), "")
    assert [pod.name for pod in shown.pods] == ["shop/z", "shop/a", "shop/pod-2", "shop/pod-10"]
    assert shown.pods[0].cells[0].part == 0.5
    assert (shown.bars[0].texts["free"], shown.bars[0].texts["promised"]) == ("28Mi", "32Mi")


def test_free_is_what_may_still_be_promised_in_bar_legend_and_squares() -> None:
    """What is promised and not used is not free, nor what nobody promised and somebody uses; the blank rest of the bar
    is just as long. What is not known is not free either."""
    view = node(("web", "enforced", 0))
    greedy = replace(view.rows[0], pod="more", resources=(replace(view.rows[0].resources[0], wanted=None),))
    bar = picture(replace(view, rows=(*view.rows, greedy)), Memory(), (), "").bars[0]
    assert (bar.texts["free"], bar.capacity - bar.taken - (bar.outside or 0)) == ("48Mi", 48 * MIB)
    unread = picture(replace(view, elsewhere={}), Memory(), (), "").bars[0]
    assert unread.texts["free"] == "-"
    kept = KeyRow("tdx", (), 5, 2, used=0, free=3)
    squares = picture(node(keys=(kept,)), Memory(), (), "").keys[0].squares
    assert [one.state for one in squares] == ["withheld"] * 2 + ["free"] * 3


def test_a_pod_with_a_condition_comes_first_and_says_which() -> None:
    view = node(("a", "enforced", 0), ("z", "enforced", 0))
    happened = HappenedRow("vm-killed", "shop/z", 1, "2026-11-28T07:00:00Z", "2026-11-28T07:00:00Z")
    pod = picture(replace(view, lately=(happened,)), Memory(), (), "").pods[0]
    assert (pod.name, pod.state, pod.severity) == ("shop/z", "vm-killed", "critical")


def test_ten_minutes_are_kept_and_refusals_by_the_second() -> None:
    memory = Memory()
    for second in range(HISTORY + 5):
        memory.look(node(("web", "enforced", 2 * second), ("calm", "enforced", 0)), float(second))
    shown = picture(node(("web", "enforced", 0)), memory, (), "")
    times, used, wanted = shown.bars[0].history
    assert (len(times), len(used), len(wanted), times[0]) == (HISTORY, HISTORY, HISTORY, 5.0)
    assert set(shown.pods[0].refused) == {2}
    memory.look(node(("calm", "enforced", 3)), 998.0)
    assert list(memory.sparks["shop/calm"]) == [3], "the first refusal counts too"
    memory.look(node(), 999.0)
    assert memory.sparks == {}, "a pod that is gone is forgotten"


def test_a_square_for_each_key_by_id_where_we_offer_them_else_by_holder() -> None:
    ids = (KeyIdRow("tdx-0", "charged", 0, ("shop/vm",)), KeyIdRow("tdx-1", "free", 0))
    holders = (KeyHolder("shop", "vm", "u", 2, 1),)
    foreign = (KeyElsewhere("/qemu", "a VM of libvirt", 1, "machine"),)
    offered = KeyRow("tdx", (), 2, 0, ids=ids, entitled=1)
    counted = KeyRow("tdx", (), 5, 0, holders=holders, elsewhere=foreign, entitled=2, free=2)
    first, second = (picture(node(keys=(row,)), Memory(), (), "").keys[0].squares for row in (offered, counted))
    assert [(one.id, one.state, one.owner) for one in first] == [("tdx-0", "charged", "shop/vm"), ("tdx-1", "free", "")]
    assert [one.state for one in second] == ["charged", "granted", "outside", "free", "free"]
    assert promised(node(keys=(counted,)), "tdx") == 2


def test_a_key_that_is_promised_is_not_free_on_the_bar() -> None:
    view = replace(
        node(keys=(KeyRow("tdx", (), 8, 0, used=5, entitled=8, free=0),)), capacity={"tdx": 8}, usage={"tdx": 5}
    )
    assert picture(view, Memory(), (), "").bars[0].texts["free"] == "0"
