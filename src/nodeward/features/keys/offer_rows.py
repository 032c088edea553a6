"""How it stands with what kubelet is offered of a kind, in numbers: for metrics and people. Nothing is decided here."""

from nodeward.core.modes import Mode
from nodeward.features.keys import loss
from nodeward.features.keys import sums as ledger
from nodeward.features.keys.delays import row
from nodeward.features.keys.rows import KeyOffer
from nodeward.features.keys.settings import Attestation
from nodeward.features.root import State


def offer_row(state: State, key: str) -> KeyOffer | None:
    """The numbers; None where the settings do not want the kind to be offered by us, or only observe."""
    kind = state.settings.ledger.keys[key]
    if state.settings.ledger.mode is not Mode.ENFORCE or not ledger.is_tracked(kind):
        return None
    told, quotes = state.ledger.plugins.get(kind.publish), state.ledger.quotes.get(key)
    return KeyOffer(
        withheld=ledger.withheld(state, key)[0] or ledger.unknown(state, key),
        standing="" if told is None else told.standing.value,
        kubelet_restarts=0 if told is None else told.restarts,
        quotes=None if kind.attestation is Attestation.OFF else quotes is not None and quotes.answers,
        journal_fault=state.ledger.journal_fault,
        journal_lost=loss.finding(state.ledger, key),
        delays=row(state, key),
    )
