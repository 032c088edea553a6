"""Kubelet's device plugin messages, to and from the words of `keys`. Pure.

Every request is from outside: ids that were never offered, named twice, too many or none are a RequestError that names
the first of them, shortened. Nothing here decides who gets an id.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

import msgspec
from google.protobuf.message import Message

from nodeward.contracts import deviceplugin_pb2 as protocol
from nodeward.core.errors import RequestError, WireError
from nodeward.neighbours.formats.protobuf import read

VERSION = "v1beta1"
SERVICE = f"{VERSION}.DevicePlugin"
REGISTRATION = f"{VERSION}.Registration"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
MOST_IDS = 4096
"""In one request; a machine has some hundred keys."""
MOST_SHOWN = 64
"""Characters of an id in a text."""

Devices = tuple[tuple[str, bool], ...]
"""Ids, each with whether it is healthy."""


def devices(text: str) -> Devices:
    """The list as the goal has it: JSON of pairs. ValueError for anything else."""
    return msgspec.json.decode(text, type=Devices)


def listed(every: Iterable[tuple[str, bool]]) -> bytes:
    """What ListAndWatch says."""
    found = (protocol.Device(ID=name, health=HEALTHY if healthy else UNHEALTHY) for name, healthy in every)
    return protocol.ListAndWatchResponse(devices=found).SerializeToString()


def options(asks: bool) -> protocol.DevicePluginOptions:
    """Whether kubelet is to ask before each start, and which ids are liked."""
    return protocol.DevicePluginOptions(pre_start_required=asks, get_preferred_allocation_available=asks)


def registration(endpoint: str, resource: str, asks: bool) -> bytes:
    """What Register is sent; `endpoint` is our socket's name in kubelet's folder."""
    request = protocol.RegisterRequest(
        version=VERSION, endpoint=endpoint, resource_name=resource, options=options(asks)
    )
    return request.SerializeToString()


def asked(request: bytes, offered: Collection[str]) -> list[tuple[str, ...]]:
    """The ids of each container of an Allocate."""
    message = _decoded(protocol.AllocateRequest, request)
    found = [tuple(one.devices_ids) for one in message.container_requests]
    if not all(found):
        raise RequestError("a container is to be given no id at all")
    _check([name for names in found for name in names], offered)
    return found


def allocated(containers: Iterable[Iterable[str]], mount: str) -> bytes:
    """The answer to it: for each container its device nodes, to read and write, and the folder `mount`, read-only: its
    sockets can be connected to all the same. No folder where `mount` is empty."""
    mounts = [protocol.Mount(container_path=mount, host_path=mount, read_only=True)] if mount else []
    answers = [
        protocol.ContainerAllocateResponse(
            mounts=mounts,
            devices=[protocol.DeviceSpec(container_path=path, host_path=path, permissions="rw") for path in devices],
        )
        for devices in containers
    ]
    return protocol.AllocateResponse(container_responses=answers).SerializeToString()


def starting(request: bytes, offered: Collection[str]) -> tuple[str, ...]:
    """The ids of a PreStartContainer."""
    found = tuple(_decoded(protocol.PreStartContainerRequest, request).devices_ids)
    if not found:
        raise RequestError("a container is to be started with no id at all")
    _check(found, offered)
    return found


def started() -> bytes:
    """The answer to it."""
    return protocol.PreStartContainerResponse().SerializeToString()


def preferred(request: bytes) -> bytes:
    """The ids that are liked for each container: those it must have, then the lowest. The highest are withheld first,
    so this and the list never fight. What cannot be met is answered as far as it can, since a failure fails the pod."""
    message = _decoded(protocol.PreferredAllocationRequest, request)
    if len(message.container_requests) > MOST_IDS:
        raise RequestError(f"{len(message.container_requests)} containers at once: at most {MOST_IDS} are answered")
    answers = []
    for one in message.container_requests:
        must = dict.fromkeys(one.must_include_deviceIDs)
        others = sorted(dict.fromkeys(one.available_deviceIDs), key=lambda name: (len(name), name))
        every = [*must, *(name for name in others if name not in must)]
        liked = every[: max(len(must), one.allocation_size)]
        answers.append(protocol.ContainerPreferredAllocationResponse(deviceIDs=liked))
    return protocol.PreferredAllocationResponse(container_responses=answers).SerializeToString()


def _check(names: Sequence[str], offered: Collection[str]) -> None:
    if len(names) > MOST_IDS:
        raise RequestError(f"{len(names)} ids at once: at most {MOST_IDS} are given")
    seen: dict[str, None] = {}
    for name in names:
        if name not in offered:
            raise RequestError(f"{_shown(name)} was never offered")
        if name in seen:
            raise RequestError(f"{_shown(name)} is named twice")
        seen[name] = None


def _shown(name: str) -> str:
    return repr(name if len(name) <= MOST_SHOWN else f"{name[:MOST_SHOWN]}...")


_M = TypeVar("_M", bound=Message)


def _decoded(kind: type[_M], data: bytes) -> _M:
    try:
        return read("device plugin", kind, data)
    except WireError as error:
        raise RequestError(str(error)) from error
