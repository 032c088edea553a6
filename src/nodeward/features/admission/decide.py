"""Decides what the API server is answered about a pod.

A pod that is made gets all that belongs to it, or is refused with every fault. Of a pod that exists only the
annotations can still change; they are set right again, and nothing is refused: a pod that was made before this rule
must stay mendable. A list of plugins there that cannot be read stays, with a warning, and keeps nothing else from being
set right. The same holds for the picture of a static pod, which comes from a file of its node. An ephemeral
container is refused if it names a resource; nothing else of the pod can change with it.
"""

from collections.abc import Container, Iterable

from nodeward.core import annotations as keys
from nodeward.core.devices import ENCLAVE, PROVISION
from nodeward.core.quantity import MAX_VALUE, QuantityError, whole_units
from nodeward.core.workload import Role
from nodeward.features.admission import devices, notes
from nodeward.features.admission.declared import as_written, declared, nothing_at_all
from nodeward.features.admission.values import AdmissionRule, ContainerAsked, Operation, PodAsked, Verdict
from nodeward.features.pods.budget import containers_need

_PAGE = 4096

_MAX_FAULTS = 10


def admit(operation: Operation, pod: PodAsked, rule: AdmissionRule) -> Verdict:
    """The verdict on `pod`."""
    if operation is Operation.OTHER or (operation is Operation.DEBUG and not _debugs(pod)):
        return Verdict()
    watched = tuple(dict.fromkeys((*rule.resources, devices.EPC, ENCLAVE, PROVISION)))
    faults: list[str] = []
    chosen = _debugs(pod) if operation is Operation.DEBUG else pod.containers
    table = tuple([(container, declared(container, watched, faults)) for container in chosen])
    if operation is Operation.DEBUG:
        return _refused(faults)
    made_here = operation is Operation.CREATE and keys.MIRROR not in pod.annotations
    if made_here:
        faults += [nothing_at_all(container) for container, amounts in table if amounts.get(devices.EPC) == 0]
    named = dict.fromkeys([resource for _, amounts in table for resource in amounts])
    needs = _needs(table, named, rule, faults)
    users = tuple([container for container, amounts in table if devices.EPC in amounts])
    overhead = _overhead(pod, rule)
    must = dict(notes.wanted(table, named, overhead, needs.get(devices.EPC), rule))
    unread: list[str] = []
    if rule.required_plugin and any(api in named for api in rule.resources):
        must |= notes.required(pod.annotations, rule.required_plugin, unread)
    if made_here and (faults or unread):
        return _refused((*faults, *unread))
    if faults:
        return Verdict()
    changed = notes.differences(pod.annotations, must)
    if not made_here:
        return Verdict(warnings=(*_few(unread), *_unasked(pod, users)), annotations=changed)
    provider = pod.annotations.get(keys.QUOTE_PROVIDER, "")
    return Verdict(
        warnings=(*devices.warnings(pod, users, provider), *_unasked(pod, users), *_tiny(table)),
        annotations=changed,
        containers=devices.container_changes(users, provider, by_nri=rule.by_nri),
        aesm_volume=devices.aesm_volume(pod, users, provider),
    )


def _debugs(pod: PodAsked) -> tuple[ContainerAsked, ...]:
    return tuple(container for container in pod.containers if container.role is Role.EPHEMERAL)


def _needs(table: notes.Table, named: Container[str], rule: AdmissionRule, faults: list[str]) -> dict[str, int]:
    """What the pod needs of each resource at any one time; more than an amount can be is a fault."""
    needs = {
        api: containers_need([(container.role, amounts.get(api, 0)) for container, amounts in table])
        for api in (rule.resources if devices.EPC in rule.resources else (*rule.resources, devices.EPC))
        if api in named
    }
    faults += [_too_much(table, api, need) for api, need in needs.items() if need > MAX_VALUE]
    return needs


def _too_much(table: notes.Table, api: str, need: int) -> str:
    written = [as_written(container, api) for container, amounts in table if amounts.get(api)]
    rest = f", and {len(written) - _MAX_FAULTS} more" if len(written) > _MAX_FAULTS else ""
    return (
        f"{', '.join(written[:_MAX_FAULTS])}{rest}: together {need} at one time, and a pod's sum is at most 2^63-1; "
        "lower these limits"
    )


def _overhead(pod: PodAsked, rule: AdmissionRule) -> dict[str, int]:
    """The RuntimeClass's overhead; unreadable counts as none, since the pod's author did not write it."""
    found: dict[str, int] = {}
    for resource in rule.resources if pod.overhead else ():
        if resource in pod.overhead:
            try:
                found[resource] = whole_units(pod.overhead[resource])
            except QuantityError:
                continue
    return found


def _tiny(table: notes.Table) -> tuple[str, ...]:
    """Amounts of EPC below a page, which mean a unit that was forgotten."""
    return tuple(
        f"{as_written(container, devices.EPC)}, less than a page of {_PAGE} bytes; write a unit, such as 10Mi"
        for container, amounts in table
        if 0 < amounts.get(devices.EPC, _PAGE) < _PAGE
    )


def _unasked(pod: PodAsked, users: tuple[ContainerAsked, ...]) -> tuple[str, ...]:
    if users or keys.EPC_SUM not in pod.annotations:
        return ()
    return (f"annotation {keys.EPC_SUM} is not checked: no container has a limit {devices.EPC}",)


def _refused(faults: Iterable[str]) -> Verdict:
    return Verdict(refusals=_few(faults))


def _few(said: Iterable[str]) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(said))
    if len(found) > _MAX_FAULTS:
        found = (*found[:_MAX_FAULTS], f"and {len(found) - _MAX_FAULTS} more")
    return found
