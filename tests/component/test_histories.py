"""The ledger's rules on a node with two keys: every history, some hundred thousand worlds (a third of a minute)."""

from tests.told import tell
from tests.unit.engine.ledger.histories import explore


def test_no_history_of_a_node_with_two_keys_has_an_unsafe_grant_or_a_start_without_a_key() -> None:
    """VMs, foreigners and pods move between the questions; within one sample they stand still here."""
    found = explore(2, 0)
    tell(f"two keys: {found.worlds} worlds, {found.grants} grants, {found.wrong} wrong")
    assert found.beside_charged
    assert found.wrong == 0, found
