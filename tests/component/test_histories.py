"""The ledger's step on a node with two keys: every history, some ten thousand worlds (a minute)."""

from tests.told import tell
from tests.unit.engine.ledger.histories import explore


def test_no_history_of_a_node_with_two_keys_has_an_unsafe_grant_or_a_start_without_a_key() -> None:
    """VMs, foreigners and pods move between the questions; within one sample they stand still here, and one pod at a
    time has ended and is not forgotten by everybody. With more: `make explore`."""
    found = explore(2, 0, 1)
    tell(f"two keys: {found.worlds} worlds, {found.asked} questions, {found.grants} grants, {found.wrong} wrong")
    assert found.beside_charged
    assert found.again
    assert found.wrong == 0, found


def test_no_history_of_a_node_with_three_keys_is_unsafe_while_no_pod_ends() -> None:
    """Everything else goes on: VMs, foreigners, double assignment, lost answers, a daemon that dies."""
    found = explore(3, 0, 0)
    tell(f"three keys, no pod ends: {found.worlds} worlds, {found.asked} questions, {found.grants} grants")
    assert found.beside_charged
    assert found.wrong == 0, found


def test_it_takes_three_transitions_within_a_sample_to_hide_a_foreign_key() -> None:
    """What counters cannot see: a pod's VM ends and begins again while foreigners come and go between the reads."""
    assert explore(2, 2, 0).unsafe.total() == 0
    found = explore(2, 3, 0)
    tell(f"two keys, up to three transitions a sample: unsafe by transitions {dict(found.unsafe)}")
    assert [moved for moved, unsafe in found.unsafe.items() if unsafe] == [3]
