"""Keys that a pod's VM holds outside the cgroups that are known to be pods': in Kata's overhead cgroup, where its VMM
may be, or in the cgroup of a pod of which no runtime has told, as without NRI.

They are the pod's, and not foreign. A sample reads them once only, so no more is subtracted from what is in use than
was there in the sample before too: a key that came since the root was read is foreign until the next sample, and never
sold twice.
"""

from collections.abc import Mapping
from dataclasses import replace

from nodeward.core.events import HeldElsewhere, KeysRead
from nodeward.core.vms import outside_of
from nodeward.core.workload import PodUid
from nodeward.features.root import State


def attributed(state: State, event: KeysRead) -> tuple[KeysRead, Mapping[str, int]]:
    """The sample with such keys among those of their pods; and how many each cgroup holds, for the next one."""
    before, now = state.ledger.outside, dict[str, int]()
    pods: dict[PodUid, dict[str, tuple[int, ...]]] = {}
    left = list[HeldElsewhere]()
    for one in event.elsewhere:
        known = None if one.below else state.pods.sandboxes.get(outside_of(one.path))
        uid = known.sandbox.pod_uid if known is not None else one.pod
        if not uid or uid in event.unread:
            left.append(one)
            continue
        name = f"{one.key} {one.path}"
        now[name] = one.amount
        counted = min(one.amount, before.get(name, 0))
        if one.amount > counted:
            left.append(replace(one, amount=one.amount - counted))
        if counted:
            held = pods.setdefault(uid, {})
            reads = held.get(one.key) or event.pods.get(uid, {}).get(one.key, (0, 0))
            held[one.key] = tuple(read + counted for read in reads)
    if not pods:
        return event, now
    merged = {**event.pods, **{uid: {**event.pods.get(uid, {}), **held} for uid, held in pods.items()}}
    return replace(event, pods=merged, elsewhere=tuple(left)), now
