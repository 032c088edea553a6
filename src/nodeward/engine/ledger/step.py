"""How events change the ledger: the newest sample replaces the one before it. Nothing is performed yet."""

from nodeward.engine.state import Ledger, State
from nodeward.model import events as ev
from nodeward.model.decision import NOTHING, Decision
from nodeward.model.settings import Mode


def step(state: State, event: ev.Event) -> tuple[Ledger, Decision]:
    """The slice after `event`."""
    if isinstance(event, ev.KeysRead):
        return Ledger(event), NOTHING
    if isinstance(event, ev.SettingsChanged) and state.settings.ledger.mode is Mode.OFF:
        return Ledger(), NOTHING
    return state.ledger, NOTHING
