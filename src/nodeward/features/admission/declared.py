"""Reads what a pod's containers declare of the resources that admission watches, with every fault.

An extended resource is a whole number, and its request equals its limit. Amounts are compared as numbers: `1Mi` and
`1048576` are equal. Names are compared whole: `sgx.intel.com.example/x` is somebody else's.
"""

from collections.abc import Iterable, Mapping

from nodeward.core.devices import ENCLAVE, PROVISION
from nodeward.core.quantity import EXAMPLE, QuantityError, exact_units
from nodeward.core.workload import Role
from nodeward.features.admission.devices import EPC
from nodeward.features.admission.values import ContainerAsked

_SHOWN = 64
_REMEDIES = {ENCLAVE: "leave it out, or write 1", PROVISION: "leave it out, or write 1"}
"""What an author is told to write of a resource that is counted in devices, not in bytes."""


def declared(container: ContainerAsked, watched: Iterable[str], faults: list[str]) -> Mapping[str, int]:
    """The amounts of the watched resources. Faults name the container, the field, the value, the rule, the remedy."""
    amounts: dict[str, int] = {}
    if not container.limits and not container.requests:
        return amounts
    for resource in watched:
        if resource in container.limits or resource in container.requests:
            if container.role is Role.EPHEMERAL:
                section = "limits" if resource in container.limits else "requests"
                value = _shown((container.limits if section == "limits" else container.requests)[resource])
                faults.append(
                    f"{_who(container)}: {_field(section, resource)} is {value}: an ephemeral container can have no "
                    "resources; take it out, or declare it in a container of the pod"
                )
                continue
            amount = _amount(container, resource, faults)
            if amount is not None:
                amounts[resource] = amount
    return amounts


def as_written(container: ContainerAsked, resource: str) -> str:
    """The container, its field and the limit that its author wrote there."""
    return f"{_who(container)}: {_field('limits', resource)} is {_shown(container.limits[resource])}"


def nothing_at_all(container: ContainerAsked) -> str:
    """The fault of an EPC of 0: the container would get the devices of one that has EPC."""
    return f"{as_written(container, EPC)}, must be more than 0; leave it out of a container that needs no EPC"


def _amount(container: ContainerAsked, resource: str, faults: list[str]) -> int | None:
    limit = _read(container, "limits", container.limits, resource, faults)
    if container.requests.get(resource) == container.limits.get(resource):
        return limit  # as good as always: the API server copies the limit
    request = _read(container, "requests", container.requests, resource, faults)
    if resource not in container.limits:
        faults.append(
            f"{_who(container)}: {_field('requests', resource)} is {_shown(container.requests[resource])} without a "
            "limit: an extended resource is given by its limit; write the same amount under limits"
        )
        return None
    if limit is None or (request is None and resource in container.requests):
        return None
    if request is not None and request != limit:
        faults.append(
            f"{_who(container)}: {_field('requests', resource)} is {_shown(container.requests[resource])} and "
            f"{_field('limits', resource)} is {_shown(container.limits[resource])}: the request of an extended "
            "resource equals its limit; write the same amount for both, or the limit only"
        )
        return None
    return limit


def _read(
    container: ContainerAsked, section: str, given: Mapping[str, str], resource: str, faults: list[str]
) -> int | None:
    if resource not in given:
        return None
    try:
        return exact_units(given[resource], _REMEDIES.get(resource, EXAMPLE))
    except QuantityError as error:
        faults.append(
            f"{_who(container)}: {_field(section, resource)} is {_shown(given[resource])}, must be a whole number "
            f"from 0 to 2^63-1: {error}"
        )
        return None


def _who(container: ContainerAsked) -> str:
    return f"{container.role.value} {_shown(container.name)} ({container.place})"


def _field(section: str, resource: str) -> str:
    return f"resources.{section}[{resource}]"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
