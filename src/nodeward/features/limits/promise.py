"""What a container was promised, by the most trusted source that says anything.

The spec in the API server comes first, then our own annotation, then `epc-limit.nri.io/*` read as upstream's sgx-epc
plugin reads it. An annotation never overrides a spec. Denial (0) exists only in spec and own annotation: upstream's 0
means that nothing is declared. An annotation that says nothing of the settings' resources leaves the pod as unknown
as it was, or a pod could pass `limits.unknown_pod` by an empty one.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from nodeward.core import annotations as keys
from nodeward.core.quantity import QuantityError, plain_decimal
from nodeward.core.refusal import Reason
from nodeward.core.workload import Amounts, ContainerSpec, PodSpec, Source
from nodeward.features.limits.settings import LimitsSettings, UnknownPod
from nodeward.features.pods.budget import Outline, declares

EPC = "sgx_epc"
_REMEDY = 'remove it, let the webhook write it, or write for example {"app": {"sgx_epc": "1048576"}}'


@dataclass(frozen=True, slots=True)
class Promise:
    """`values` by misc resource (a resource that is not there is left alone), the reason, and the source in words.

    `known` is false while only the fallback setting speaks; `refuse` then asks to refuse the container."""

    values: Amounts
    reason: Reason
    source: str
    known: bool = True
    refuse: bool = False
    faults: tuple[str, ...] = ()


def promise(
    spec: PodSpec | None,
    annotations: Mapping[str, str],
    container: str,
    rule: LimitsSettings,
    known: Outline | None = None,
) -> Promise:
    """What `container` may use of each resource that the settings speak of. `known` is the spec's outline, which spares
    a search where many containers are asked for."""
    if spec is not None:
        return _from_spec(spec, container, rule, known)
    faults: list[str] = []
    found = _from_own(annotations, container, faults) or _from_upstream(annotations, container, faults)
    if found is None or not any(resource in found.values for resource in rule.resources.values()):
        return _unknown(rule, tuple(faults), found.values if found is not None else {})
    if rule.strict or rule.unknown_pod is UnknownPod.ZERO:
        others = dict.fromkeys(rule.resources.values(), 0)
        found = Promise({**others, **found.values}, found.reason, found.source)
    return _beside(found, faults) if faults else found


def own_declared(text: str, container: str) -> Amounts:
    """What our own annotation says of the container itself, without the zeros that follow from what it says of others;
    empty where it cannot be read."""
    table = _own_table(text)
    return {} if isinstance(table, str) else table.get(container, {})


def _from_spec(spec: PodSpec, container: str, rule: LimitsSettings, known: Outline | None) -> Promise:
    own = known.by_name.get(container) if known is not None else _named(spec, container)
    limited = rule.resources.values()
    declared = own.declared if own is not None else {}
    if not all(name in limited for name in declared):  # `keys` counts TEE keys; a limit on one is a fence
        declared = {name: amount for name, amount in declared.items() if name in limited}
    values, by_others = declared, False
    for resource in limited:
        if resource not in declared:
            by_other = known.declared[resource] if known is not None else declares(spec, resource)
            by_others = by_others or by_other
            if by_other or rule.strict:
                values = {**values, resource: 0}
    code = "declared" if declared else "undeclared" if by_others else "strict" if values else "none-declared"
    return Promise(values, Reason(code, (container,)), spec.source.value, True, False, own.faults if own else ())


def _named(spec: PodSpec, container: str) -> ContainerSpec | None:
    for one in spec.containers:
        if one.name == container:
            return one
    return None


def _from_own(annotations: Mapping[str, str], container: str, faults: list[str]) -> Promise | None:
    if keys.OWN_LIMITS not in annotations:
        return None
    table = _own_table(annotations[keys.OWN_LIMITS])
    if isinstance(table, str):
        faults.append(f"annotation {keys.OWN_LIMITS}: {table}")
        return None
    values = {name: 0 for amounts in table.values() for name in amounts} | table.get(container, {})
    reason = Reason("declared" if container in table else "undeclared", (container,))
    return Promise(values, reason, Source.OWN_ANNOTATION.value) if values else None


def _own_table(text: str) -> dict[str, dict[str, int]] | str:
    """The annotation's table, or what is wrong with it."""
    if text == keys.TOO_LONG or len(text) > keys.MAX_VALUE:
        return f"is longer than {keys.MAX_VALUE} characters; {_REMEDY}"
    try:
        raw: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"is no JSON ({error.__class__.__name__}): {text[:64]!r}; {_REMEDY}"
    if not isinstance(raw, dict):
        return f"is no JSON object of containers: {text[:64]!r}; {_REMEDY}"
    table: dict[str, dict[str, int]] = {}
    for name, amounts in raw.items():
        if not isinstance(amounts, dict):
            return f"{name[:64]!r} has no object of resources: {text[:64]!r}; {_REMEDY}"
        row: dict[str, int] = {}
        for resource, amount in amounts.items():
            if not (resource.isascii() and resource.replace("_", "").isalnum()):
                return f"{name[:64]!r}, {resource[:64]!r}: is no misc resource name; {_REMEDY}"
            try:
                row[resource] = plain_decimal(amount if isinstance(amount, str) else repr(amount)[:80])
            except QuantityError as error:
                return f"{name[:64]!r}, {resource[:64]!r}: {error}"
        table[name] = row
    return table


def _from_upstream(annotations: Mapping[str, str], container: str, faults: list[str]) -> Promise | None:
    for key in keys.upstream_epc_of(container):
        if key in annotations:
            try:
                amount = plain_decimal(annotations[key])
            except QuantityError as error:
                faults.append(f"annotation {key}: {error}")
                return None
            declared = Reason("declared", (container,))
            return Promise({EPC: amount}, declared, f"annotation {key}") if amount else None
    return None


def _beside(found: Promise, faults: list[str]) -> Promise:
    """What one annotation promises beside another that could not be read; the reason tells of that one too."""
    reason = Reason(found.reason.code, (*found.reason.values, *faults))
    return Promise(found.values, reason, found.source, faults=tuple(faults))


def _unknown(rule: LimitsSettings, faults: tuple[str, ...], others: Amounts) -> Promise:
    """The fallback, and what an annotation says of `others` than the settings' resources."""
    zero = rule.unknown_pod is UnknownPod.ZERO
    return Promise(
        values={**dict.fromkeys(rule.resources.values(), 0), **others} if zero else others,
        reason=Reason("pod-unknown", (rule.unknown_pod.value, *faults)),
        source=Source.NONE.value,
        known=False,
        refuse=rule.unknown_pod is UnknownPod.REFUSE,
        faults=faults,
    )
