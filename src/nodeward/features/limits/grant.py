"""What a promise comes to on this kernel: the values that can be set, or why the container must not start.

The daemon's answers and the OCI hook without a daemon call this; there is no second rule.
"""

from collections.abc import Iterable

from nodeward.core.refusal import Refusal, Refused
from nodeward.core.workload import Amounts
from nodeward.features.limits.promise import Promise
from nodeward.features.limits.settings import LimitsSettings, Unsupported


def settable(rule: LimitsSettings, capacity: Amounts, values: Amounts) -> dict[str, int]:
    """Those of the values that this kernel can hold, never a name it would refuse, in the settings' order."""
    return {name: values[name] for name in _in_order(rule, values) if capacity.get(name, 0) > 0}


def refusal(rule: LimitsSettings, capacity: Amounts, found: Promise, who: str) -> Refusal | None:
    """Why the container `who` (NAMESPACE/POD, container NAME) must not start, where a setting asks for that."""
    if found.refuse and found.faults:
        return Refusal(
            f"{who}: {'; '.join(found.faults)}; and limits.unknown_pod is refuse. Mend the pod's annotation, or set "
            "limits.unknown_pod to unlimited or zero.",
            Refused.BAD_VALUE,
        )
    if found.refuse:
        return Refusal(
            f"{who}: nobody knows this pod, and limits.unknown_pod is refuse. Check that the API server answers "
            "(nodeward status), or set limits.unknown_pod to unlimited or zero."
        )
    if rule.unsupported is not Unsupported.REFUSE:
        return None
    for resource in _in_order(rule, found.values):
        value = found.values[resource]
        if value > 0 and capacity.get(resource, 0) == 0:
            return Refusal(
                f"{who}: declares {value} of {resource}, which this kernel cannot limit (not in misc.capacity), and "
                "limits.unsupported is refuse. Use a kernel with this resource, or set limits.unsupported to "
                "allow-unenforced.",
                Refused.NO_CAPACITY,
            )
    return None


def _in_order(rule: LimitsSettings, values: Amounts) -> Iterable[str]:
    """As the settings name them, then by name: where only one can be told, it is the same one each time."""
    if len(values) < 2:
        return values
    return [name for name in dict.fromkeys((*rule.resources.values(), *sorted(values))) if name in values]
