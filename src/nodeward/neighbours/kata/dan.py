"""Kata's files for directly attachable networks (DAN): which devices of the host a VM gets as interfaces.

A CNI plugin writes `SANDBOX.json` before the shim starts. Source: kata-containers
`src/runtime-rs/crates/resource/src/network/dan.rs`. The reader there is strict: one device that lacks a field makes the
whole file useless, and the sandbox fails. Its rules and those of the kernel and QEMU are checked here.
"""

import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nodeward.core.errors import WireError
from nodeward.core.vms import PodInterface, PodNetwork, PodRoute
from nodeward.neighbours.kata.json_tree import Reading, parse

FORMAT: Final = "DAN"
MAX_BYTES: Final = 256 * 1024
MOST_DEVICES: Final = 32
_MOST_ROWS = 256
_U32 = 2**32 - 1
_MOST_PAIRS = 256
_MOST_QUEUE = 32768
_LEAST_MTU, _MOST_MTU = 68, 65535
DEFAULT_MTU: Final = 1500
"""runtime-rs's own, where the file says none."""
_INTERFACE = re.compile(r"[^\s/:\0]{1,15}")
_MAC = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")
_PATH = re.compile(r"/[^\0\n]{1,4095}")
_BDF = re.compile(r"([0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_SANDBOX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_DEVICES: Mapping[str, tuple[str, re.Pattern[str], str]] = {
    "host-tap": ("tap_name", _INTERFACE, "must be the name of a tap of the host, of at most 15 characters"),
    "vhost-user": ("path", _PATH, "must be the absolute path of the vhost-user socket"),
    "vfio": ("pci_device_id", _BDF, "must be a PCI address of the host, such as 0000:3b:00.1"),
}
"""By type: the field that names it, its shape, the rule."""


@dataclass(frozen=True, slots=True)
class DanRead:
    """A file as read; a value with a fault is empty in `network`."""

    network: PodNetwork
    faults: tuple[str, ...] = ()


def file_of(sandbox: str) -> str:
    """The file's name. WireError for what is no sandbox's id."""
    if not _SANDBOX.fullmatch(sandbox):
        raise WireError(FORMAT, "the sandbox's id must be 1 to 128 letters, digits, dots, dashes or underscores")
    return f"{sandbox}.json"


def read(data: bytes) -> DanRead:
    """The file, with every fault. WireError where it is no JSON."""
    tree, twice = parse(FORMAT, data, MAX_BYTES)
    return _checked(tree, twice)


def encode(data: bytes) -> bytes:
    """The same content, laid out. WireError with every fault."""
    tree, twice = parse(FORMAT, data, MAX_BYTES)
    if faults := _checked(tree, twice).faults:
        raise WireError(FORMAT, "\n".join(faults))
    return json.dumps(tree, ensure_ascii=False, indent=2).encode("utf-8") + b"\n"


def _checked(tree: object, twice: tuple[str, ...]) -> DanRead:
    reading = Reading()
    for name in twice:
        reading.fault(name, "is there twice in one object; runtime-rs then reads nothing: keep one")
    table = reading.table(tree, "", ("netns", "devices"))
    netns = ""
    if table.get("netns") is not None:
        netns = reading.text(table["netns"], "netns", _PATH, "must be the absolute path of a network namespace")
    interfaces, routes = list[PodInterface](), list[PodRoute]()
    if isinstance(tree, dict):
        for number, row in enumerate(reading.rows(table, "devices", "", MOST_DEVICES, needed=True)):
            interface, its = _device(reading, row, f"devices[{number}]")
            if interface.name and interface.name in [one.name for one in interfaces]:
                reading.fault(f"devices[{number}].name", "an earlier device has this name; give each its own")
            interfaces.append(interface)
            routes += its
    return DanRead(PodNetwork(netns, tuple(interfaces), tuple(routes)), tuple(reading.faults))


