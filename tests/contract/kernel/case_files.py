"""Cases of the tree and its files: which files are where, who hands down controllers, what can be made and removed."""

import errno

from tests.contract.kernel.vocabulary import UNLIMITED, KernelUnderTest, child, refused


def case_files_listing_is_sorted_with_children(k: KernelUnderTest) -> None:
    child(k, "zebra")
    child(k, "apple")
    names = k.files.listdir(k.base)
    assert names == sorted(names)
    assert {"zebra", "apple", "cgroup.procs", "cgroup.events"} <= set(names)


def case_files_stat(k: KernelUnderTest) -> None:
    c = child(k, "c")
    assert k.files.stat(c).is_dir
    assert not k.files.stat(f"{c}/misc.max").is_dir
    refused(errno.ENOENT, lambda: k.files.stat(f"{c}/missing"))


def case_files_links_count_children(k: KernelUnderTest) -> None:
    c = child(k, "c")
    assert k.files.stat(c).links == 2
    for name in ("a", "b"):
        child(k, name, c)
    assert k.files.stat(c).links == 4
    child(k, "below", f"{c}/a")
    assert k.files.stat(c).links == 4
    k.files.rmdir(f"{c}/b")
    assert k.files.stat(c).links == 3


def case_files_same_name_is_another_cgroup(k: KernelUnderTest) -> None:
    before = k.files.stat(child(k, "c"))
    k.files.rmdir(f"{k.base}/c")
    after = k.files.stat(child(k, "c"))
    assert (before.device, before.inode) != (after.device, after.inode)


def case_files_read_bound(k: KernelUnderTest) -> None:
    c = child(k, "c")
    size = len(UNLIMITED)
    assert k.files.read(f"{c}/misc.max", size).decode() == UNLIMITED
    refused(errno.EFBIG, lambda: k.files.read(f"{c}/misc.max", size - 1))


def case_handle_reads_afresh(k: KernelUnderTest) -> None:
    c = child(k, "c")
    handle = k.files.open(f"{c}/misc.current")
    try:
        assert k.files.pread(handle, 4096) == b"sev 0\nsev_es 0\n"
        k.charge(c, "sev", 2)
        assert k.files.pread(handle, 4096) == b"sev 2\nsev_es 0\n"
        assert k.files.pread(handle, 5) == b"sev 2"
    finally:
        k.files.close(handle)
    refused(errno.EBADF, lambda: k.files.close(handle))


def case_handle_of_a_removed_cgroup(k: KernelUnderTest) -> None:
    c = child(k, "c")
    handle = k.files.open(f"{c}/misc.max")
    try:
        k.files.rmdir(c)
        refused(errno.ENODEV, lambda: k.files.pread(handle, 4096))
        child(k, "c")
        refused(errno.ENODEV, lambda: k.files.pread(handle, 4096))
    finally:
        k.files.close(handle)


def case_handle_of_a_controller_turned_off(k: KernelUnderTest) -> None:
    c = child(k, "c")
    handle = k.files.open(f"{c}/misc.max")
    try:
        k.files.write(f"{k.base}/cgroup.subtree_control", b"-misc")
        refused(errno.ENODEV, lambda: k.files.pread(handle, 4096))
    finally:
        k.files.close(handle)


def _refused_word(k: KernelUnderTest, control: str, word: bytes) -> None:
    refused(errno.EINVAL, lambda: k.files.write(control, word))
