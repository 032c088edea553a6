"""Entries of CNI's result cache: what the plugins answered when the pod's interfaces were made.

libcni writes one file for each network and interface: `NETWORK-CONTAINER-INTERFACE` below `/var/lib/cni/results`, where
CONTAINER is the sandbox's id. Source: containernetworking/cni `libcni/api.go` (cachedInfo) and `pkg/types/100`. The
entry also has the plugins' configuration and arguments, where secrets may be: nothing of these is taken.
"""

import ipaddress
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from nodeward.core.podapi_network import PodInterface, PodNetwork, PodRoute
from nodeward.core.wire_errors import WireError

FORMAT: Final = "CNI result"
MAX_BYTES: Final = 256 * 1024
KIND: Final = "cniCacheV1"
_MOST = 64
_NAME = re.compile(r"[^\s/\0]{1,64}")
_MAC = re.compile(r"[0-9A-Fa-f:]{1,59}")
_PATH = re.compile(r"/[!-~]{1,255}")


class _Interface(msgspec.Struct):
    name: str = ""
    mac: str = ""
    mtu: int = 0
    sandbox: str = ""


class _Ip(msgspec.Struct):
    address: str
    gateway: str = ""
    interface: int | None = None


class _Route(msgspec.Struct):
    dst: str
    gw: str = ""
    mtu: int = 0


class _Result(msgspec.Struct):
    interfaces: list[_Interface] = []
    ips: list[_Ip] = []
    routes: list[_Route] | None = None


class _Entry(msgspec.Struct):
    kind: str
    container: str = msgspec.field(name="containerId", default="")
    interface: str = msgspec.field(name="ifName", default="")
    netns: str = ""
    result: _Result = msgspec.field(default_factory=_Result)


def read(data: bytes, sandbox: str) -> PodNetwork:
    """What the entry says of the pod's side. WireError where it is no entry, or of another sandbox; the error has
    nothing of its content."""
    if len(data) > MAX_BYTES:
        raise WireError(FORMAT, f"{len(data)} bytes: at most {MAX_BYTES} are read")
    try:
        entry = msgspec.json.decode(data, type=_Entry)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise WireError(FORMAT, "is no entry of libcni's cache") from None
    if entry.kind != KIND:
        raise WireError(FORMAT, f"its kind is not {KIND}; another version of libcni wrote it")
    if entry.container != sandbox:
        raise WireError(FORMAT, "is of another sandbox")
    found = entry.result
    addresses: dict[int, list[str]] = {}
    for one in found.ips[:_MOST]:
        if _is_address(one.address):
            addresses.setdefault(_own(found, entry.interface) if one.interface is None else one.interface, []).append(
                one.address
            )
    inside = [
        (number, one)
        for number, one in enumerate(found.interfaces[:_MOST])
        if (one.sandbox or one.name == entry.interface) and _NAME.fullmatch(one.name)
    ]
    interfaces = tuple(
        PodInterface(
            *(one.name, _shaped(_MAC, one.mac), max(one.mtu, 0), tuple(addresses.get(number, ()))),
        )
        for number, one in inside
    )
    gateways = {":" in one.gateway: one.gateway for one in reversed(found.ips[:_MOST]) if _is_address(one.gateway)}
    routes = tuple(  # one without a gateway goes by that of its family (CNI's SPEC.md, "Success")
        PodRoute(
            *(one.dst, one.gw if _is_address(one.gw) else gateways.get(":" in one.dst, ""), entry.interface),
            max(one.mtu, 0),
        )
        for one in (found.routes or [])[:_MOST]
        if _is_address(one.dst)
    )
    netns = _shaped(_PATH, entry.netns or next((one.sandbox for _, one in inside if one.sandbox), ""))
    return PodNetwork(netns, interfaces, routes)


def is_of(name: str, sandbox: str) -> bool:
    """Whether a file of this name is of that sandbox."""
    return f"-{sandbox}-" in name


def joined(found: Mapping[str, PodNetwork]) -> PodNetwork:
    """One network of several entries."""
    return PodNetwork(
        next((one.netns for one in found.values() if one.netns), ""),
        tuple(interface for one in found.values() for interface in one.interfaces),
        tuple(route for one in found.values() for route in one.routes),
    )


def _own(found: _Result, name: str) -> int:
    return next((number for number, one in enumerate(found.interfaces) if one.name == name and one.sandbox), 0)


def _shaped(shape: re.Pattern[str], text: str) -> str:
    return text if shape.fullmatch(text) else ""


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        return False
    return True
