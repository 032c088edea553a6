"""Kata's folder of direct volumes: lists, reads, writes and removes them, and says which sandbox has taken each.

Below FOLDER each volume has a folder, named by its path, with `mountInfo.json`; the shim adds an empty file named by
its sandbox. Kata takes any other name in there for a sandbox, so whatever else lies there is a fault.
"""

import errno
import os
from dataclasses import dataclass
from typing import Final

from nodeward.core.errors import NodewardError, WireError
from nodeward.host.hostfs import HostFiles, ensure_folder, is_there, temporary_path
from nodeward.neighbours.kata import direct_volume
from nodeward.neighbours.kata.direct_volume import FILE, MountInfo

FOLDER: Final = "/run/kata-containers/shared/direct-volumes"
MOST: Final = 4096
"""Volumes that are looked at."""
_LEFT: Final = temporary_path(f"/{FILE}").lstrip("/")
"""What a writer that was killed leaves."""


class VolumeFileError(NodewardError):
    """A volume's files cannot be changed, and why."""


@dataclass(frozen=True, slots=True)
class Volume:
    """One volume as its files say. `place` is its folder; `path` is empty where the folder's name is no path's."""

    place: str
    path: str
    info: MountInfo | None
    sandboxes: tuple[str, ...] = ()
    """Those that have recorded themselves; Kata goes by the first."""
    faults: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()


def listed(files: HostFiles, folder: str = FOLDER) -> tuple[Volume, ...]:
    """Every volume, by its folder's name. Empty without the folder; OSError where it cannot be read."""
    try:
        names = files.listdir(folder)
    except FileNotFoundError:
        return ()
    if len(names) > MOST:
        raise VolumeFileError(f"{folder} has {len(names)} entries, more than the {MOST} read here; remove old ones")
    return tuple(_volume(files, f"{folder}/{name}") for name in names)


def in_folder(files: HostFiles, folder: str) -> tuple[Volume, ...]:
    """The volume of this folder, or every volume in it. FileNotFoundError where there is no such folder."""
    names = files.listdir(folder)
    return (_volume(files, folder),) if FILE in names else listed(files, folder)


def of(files: HostFiles, path: str, folder: str = FOLDER) -> Volume | None:
    """The volume of that path; None where it has none. WireError for a path that cannot have one."""
    place = f"{folder}/{direct_volume.folder_of(path)}"
    return _volume(files, place) if is_there(files, place) else None


def write(files: HostFiles, path: str, info: MountInfo, folder: str = FOLDER) -> str:
    """Writes the volume's file (0600, whole) in its folder (0700); returns its path. WireError with every fault of
    `info`; VolumeFileError while a sandbox has the volume. Not for a daemon: it sets the process's umask."""
    place, data = f"{folder}/{direct_volume.folder_of(path)}", direct_volume.encode(info)
    old = os.umask(0o077)
    try:
        _make(files, place)
    finally:
        os.umask(old)
    _refuse_taken(files, place, path)
    files.replace(f"{place}/{FILE}", data)
    return f"{place}/{FILE}"


def remove(files: HostFiles, path: str, folder: str = FOLDER, *, force: bool = False) -> bool:
    """Removes the volume's folder; False where there is none. Unless `force`, VolumeFileError while a sandbox has
    it."""
    place = f"{folder}/{direct_volume.folder_of(path)}"
    try:
        if not force:
            _refuse_taken(files, place, path)
        names = files.listdir(place)
    except FileNotFoundError:
        return False
    for name in sorted(names, key=lambda one: one != FILE):  # from then on no shim takes it
        files.unlink(f"{place}/{name}")
    files.rmdir(place)
    return True


def _make(files: HostFiles, place: str) -> None:
    ensure_folder(files, place)
    if not files.stat(place).is_dir:
        raise VolumeFileError(f"{place} is no folder; remove it: Kata refuses the volume")


def _refuse_taken(files: HostFiles, place: str, path: str) -> None:
    taken = _sandboxes(files.listdir(place))
    if taken:
        raise VolumeFileError(
            f"volume {path} is taken by sandbox {taken[0]}: end that pod first, or remove it all the same by "
            "`nodeward vms volume remove --force`"
        )


def _sandboxes(names: list[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in (FILE, _LEFT))


def _volume(files: HostFiles, place: str) -> Volume:
    """One folder; nothing fails here."""
    faults = list[str]()
    name = place.rpartition("/")[2]
    try:
        path = direct_volume.path_of(name)
    except WireError as error:
        path = ""
        faults.append(str(error))
    try:
        names = files.listdir(place)
        read = direct_volume.read(files.read(f"{place}/{FILE}", direct_volume.MAX_BYTES))
    except (OSError, ValueError, WireError) as error:
        return Volume(place, path, None, faults=(*faults, f"{FILE}: {_why(error)}"))
    faults += read.faults
    taken = _sandboxes(names)
    if len(taken) > 1:
        faults.append(f"{len(taken)} files besides {FILE}: Kata takes the first for the sandbox; remove the others")
    if _LEFT in names:
        faults.append(f"{_LEFT}: left by a writer that was killed, and Kata takes it for a sandbox; remove it")
    return Volume(place, path, read.info, taken, tuple(faults), read.withheld)


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        if error.errno == errno.ENOENT:
            return (
                "is missing: Kata shares the folder with the host instead; remove the folder, or add the volume again"
            )
        return os.strerror(error.errno) if error.errno else str(error)
    return error.fault if isinstance(error, WireError) else str(error)
