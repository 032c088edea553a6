"""What happens after the journal of grants was removed: only kubelet then knows which ids it gave out.

What kubelet names is taken for granted in this boot, as if it were on record, and is on record again when that is over
(features/keys, R7). Until then nothing is released and nothing more is given out: kubelet writes down what it was
answered some time after the answer, and a view tells only what was there when it was requested. So it is over with a
whole view of the checkpoint that was requested SETTLE_NS or more after the loss was told, once the API server or
kubelet's Pods API has told of the pods, or neither has for PODS_NS: this node may have none.
"""

from dataclasses import replace

from nodeward.core.events import GrantsRecalled, KeysHeld, KeysRead
from nodeward.features.keys import device_ids
from nodeward.features.keys.device_ids import SETTLE_NS
from nodeward.features.keys.state import Keys, Loss

PODS_NS = 30_000_000_000
"""So long the pods are waited for; an API server that can be reached has told of them by then."""

FROZEN = "the journal of grants was removed since the boot, and what was granted is still being found out from kubelet"


def is_frozen(keys: Keys) -> bool:
    """Whether it is still being found out what was granted."""
    return keys.loss is not None and not keys.loss.over_seq


def told(keys: Keys, event: GrantsRecalled) -> Keys:
    """The slice once the loss is known, though views may have come before."""
    return _adopted(replace(keys, loss=Loss(event.at_ns)), event.seq)


def later(keys: Keys, event: KeysRead | KeysHeld) -> Keys:
    """The slice after a sample or a view."""
    loss = keys.loss
    if loss is None or loss.over_seq:
        return keys
    awake_ns = min(loss.awake_ns + device_ids.awake(loss.heard_ns, event.at_ns), PODS_NS)
    sure_seq = loss.sure_seq or (event.seq if awake_ns >= SETTLE_NS else 0)
    return replace(keys, loss=Loss(event.at_ns, awake_ns, sure_seq))


def stood_in(keys: Keys, event: KeysRead) -> Keys:
    """The slice after a sample, while kubelet's other sources replace its checkpoint."""
    loss = keys.loss
    if loss is None or loss.over_seq or not 0 < loss.sure_seq < event.seq:
        return keys
    return replace(keys, loss=replace(loss, over_seq=event.seq))


def viewed(keys: Keys, event: KeysHeld) -> Keys:
    """The slice after a view of kubelet's, which is in it."""
    if not is_frozen(keys):
        return keys
    keys = _adopted(later(keys, event), event.seq)
    loss = keys.loss
    if loss is None or not _is_sure(keys, loss):
        return keys
    return replace(keys, loss=replace(loss, over_seq=event.seq))


def _is_sure(keys: Keys, loss: Loss) -> bool:
    """Whether all is told that was granted before the loss."""
    is_whole = keys.held_whole and not keys.held_fault and 0 < loss.sure_seq <= keys.held_as_of
    return is_whole and (keys.api_heard or keys.of_kubelet is not None or loss.awake_ns >= PODS_NS)


def finding(keys: Keys, key: str) -> str:
    """What an operator should know of a kind of key, until every id that only kubelet reported is back; empty then."""
    loss, offer = keys.loss, keys.offers.get(key)
    if loss is None or offer is None:
        return ""
    if not loss.over_seq:
        return f"{FROZEN}."
    count = sum(0 < grant.seq <= loss.over_seq for grant in offer.grants.values())
    if not count:
        return ""
    return (
        f"the journal of grants was removed since the boot: {count} id(s) are taken for granted by kubelet's word "
        "alone; something removes files in the folder run_dir."
    )


def _adopted(keys: Keys, seq: int) -> Keys:
    offers = {key: device_ids.adopted(offer, seq) for key, offer in keys.offers.items()}
    return keys if all(offers[key] is keys.offers[key] for key in offers) else replace(keys, offers=offers)
