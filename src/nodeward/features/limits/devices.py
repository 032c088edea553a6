"""The device nodes of SGX in the place of Intel's plugin: ids for kubelet, or given by the runtime at our word.

An id is a token: there is no hardware behind it, and any container may have one while the node's device is there. By
NRI nothing is counted: whose spec in the API server declares EPC gets /dev/sgx_enclave. A device is a right, so an
annotation gives none. Nothing in a spec but its own name asks for /dev/sgx_provision, so that goes by ids all the same.
"""

import json
from collections.abc import Mapping
from dataclasses import replace

from nodeward.core import annotations as keys
from nodeward.core import events as ev
from nodeward.core.decision import NOTHING, Adjustment, Decision, Final, Goal, Special, Target
from nodeward.core.devices import ENCLAVE, PROVISION, SGX_NODES, DeviceNode
from nodeward.core.refusal import Reason, Refusal, Refused
from nodeward.core.tables import put
from nodeward.features.limits.promise import EPC
from nodeward.features.limits.settings import GivenBy
from nodeward.features.limits.state import Devices, Limits
from nodeward.features.pods.found import is_waited_for
from nodeward.features.root import State

KIND = "sgx-offer"
"""Of the goals that say which ids kubelet is offered."""


def seen(state: State, event: ev.EnclavesSeen) -> tuple[Limits, Decision]:
    """What is offered once the node's files were looked at."""
    of = state.limits.devices
    there = [resource for resource in SGX_NODES if _node(event, resource) is not None]
    return listed(state, replace(of, seen=event, ever=tuple(dict.fromkeys((*of.ever, *there)))))


def plugin_told(state: State, event: ev.PluginTold) -> Limits:
    """The slice once our plugin has told how it stands."""
    of = state.limits.devices
    if event.resource not in SGX_NODES:
        return state.limits
    return replace(state.limits, devices=replace(of, plugins=put(of.plugins, event.resource, event)))


def listed(state: State, of: Devices) -> tuple[Limits, Decision]:
    """The ids of each resource whose device node is there; unhealthy while it has gone. Before it was ever there nobody
    is told of the resource, or every node of a cluster would have it."""
    now: Mapping[str, str] = {}
    by = state.settings.limits
    counts = {ENCLAVE: by.enclave_ids if by.devices is GivenBy.PLUGIN else 0, PROVISION: by.provision_ids}
    if by.devices is not GivenBy.OFF and of.seen is not None:
        now = {one: _ids(one, counts[one], _node(of.seen, one) is not None) for one in of.ever if counts[one]}
    limits = replace(state.limits, devices=replace(of, listed=now))
    changed = [one for one in SGX_NODES if now.get(one) != of.listed.get(one)]
    if not changed:
        return limits, NOTHING
    goals = [Goal(Target(KIND, one), now.get(one, Special.ABSENT), Reason("offered", (one,))) for one in changed]
    return limits, Decision(goals=tuple(goals))


def allocating(state: State, event: ev.Allocating) -> Final | None:
    """The answer to kubelet; None where the resource is not offered."""
    ids = dict(json.loads(state.limits.devices.listed.get(event.resource, "[]")))
    if not ids:
        return None
    unknown = [name for name in event.ids if name not in ids]
    if unknown:
        return _refused(f"{unknown[0]!r} is none of the {len(ids)} ids of {event.resource}", Refused.BAD_VALUE)
    if not all(ids.values()):
        return _refused(_missing(state, event.resource), Refused.NO_CAPACITY)
    return Final(Adjustment(), Reason("granted", (event.resource, *event.ids)))


def given(state: State, event: ev.Creating) -> Final | None:
    """The device node that the container gets from the runtime, or why it cannot have it; None for none."""
    known = state.pods.specs.get(event.sandbox.pod_uid)
    if state.settings.limits.devices is not GivenBy.NRI or event.by_hook:
        return None
    who = f"{event.sandbox.namespace}/{event.sandbox.name}, container {event.container.name}"
    if known is None:
        if not _may_declare(event) or is_waited_for(state, event):
            return None
        why = "an annotation tells of EPC, and the pod's spec is not known yet; kubelet tries again (nodeward status)"
        return _refused(f"{who}: {why}", Refused.FOR_NOW)
    if not any(one.name == event.container.name and one.declared.get(EPC, 0) for one in known.spec.containers):
        return None
    of = state.limits.devices.seen
    node = _node(of, ENCLAVE) if of is not None else None
    if node is not None:
        return Final(Adjustment(devices=(node,)), Reason("device", (node.path,)))
    return _refused(f"{who}: {_missing(state, ENCLAVE)}", Refused.NO_CAPACITY)


def _may_declare(event: ev.Creating) -> bool:
    """Whether an annotation tells of EPC: no reason to give a device, but one to wait for the spec."""
    notes = event.sandbox.annotations
    return keys.EPC_SUM in notes or EPC in notes.get(keys.OWN_LIMITS, "")


def _ids(resource: str, count: int, healthy: bool) -> str:
    """As Intel's plugin names them."""
    return json.dumps([[f"{ids_begin(resource)}{number}", healthy] for number in range(count)], separators=(",", ":"))


def is_given(state: State, resource: str) -> bool:
    """Whether the settings want containers to be given this one's device node."""
    of = state.settings.limits
    if of.devices is GivenBy.OFF:
        return False
    if resource == PROVISION:
        return of.provision_ids > 0
    return of.devices is GivenBy.NRI or of.enclave_ids > 0


def ids_begin(resource: str) -> str:
    """What the names of its ids begin with: `sgx-enclave-`."""
    return f"sgx-{resource.rpartition('/')[2]}-"


def _node(of: ev.EnclavesSeen, resource: str) -> DeviceNode | None:
    return next((one for one in of.nodes if one.path == SGX_NODES[resource]), None)


def _missing(state: State, resource: str) -> str:
    path, of = SGX_NODES[resource], state.limits.devices.seen
    why = of.missing.get(path, "not there") if of is not None else "not looked at yet"
    return (
        f"{path}, which it needs, is {why}; see that SGX is on in the firmware and in the kernel (CONFIG_X86_SGX), and "
        "that the daemon sees the host's /dev (docs/claims.md)"
    )


def _refused(why: str, kind: Refused) -> Final:
    return Final(Refusal(f"Nodeward: {why}", kind), Reason("refused", (why,)))
