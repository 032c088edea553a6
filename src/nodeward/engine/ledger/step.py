"""How events change the ledger: the newest sample, or view of kubelet's, replaces the one before it. Nothing is
performed yet."""

from nodeward.engine.state import Ledger, State
from nodeward.model import events as ev
from nodeward.model.decision import NOTHING, Decision
from nodeward.model.settings import Mode


def step(state: State, event: ev.Event) -> tuple[Ledger, Decision]:
    """The slice after `event`."""
    if isinstance(event, ev.KeysRead):
        return Ledger(event, state.ledger.held, state.ledger.held_fault), NOTHING
    if isinstance(event, ev.KeysHeld):
        return Ledger(state.ledger.sample, state.ledger.held if event.fault else event, event.fault), NOTHING
    if isinstance(event, ev.SettingsChanged) and state.settings.ledger.mode is Mode.OFF:
        return Ledger(), NOTHING
    return state.ledger, NOTHING
