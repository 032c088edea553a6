"""Kubelet's messages to a driver, to and from our words. Pure.

Every request is from outside: names that no claim can have, and more claims than a pod can, are a WireError.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nodeward.contracts import dra_pb2, drahealth_pb2, pluginregistration_pb2
from nodeward.core.errors import WireError
from nodeward.neighbours.formats.protobuf import read

REGISTRATION = "pluginregistration.Registration"
DRIVERS = ("k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin")
HEALTHS = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
VERSIONS = ("v1.DRAPlugin", "v1beta1.DRAPlugin", *HEALTHS)
"""In the order in which kubelet is to take them."""
MOST_CLAIMS = 256
"""In one request: kubelet sends those of one pod."""
MOST_TEXT = 1024
"""Characters of an error, which kubelet shows in an event."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_UID = re.compile(r"[A-Za-z0-9-]{1,64}")


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """A claim by its names alone."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """A device that a claim was prepared with; `cdi` are the names by which the runtime finds what containers get."""

    request: str
    pool: str
    device: str
    cdi: tuple[str, ...] = ()
    share: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a device can be used, and why not."""

    pool: str
    device: str
    healthy: bool
    why: str = ""


def claims(request: bytes) -> tuple[ClaimRef, ...]:
    """The claims of a Prepare or an Unprepare, whose messages have the same fields."""
    message = read("DRA", dra_pb2.NodePrepareResourcesRequest, request)
    if len(message.claims) > MOST_CLAIMS:
        raise WireError("DRA", f"{len(message.claims)} claims at once: at most {MOST_CLAIMS} are taken")
    for one in message.claims:
        if not (_NAME.fullmatch(one.namespace) and _NAME.fullmatch(one.name) and _UID.fullmatch(one.uid)):
            raise WireError("DRA", f"{one.namespace[:64]!r}/{one.name[:64]!r} with UID {one.uid[:64]!r} is no claim")
    return tuple(ClaimRef(one.namespace, one.name, one.uid) for one in message.claims)


def prepared(answers: Mapping[str, Sequence[Prepared] | str]) -> bytes:
    """The answer to a Prepare: by a claim's UID its devices, or why it is not prepared."""
    message = dra_pb2.NodePrepareResourcesResponse()
    for uid, answer in answers.items():
        one = message.claims[uid]
        if isinstance(answer, str):
            one.error = answer[:MOST_TEXT]
            continue
        for of in answer:
            requests = [of.request.partition("/")[0]] if of.request else []
            device = one.devices.add(
                request_names=requests, pool_name=of.pool, device_name=of.device, cdi_device_ids=of.cdi
            )
            if of.share:
                device.share_id = of.share
    return message.SerializeToString()


def unprepared(uids: Iterable[str]) -> bytes:
    """The answer to an Unprepare: each of these is taken back."""
    message = dra_pb2.NodeUnprepareResourcesResponse()
    for uid in uids:
        message.claims[uid].SetInParent()
    return message.SerializeToString()


def info(driver: str, endpoint: str) -> bytes:
    """What kubelet is told of us."""
    kind = pluginregistration_pb2.PluginInfo
    return kind(type="DRAPlugin", name=driver, endpoint=endpoint, supported_versions=VERSIONS).SerializeToString()


def registered(request: bytes) -> tuple[bool, str]:
    """Whether kubelet has taken us, and why not."""
    message = read("DRA", pluginregistration_pb2.RegistrationStatus, request)
    return message.plugin_registered, message.error[:MOST_TEXT]


def noted() -> bytes:
    """The answer to that."""
    return pluginregistration_pb2.RegistrationStatusResponse().SerializeToString()


def health(devices: Iterable[Health], at_s: int, holds_s: int) -> bytes:
    """The health of these devices."""
    message = drahealth_pb2.NodeWatchResourcesResponse()
    for one in devices:
        of = drahealth_pb2.DeviceIdentifier(pool_name=one.pool, device_name=one.device)
        state = drahealth_pb2.HEALTHY if one.healthy else drahealth_pb2.UNHEALTHY
        message.devices.add(
            device=of,
            health=state,
            last_updated_time=at_s,
            health_check_timeout_seconds=holds_s,
            message=one.why[:MOST_TEXT],
        )
    return message.SerializeToString()