def _device(reading: Reading, row: object, path: str) -> tuple[PodInterface, list[PodRoute]]:
    table = reading.table(row, path, ("name", "guest_mac", "device", "network_info"))
    if not isinstance(row, dict):
        return PodInterface(""), []
    name = reading.text(
        *(table.get("name"), f"{path}.name", _INTERFACE, "must be an interface's name of 1 to 15 characters, no / or :")
    )
    mac = _mac(reading, table["guest_mac"], f"{path}.guest_mac") if "guest_mac" in table else ""
    kind, host, queues = _host(reading, table.get("device"), f"{path}.device")
    where = f"{path}.network_info"
    info = reading.table(table.get("network_info"), where, ("interface", "routes", "neighbors"))
    inside = f"{where}.interface"
    known = ("ip_addresses", "mtu", "ntype", "flags")
    interface = reading.table(info.get("interface"), inside, known) if "network_info" in row else {}
    needed = isinstance(info.get("interface"), dict)
    rows = reading.rows(interface, "ip_addresses", inside, _MOST_ROWS, needed=needed)
    addresses = [
        found
        for number, one in enumerate(rows)
        if (found := _address(reading, one, f"{inside}.ip_addresses[{number}]", prefix=True))
    ]
    if interface.get("ip_addresses") == []:
        reading.fault(f"{inside}.ip_addresses", "is empty: the interface would have no address; give one as IP/PREFIX")
    mtu = reading.number(interface, "mtu", inside, _MOST_MTU, _LEAST_MTU) if "mtu" in interface else DEFAULT_MTU
    reading.number(interface, "flags", inside, _U32)
    if "ntype" in interface:
        reading.text(interface["ntype"], f"{inside}.ntype")
    routes = [
        _route(reading, one, f"{where}.routes[{number}]", name)
        for number, one in enumerate(reading.rows(info, "routes", where, _MOST_ROWS))
    ]
    for number, one in enumerate(reading.rows(info, "neighbors", where, _MOST_ROWS)):
        _neighbor(reading, one, f"{where}.neighbors[{number}]")
    return PodInterface(name, mac, mtu, tuple(addresses), kind, host, queues), routes


def _host(reading: Reading, value: object, path: str) -> tuple[str, str, int]:
    """Type, what names it on the host, pairs of queues."""
    table = reading.table(value, path)
    kind = reading.text(table.get("type"), f"{path}.type") if isinstance(value, dict) else ""
    if kind not in _DEVICES:
        if kind:
            reading.fault(f"{path}.type", f"must be one of {', '.join(_DEVICES)}")
        return "", "", 0
    name, shape, rule = _DEVICES[kind]
    reading.table(value, path, ("type", name, *(() if kind == "vfio" else ("queue_num", "queue_size"))))
    host = reading.text(table.get(name), f"{path}.{name}", shape, rule)
    queues = reading.number(table, "queue_num", path, _MOST_PAIRS)
    size = reading.number(table, "queue_size", path, _MOST_QUEUE)
    if size & (size - 1):
        reading.fault(f"{path}.queue_size", "must be a power of two, or 0 for 256")
    return kind, host, queues


def _route(reading: Reading, row: object, path: str, interface: str) -> PodRoute:
    table = reading.table(row, path, ("dest", "gateway", "source", "scope", "flags", "mtu"))
    found = {
        name: _address(reading, table[name], f"{path}.{name}", prefix=name == "dest") if table.get(name) else ""
        for name in ("dest", "gateway", "source")
    }
    families = {":" in one: None for one in found.values() if one}
    if isinstance(row, dict) and not any(table.get(name) for name in found):
        reading.fault(path, "has neither dest, gateway nor source; give one, or remove the route")
    if len(families) > 1:
        reading.fault(path, "mixes IPv4 and IPv6; give dest, gateway and source of one family")
    numbers = {name: reading.number(table, name, path, _U32) for name in ("mtu", "scope", "flags")}
    return PodRoute(found["dest"], found["gateway"], interface, numbers["mtu"])


def _neighbor(reading: Reading, row: object, path: str) -> None:
    table = reading.table(row, path, ("ip_address", "hardware_addr", "state", "flags"))
    if table.get("ip_address") is not None:
        _address(reading, table["ip_address"], f"{path}.ip_address", prefix=False)
    if table.get("hardware_addr"):
        _mac(reading, table["hardware_addr"], f"{path}.hardware_addr")
    for name in ("state", "flags"):
        reading.number(table, name, path, _U32)


def _mac(reading: Reading, value: object, path: str) -> str:
    text = reading.text(value, path, _MAC, "must be six bytes as in 02:00:00:00:00:01; left out, one is made up")
    if text and int(text[:2], 16) & 1:
        reading.fault(path, "is a group's address; the first byte must be even")
        return ""
    return text


def _address(reading: Reading, value: object, path: str, *, prefix: bool) -> str:
    """An address; with `prefix` it must have one, else it may."""
    text = reading.text(value, path)
    if not text:
        if value == "":
            reading.fault(path, "is empty; give an address")
        return ""
    _, slash, length = text.partition("/")
    try:
        ipaddress.ip_interface(text)
        if "%" in text or (slash and not length.isdecimal()):
            raise ValueError(text)  # a zone, or a mask in place of a length: runtime-rs reads neither
    except ValueError:
        reading.fault(path, "is no IP address" + (" with a prefix, as in 10.0.0.5/24" if prefix else ""))
        return ""
    if prefix and not slash:
        reading.fault(path, "has no prefix; write it as in 10.0.0.5/24")
        return ""
    return text
