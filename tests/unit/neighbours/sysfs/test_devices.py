"""Where devices lie, by a tree of files with symbolic links as sysfs has them."""

import os
from pathlib import Path

import pytest

from nodeward.core.cpuset import of
from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.sysfs import devices

PCI = "sys/devices/pci0000:80/0000:80:01.0"
OTHER = "sys/devices/pci0000:00/0000:00:02.0"


def tree(root: Path) -> OsFiles:
    files = {
        f"{PCI}/local_cpulist": "8-11\n",
        f"{PCI}/numa_node": "2\n",
        f"{PCI}/block/sda/sda1/partition": "1\n",
        f"{OTHER}/numa_node": "1\n",
        "sys/devices/pci0000:00/local_cpulist": "0-31\n",
        "sys/devices/virtual/block/dm-0/dev": "253:0\n",
        "sys/devices/virtual/vfio/7/dev": "243:0\n",
        "sys/devices/platform/unplaced/local_cpulist": "0-31\n",
        "sys/devices/platform/unplaced/numa_node": "-1\n",
        "sys/devices/platform/broken/local_cpulist": "x\n",
    }
    links = {
        "sys/dev/block/8:1": f"../../../{PCI}/block/sda/sda1",
        "sys/dev/block/253:0": "../../devices/virtual/block/dm-0",
        "sys/devices/virtual/block/dm-0/slaves/sda1": f"../../../../../../{PCI}/block/sda/sda1",
        "sys/dev/char/243:0": "../../devices/virtual/vfio/7",
        "sys/kernel/iommu_groups/7/devices/0000:00:02.0": f"../../../../../{OTHER}",
        "sys/dev/char/1:9": "../../devices/platform/unplaced",
        "sys/dev/char/6:7": "../../devices/platform/broken",
        "sys/dev/char/6:6": "/etc",
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for path, to in links.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        os.symlink(to, root / path)
    return OsFiles(str(root))


def test_the_nearest_folder_that_tells_counts_and_those_behind_a_device(tmp_path: Path) -> None:
    files = tree(tmp_path)

    def near(number: tuple[int, int], *, block: bool = True) -> list[devices.Place]:
        return list(devices.of_number(files, number, is_block=block).values())

    disk = (of(range(8, 12)), 0)
    assert near((8, 1)) == [disk]
    assert near((253, 0)) == [disk]  # a device mapper's device is where its disk is
    assert near((243, 0), block=False) == [(0, of((1,)))]  # by the IOMMU group
    assert near((1, 9), block=False) == []  # the firmware does not tell
    with pytest.raises(OSError, match="cross-device"):
        near((6, 6), block=False)  # a link out of the host's files
    with pytest.raises(ValueError, match="neither a CPU nor a range"):
        near((6, 7), block=False)
    assert near((99, 1)) == near((0, 41)) == []
    assert list(devices.of_named(files, f"/{OTHER}").values()) == [(0, of((1,)))]
    assert devices.of_named(files, "/dev/nosuch") == {}
