"""Where devices lie in the machine: near which CPUs, or which memory nodes, by sysfs.

The nearest folder at or above a device's own that tells `local_cpulist` or `numa_node` counts (kernel:
Documentation/ABI/testing/sysfs-bus-pci, sysfs-devices-numa); of a disk made of others (device mapper, md) and of an
IOMMU group each device behind it. Promises: every read is bounded; what is not told is left out. What is there and
cannot be read is an OSError, or a ValueError where it cannot be understood.
"""

import os
from collections.abc import Iterator, Mapping

from nodeward.core import cpuset
from nodeward.core.cpuset import CpuSet
from nodeward.host.hostfs import HostFiles

DEVICES = "/sys/devices/"
_GROUPS = "/sys/kernel/iommu_groups"
_VFIO = f"{DEVICES}virtual/vfio/"
_MOST_BEHIND = 64
"""Devices behind one."""
_MOST_DEEP = 4
"""A device mapper's device on an md's on disks is three."""
Place = tuple[CpuSet, CpuSet]
"""CPUs, and memory nodes as bits: one of both."""


def of_number(files: HostFiles, number: tuple[int, int], *, is_block: bool) -> Mapping[str, Place]:
    """The places of the device with this major and minor number, by the folder that tells each. A major of 0 has no
    device behind it, such as a file system in memory."""
    kind = "block" if is_block else "char"
    return of_path(files, f"/sys/dev/{kind}/{number[0]}:{number[1]}") if number[0] else {}


def of_path(files: HostFiles, path: str) -> Mapping[str, Place]:
    """The same for a path in sysfs."""
    return dict(_places(files, path, 0))


def of_named(files: HostFiles, path: str) -> Mapping[str, Place]:
    """The same for a path in sysfs, or of a device's node."""
    if path.startswith("/sys/"):
        return of_path(files, path)
    try:
        info = files.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    device = info.block or info.character
    return of_number(files, (os.major(device), os.minor(device)), is_block=bool(info.block)) if device else {}


def _places(files: HostFiles, path: str, deep: int) -> Iterator[tuple[str, Place]]:
    try:
        own = files.real(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    folder = own
    while folder.startswith(DEVICES) and folder != DEVICES.rstrip("/"):
        if place := _told(files, folder):
            yield folder, place
            break
        folder = folder.rpartition("/")[0]
    if deep < _MOST_DEEP:
        for other in _behind(files, own):
            yield from _places(files, other, deep + 1)


def _behind(files: HostFiles, own: str) -> list[str]:
    folder = f"{own}/slaves"
    if own.startswith(_VFIO):
        folder = f"{_GROUPS}/{own.removeprefix(_VFIO)}/devices"
    try:
        return [f"{folder}/{name}" for name in files.listdir(folder)[:_MOST_BEHIND]]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _told(files: HostFiles, folder: str) -> Place | None:
    node = _text(files, f"{folder}/numa_node")
    if node == "-1":  # the firmware does not say, and the list of CPUs is that of all
        return None
    cpus = cpuset.parse(_text(files, f"{folder}/local_cpulist"))
    if cpus:
        return cpus, 0
    return (0, cpuset.parse(node)) if node else None


def _text(files: HostFiles, path: str) -> str:
    try:
        return files.read(path, cpuset.MAX_TEXT).decode("ascii", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
