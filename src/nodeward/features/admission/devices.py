"""Gives containers that declare EPC their SGX devices and quote provider, as Intel's webhook does.

A container with `sgx.intel.com/epc` gets one `sgx.intel.com/enclave`. The container named by the annotation
`sgx.intel.com/quote-provider` also gets one `sgx.intel.com/provision`. If the annotation is `aesmd`, each of them gets
the socket of aesmd and is told of it: from a container named aesmd in the same pod, else from the node. Whatever is
there already is left alone, so a second round changes nothing. A container without EPC gets nothing.

Where nodes give the device by NRI, no node offers `sgx.intel.com/enclave`, and a pod that asks for it runs nowhere: it
is taken from containers with EPC.
"""

from collections.abc import Mapping

from nodeward.core.devices import ENCLAVE, PROVISION
from nodeward.core.quantity import QuantityError, exact_units
from nodeward.core.workload import Role
from nodeward.features.admission.values import (
    AESM_FOLDER,
    AESM_VOLUME,
    AesmVolume,
    ContainerAsked,
    ContainerChange,
    PodAsked,
)

EPC = "sgx.intel.com/epc"
AESMD = "aesmd"


def container_changes(
    users: tuple[ContainerAsked, ...], provider: str, *, by_nri: bool = False
) -> tuple[ContainerChange, ...]:
    """What each container with EPC gets; one that has it all is not listed."""
    changes = []
    for container in users:
        asked = () if by_nri else (ENCLAVE,)
        wanted = (*asked, PROVISION) if provider and container.name == provider else asked
        change = ContainerChange(
            container,
            limits=tuple(name for name in wanted if not _is_one(container.limits, name)),
            requests=tuple(name for name in wanted if not _is_one(container.requests, name)),
            aesm_address=provider == AESMD and not container.aesm_address,
            aesm_mount=provider == AESMD and not _has_socket(container),
            dropped=(ENCLAVE,) if by_nri and _asks(container, ENCLAVE) else (),
        )
        if change != ContainerChange(container):
            changes.append(change)
    return tuple(changes)


def aesm_volume(pod: PodAsked, users: tuple[ContainerAsked, ...], provider: str) -> AesmVolume | None:
    """The volume that the mounts need and the pod has not."""
    if provider != AESMD or AESM_VOLUME in pod.volumes:
        return None
    if not any(not _has_socket(user) or AESM_VOLUME in user.mounts.values() for user in users):
        return None
    return AesmVolume.MEMORY if _shares_aesmd(users) else AesmVolume.HOST


def warnings(pod: PodAsked, users: tuple[ContainerAsked, ...], provider: str) -> tuple[str, ...]:
    """What the pod's author should know of the quote provider."""
    if provider == AESMD and pod.volumes.get(AESM_VOLUME) and _shares_aesmd(users):
        return (
            f"spec.volumes[{AESM_VOLUME}] is the node's folder, and container {AESMD!r} of this pod would serve it to "
            "every pod of the node; write emptyDir: {medium: Memory} for this volume",
        )
    if not users or not provider or provider == AESMD or any(user.name == provider for user in users):
        return ()
    return (f"sgx.intel.com/quote-provider: no container {provider[:64]!r} with {EPC} in this pod",)


def _shares_aesmd(users: tuple[ContainerAsked, ...]) -> bool:
    """Whether a container of the pod serves aesmd's socket to another one."""
    return len(users) > 1 and any(user.name == AESMD and user.role in (Role.REGULAR, Role.SIDECAR) for user in users)


def _asks(container: ContainerAsked, resource: str) -> bool:
    return resource in container.limits or resource in container.requests


def _is_one(given: Mapping[str, str], name: str) -> bool:
    try:
        return name in given and exact_units(given[name]) == 1
    except QuantityError:
        return False


def _has_socket(container: ContainerAsked) -> bool:
    return AESM_FOLDER in container.mounts
