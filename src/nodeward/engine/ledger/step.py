"""How events change the ledger: the newest sample, or view of kubelet's, replaces the one before it. Nothing is
performed yet."""

from dataclasses import replace

from nodeward.engine.state import Ledger, State
from nodeward.model import events as ev
from nodeward.model.decision import NOTHING, Decision
from nodeward.model.settings import Mode


def step(state: State, event: ev.Event) -> tuple[Ledger, Decision]:
    """The slice after `event`."""
    if isinstance(event, ev.KeysRead):
        return replace(state.ledger, sample=event), NOTHING
    if isinstance(event, ev.KeysHeld):
        held = state.ledger.held if event.fault else event
        return replace(state.ledger, held=held, held_fault=event.fault), NOTHING
    if isinstance(event, ev.NfdSeen):
        nfd = state.ledger.nfd if event.fault else event
        return replace(state.ledger, nfd=nfd, nfd_fault=event.fault), NOTHING
    if isinstance(event, ev.SettingsChanged) and state.settings.ledger.mode is Mode.OFF:
        return Ledger(), NOTHING
    return state.ledger, NOTHING
