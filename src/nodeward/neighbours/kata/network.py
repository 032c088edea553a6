"""Reads what the host's files say of a sandbox's network: Kata's DAN file, and CNI's result cache."""

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from nodeward.core.errors import NodewardError, WireError
from nodeward.core.vms import PodInterface, PodNetwork, PodRoute
from nodeward.host.hostfs import HostFiles, ensure_folder, is_there
from nodeward.neighbours.kata import dan

DANS: Final = "/run/kata-containers/dans"
"""Kata's `dan_conf`, unless its configuration names another."""
CNI: Final = "/var/lib/cni/results"
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


def read_result(data: bytes, sandbox: str) -> PodNetwork:
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


MOST: Final = 4096
"""DAN files that are looked at."""
MOST_RESULTS: Final = 16
"""Entries of the cache that are read for one sandbox: one for each interface."""


class NetworkFileError(NodewardError):
    """A folder cannot be read as a whole."""


@dataclass(frozen=True, slots=True)
class SandboxNetwork:
    """One source's words on one sandbox."""

    sandbox: str
    file: str
    network: PodNetwork | None
    faults: tuple[str, ...] = ()


def listed(files: HostFiles, folder: str = DANS) -> tuple[SandboxNetwork, ...]:
    """Every DAN file, by sandbox. Empty without the folder; OSError where it cannot be read."""
    try:
        names = files.listdir(folder)
    except FileNotFoundError:
        return ()
    if len(names) > MOST:
        raise NetworkFileError(f"{folder} has {len(names)} files, more than the {MOST} read here; remove old ones")
    return tuple(_dan(files, f"{folder}/{name}") for name in names)


def by_dan(files: HostFiles, sandbox: str, folder: str = DANS) -> SandboxNetwork | None:
    """The sandbox's DAN file; None where it has none."""
    path = f"{folder}/{dan.file_of(sandbox)}"
    return _dan(files, path) if is_there(files, path) else None


def write(files: HostFiles, sandbox: str, data: bytes, folder: str = DANS) -> str:
    """Writes the sandbox's DAN file (0600, whole); returns its path. WireError with every fault. Not for a daemon: it
    sets the process's umask."""
    path, data = f"{folder}/{dan.file_of(sandbox)}", dan.encode(data)
    old = os.umask(0o077)
    try:
        ensure_folder(files, folder)
    finally:
        os.umask(old)
    files.replace(path, data)
    return path


def by_cni(files: HostFiles, sandbox: str, folder: str = CNI) -> SandboxNetwork | None:
    """What CNI's cache says of the sandbox; None where it says nothing. OSError where it cannot be read."""
    dan.file_of(sandbox)  # no id, no entry
    try:
        names = [name for name in files.listdir(folder) if is_of(name, sandbox)]
    except FileNotFoundError:
        return None
    found: dict[str, PodNetwork] = {}
    faults = list[str]()
    for name in names[:MOST_RESULTS]:
        try:
            found[name] = read_result(files.read(f"{folder}/{name}", MAX_BYTES), sandbox)
        except (OSError, WireError) as error:
            faults.append(f"{folder}/{name}: {_why(error)}")
    if len(names) > MOST_RESULTS:
        faults.append(f"{folder}: {len(names)} entries, of which {MOST_RESULTS} are read")
    return SandboxNetwork(sandbox, folder, joined(found), tuple(faults)) if names else None


def _dan(files: HostFiles, path: str) -> SandboxNetwork:
    """One file; nothing fails here."""
    name = path.rpartition("/")[2]
    sandbox = name.removesuffix(".json")
    faults = () if name.endswith(".json") else (f"{name}: Kata reads SANDBOX.json only; rename it, or remove it",)
    try:
        read = dan.read(files.read(path, dan.MAX_BYTES))
    except (OSError, ValueError, WireError) as error:
        return SandboxNetwork(sandbox, path, None, (*faults, _why(error)))
    return SandboxNetwork(sandbox, path, read.network, (*faults, *read.faults))


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return os.strerror(error.errno) if error.errno else str(error)
    return error.fault if isinstance(error, WireError) else str(error)
