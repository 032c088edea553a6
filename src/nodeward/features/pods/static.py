"""Finds the UID under which a pod's spec is kept: its own, or that of the static pod that it mirrors.

The runtime knows a static pod by a hash that only annotations of its mirror pod name, and who may create pods may write
those. So a claim is believed only where it takes nothing from anybody: never against a pod whose own UID this is, and
not against a sandbox, or a mirror that was there before, of another name. A pod whose claim is not believed is kept
under its own UID, as if it had claimed nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from nodeward.core.tables import without
from nodeward.core.workload import PodSpec, PodUid, Sandbox
from nodeward.features.pods.state import KnownSpec, Pods


def kept(pods: Pods, spec: PodSpec, seq: int) -> dict[PodUid, KnownSpec]:
    """The specs with this one, which may have been elsewhere before; a claim on its own UID makes way for it."""
    uid = _place(pods, pods.specs, spec)
    specs = {place: one for place, one in pods.specs.items() if place == uid or one.spec.uid != spec.uid}
    before = specs.get(uid)
    specs[uid] = KnownSpec(spec, seq)
    if before is not None and before.spec.uid != spec.uid == uid:
        specs[before.spec.uid] = before
    return specs


def listed(pods: Pods, every: Iterable[PodSpec], seq: int) -> dict[PodUid, KnownSpec]:
    """The specs of a whole list, which are put beside one another in any order."""
    found = {spec.uid: KnownSpec(spec, seq) for spec in every}
    before = {uid: one for uid, one in pods.specs.items() if one.spec.uid in found and uid not in found}
    for spec in [one.spec for one in found.values() if one.spec.config_hash]:
        uid = _place(pods, {**before, **found}, spec)
        found[uid] = found.pop(spec.uid)
    return found


def rightful(pods: Pods, sandbox: Sandbox) -> Pods:
    """The pods before this sandbox is known: where a pod of another name has claimed its place, without that one
    there."""
    uid = sandbox.pod_uid
    known = pods.specs.get(uid)
    if known is None or known.spec.uid == uid or not sandbox.name or _same(known.spec, sandbox):
        return pods
    specs = {**without(pods.specs, (uid,)), known.spec.uid: known}
    for one in specs.values():
        if one.spec.config_hash == uid and _same(one.spec, sandbox):
            return replace(pods, specs={**without(specs, (one.spec.uid,)), uid: one})
    return replace(pods, specs=specs)


def _place(pods: Pods, specs: Mapping[PodUid, KnownSpec], spec: PodSpec) -> PodUid:
    uid = PodUid(spec.config_hash)
    if not uid or uid == spec.uid:
        return spec.uid
    known, sandbox_id = specs.get(uid), pods.sandbox_of.get(uid)
    if known is not None and known.spec.uid == uid:
        return spec.uid
    home = pods.sandboxes[sandbox_id].sandbox if sandbox_id is not None else None
    holder = home if home is not None and home.name else known.spec if known is not None else None
    return uid if holder is None or _same(spec, holder) else spec.uid


def _same(one: PodSpec, other: PodSpec | Sandbox) -> bool:
    return (one.namespace, one.name) == (other.namespace, other.name)
