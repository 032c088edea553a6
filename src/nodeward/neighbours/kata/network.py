"""What files on the host say of a sandbox's network: Kata's DAN file, and CNI's result cache."""

import os
from dataclasses import dataclass
from typing import Final

from nodeward.core.errors import NodewardError
from nodeward.core.podapi_network import PodNetwork
from nodeward.core.wire_errors import WireError
from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.kata import cni_result, dan

DANS: Final = "/run/kata-containers/dans"
"""Kata's `dan_conf`, unless its configuration names another."""
CNI: Final = "/var/lib/cni/results"
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
    try:
        files.stat(path)
    except FileNotFoundError:
        return None
    return _dan(files, path)


def write(files: HostFiles, sandbox: str, data: bytes, folder: str = DANS) -> str:
    """Writes the sandbox's DAN file (0600, whole); returns its path. WireError with every fault. Not for a daemon: it
    sets the process's umask."""
    path, data = f"{folder}/{dan.file_of(sandbox)}", dan.encode(data)
    old = os.umask(0o077)
    try:
        _make(files, folder)
    finally:
        os.umask(old)
    files.replace(path, data)
    return path


def by_cni(files: HostFiles, sandbox: str, folder: str = CNI) -> SandboxNetwork | None:
    """What CNI's cache says of the sandbox; None where it says nothing. OSError where it cannot be read."""
    dan.file_of(sandbox)  # no id, no entry
    try:
        names = [name for name in files.listdir(folder) if cni_result.is_of(name, sandbox)]
    except FileNotFoundError:
        return None
    found: dict[str, PodNetwork] = {}
    faults = list[str]()
    for name in names[:MOST_RESULTS]:
        try:
            found[name] = cni_result.read(files.read(f"{folder}/{name}", cni_result.MAX_BYTES), sandbox)
        except (OSError, WireError) as error:
            faults.append(f"{folder}/{name}: {_why(error)}")
    if len(names) > MOST_RESULTS:
        faults.append(f"{folder}: {len(names)} entries, of which {MOST_RESULTS} are read")
    return SandboxNetwork(sandbox, folder, cni_result.joined(found), tuple(faults)) if names else None


def _make(files: HostFiles, folder: str) -> None:
    try:
        files.stat(folder)
    except FileNotFoundError:
        if above := folder.rpartition("/")[0]:
            _make(files, above)
        files.mkdir(folder)


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
