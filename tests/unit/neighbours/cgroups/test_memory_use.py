"""Memory in use on each node, from files that a kernel wrote and from files that none did."""

from pathlib import Path

import pytest

from nodeward.core.errors import WireError
from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.cgroups.memory_use import FILE, MAX_BYTES, parse, read_used

LINUX_6_12 = b"""\
anon N0=16789504 N1=8192
file N0=4096 N1=0
kernel_stack N0=16384 N1=0
pagetables N0=32768 N1=4096
sec_pagetables N0=0 N1=0
shmem N0=4096 N1=0
file_mapped N0=4096 N1=0
file_dirty N0=4096 N1=0
swapcached N0=0 N1=0
anon_thp N0=14680064 N1=0
active_anon N0=16678912 N1=0
slab_reclaimable N0=100 N1=20
slab_unreclaimable N0=10 N1=2
workingset_refault_anon N0=7 N1=7
pgpromote_success N0=7 N1=7
"""
PLAIN = b"anon N0=1 N1=2\nfile N0=0 N1=0\n"
HOSTILE = {
    "nothing": b"",
    "cut short": PLAIN[:-1],
    "without file pages": b"anon N0=1\n",
    "of cgroup v1, in pages": b"total=5 N0=5\nfile=2 N0=2\nanon=3 N0=3\nunevictable=0 N0=0\n",
    "a line without nodes": PLAIN + b"pagetables\n",
    "a line twice": PLAIN + b"anon N0=1\n",
    "a negative number": b"anon N0=-1\nfile N0=0\n",
    "a word after the nodes": b"anon N0=1 total\nfile N0=0\n",
    "a node that no kernel has": b"anon N1024=1\nfile N0=0\n",
    "more than there can be": b"anon N0=9223372036854775807\nfile N0=1\n",
    "no text": b"anon N0=\xff\nfile N0=0\n",
}


def test_each_byte_is_counted_once_on_its_node() -> None:
    zero = 16789504 + 4096 + 16384 + 32768 + 100 + 10
    assert parse(LINUX_6_12) == {0: zero, 1: 8192 + 4096 + 20 + 2}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_file_that_is_not_the_kernels_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        parse(data)


def test_a_cgroup_that_cannot_be_read_is_not_known(tmp_path: Path) -> None:
    for name, text in {"good": PLAIN, "damaged": b"anon N0=x\n", "large": PLAIN + b"x" * MAX_BYTES}.items():
        (tmp_path / "sys" / name).mkdir(parents=True)
        (tmp_path / "sys" / name / FILE).write_bytes(text)
    paths = {name: f"/{name}" for name in ("damaged", "large", "missing", "../sys/good", "good")}
    assert read_used(OsFiles(str(tmp_path)), "/sys", paths) == {"good": {0: 1, 1: 2}}
