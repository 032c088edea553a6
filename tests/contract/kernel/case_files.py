"""Cases of the tree and its files: which files are where, who hands down controllers, what can be made and removed."""

import errno

from tests.contract.kernel.vocabulary import UNLIMITED, KernelUnderTest, child, limit, refused, text

ALL_MISC = {"misc.current", "misc.events", "misc.events.local", "misc.max", "misc.peak"}


def misc_files(k: KernelUnderTest, cgroup: str) -> set[str]:
    return {name for name in k.files.listdir(cgroup) if name.startswith("misc.")}


def case_files_of_the_root(k: KernelUnderTest) -> None:
    assert misc_files(k, k.mount) == {"misc.capacity", "misc.current", "misc.peak"}
    refused(errno.ENOENT, lambda: k.files.write(f"{k.mount}/misc.max", b"sev 1"))


def case_files_of_a_child(k: KernelUnderTest) -> None:
    assert misc_files(k, child(k, "c")) == ALL_MISC


def case_files_need_the_parent_to_hand_down(k: KernelUnderTest) -> None:
    k.files.mkdir(f"{k.base}/c")
    assert misc_files(k, f"{k.base}/c") == set()
    refused(errno.ENOENT, lambda: k.files.write(f"{k.base}/c/misc.max", b"sev 1"))
    refused(errno.ENOENT, lambda: text(k, f"{k.base}/c/misc.current"))


def case_files_fresh_values(k: KernelUnderTest) -> None:
    c = child(k, "c")
    assert text(k, f"{c}/misc.max") == UNLIMITED
    assert text(k, f"{c}/misc.current") == "sev 0\nsev_es 0\n"
    assert text(k, f"{c}/misc.peak") == "sev 0\nsev_es 0\n"
    assert text(k, f"{c}/misc.events") == "sev.max 0\nsev_es.max 0\n"
    assert text(k, f"{c}/misc.events.local") == "sev.max 0\nsev_es.max 0\n"
    assert text(k, f"{k.mount}/misc.capacity") == "sev 10\nsev_es 5\n"


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


def case_files_cannot_be_made_or_removed(k: KernelUnderTest) -> None:
    c = child(k, "c")
    refused(errno.EPERM, lambda: k.files.unlink(f"{c}/misc.max"))
    refused(errno.EACCES, lambda: k.files.append(f"{c}/note", b"x", False))
    refused(errno.EACCES, lambda: k.files.replace(f"{c}/note", b"x"))
    refused(errno.ENOENT, lambda: k.files.write(f"{c}/note", b"x"))


def case_files_wrong_kind(k: KernelUnderTest) -> None:
    c = child(k, "c")
    refused(errno.EISDIR, lambda: k.files.write(c, b"x"))
    refused(errno.EISDIR, lambda: k.files.read(c, 10))
    refused(errno.ENOTDIR, lambda: k.files.listdir(f"{c}/misc.max"))
    refused(errno.ENOTDIR, lambda: k.files.rmdir(f"{c}/misc.max"))
    refused(errno.ENOTDIR, lambda: k.files.stat(f"{c}/misc.max/x"))


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


def case_mkdir_twice(k: KernelUnderTest) -> None:
    c = child(k, "c")
    refused(errno.EEXIST, lambda: k.files.mkdir(c))
    refused(errno.EEXIST, lambda: k.files.mkdir(f"{c}/misc.max"))
    refused(errno.ENOENT, lambda: k.files.mkdir(f"{k.base}/missing/c"))


def case_rmdir_in_use(k: KernelUnderTest) -> None:
    c = child(k, "c")
    k.files.mkdir(f"{c}/below")
    refused(errno.EBUSY, lambda: k.files.rmdir(c))
    k.files.rmdir(f"{c}/below")
    pid = k.new_process(c)
    refused(errno.EBUSY, lambda: k.files.rmdir(c))
    k.end_process(pid)
    k.files.rmdir(c)
    refused(errno.ENOENT, lambda: k.files.rmdir(c))


def case_control_reads_back(k: KernelUnderTest) -> None:
    control = f"{k.base}/cgroup.subtree_control"
    assert "misc" in text(k, f"{k.base}/cgroup.controllers").split()
    assert text(k, control) == ""
    k.files.write(control, b" +misc\n")
    assert text(k, control) == "misc\n"
    k.files.write(control, b"+misc")
    assert text(k, control) == "misc\n"
    k.files.write(control, b"-misc")
    assert text(k, control) == ""


def case_control_last_word_wins(k: KernelUnderTest) -> None:
    control = f"{k.base}/cgroup.subtree_control"
    k.files.write(control, b"-misc +misc")
    assert text(k, control) == "misc\n"
    k.files.write(control, b"+misc  -misc")
    assert text(k, control) == ""


def case_control_not_offered(k: KernelUnderTest) -> None:
    k.files.mkdir(f"{k.base}/c")
    assert text(k, f"{k.base}/c/cgroup.controllers") == ""
    refused(errno.ENOENT, lambda: k.files.write(f"{k.base}/c/cgroup.subtree_control", b"+misc"))


def case_control_bad_words(k: KernelUnderTest) -> None:
    control = f"{k.base}/cgroup.subtree_control"
    for word in (b"misc", b"+nonsense", b"+", b"*misc", b"+misc,+pids", b"+MISC"):
        _refused_word(k, control, word)
    assert text(k, control) == ""
    k.files.write(control, b"")
    k.files.write(control, b"\n")


def _refused_word(k: KernelUnderTest, control: str, word: bytes) -> None:
    refused(errno.EINVAL, lambda: k.files.write(control, word))


def case_control_with_processes(k: KernelUnderTest) -> None:
    c = child(k, "c")
    pid = k.new_process(c)
    refused(errno.EBUSY, lambda: k.files.write(f"{c}/cgroup.subtree_control", b"+misc"))
    k.end_process(pid)
    k.files.write(f"{c}/cgroup.subtree_control", b"+misc")


def case_control_child_still_uses_it(k: KernelUnderTest) -> None:
    c = child(k, "c")
    child(k, "below", c)
    refused(errno.EBUSY, lambda: k.files.write(f"{k.base}/cgroup.subtree_control", b"-misc"))
    k.files.write(f"{c}/cgroup.subtree_control", b"-misc")
    k.files.write(f"{k.base}/cgroup.subtree_control", b"-misc")
    assert misc_files(k, c) == set()


def case_control_later_gives_files_to_children(k: KernelUnderTest) -> None:
    k.files.mkdir(f"{k.base}/c")
    k.files.write(f"{k.base}/cgroup.subtree_control", b"+misc")
    assert misc_files(k, f"{k.base}/c") == ALL_MISC


def case_control_off_and_on_forgets_limits(k: KernelUnderTest) -> None:
    c = child(k, "c")
    limit(k, c, "sev 3")
    k.charge(c, "sev", 2)
    k.files.write(f"{k.base}/cgroup.subtree_control", b"-misc")
    k.files.write(f"{k.base}/cgroup.subtree_control", b"+misc")
    assert text(k, f"{c}/misc.max") == UNLIMITED
    assert text(k, f"{c}/misc.current") == "sev 0\nsev_es 0\n"
    assert text(k, f"{c}/misc.peak") == "sev 0\nsev_es 0\n"
    assert text(k, f"{k.base}/misc.current") == "sev 2\nsev_es 0\n"
    k.uncharge(c, "sev", 2)
    assert text(k, f"{c}/misc.current") == "sev 0\nsev_es 0\n"
    assert text(k, f"{k.base}/misc.current") == "sev 0\nsev_es 0\n"


def case_processes_are_listed_and_move(k: KernelUnderTest) -> None:
    a, b = child(k, "a"), child(k, "b")
    pid = k.new_process(a)
    assert text(k, f"{a}/cgroup.procs") == f"{pid}\n"
    assert "populated 1\n" in text(k, f"{a}/cgroup.events")
    k.files.write(f"{b}/cgroup.procs", f"{pid}\n".encode())
    assert text(k, f"{a}/cgroup.procs") == ""
    assert text(k, f"{b}/cgroup.procs") == f"{pid}\n"
    assert "populated 0\n" in text(k, f"{a}/cgroup.events")
    assert "populated 1\n" in text(k, f"{k.base}/cgroup.events")
    k.end_process(pid)
    assert "populated 0\n" in text(k, f"{k.base}/cgroup.events")


def case_processes_not_where_controllers_go_down(k: KernelUnderTest) -> None:
    c = child(k, "c")
    pid = k.new_process(c)
    refused(errno.EBUSY, lambda: k.files.write(f"{k.base}/cgroup.procs", f"{pid}".encode()))
    assert text(k, f"{c}/cgroup.procs") == f"{pid}\n"
    k.end_process(pid)


def case_processes_bad_pids(k: KernelUnderTest) -> None:
    c = child(k, "c")
    refused(errno.EINVAL, lambda: k.files.write(f"{c}/cgroup.procs", b"me"))
    refused(errno.EINVAL, lambda: k.files.write(f"{c}/cgroup.procs", b"-1"))
    refused(errno.ESRCH, lambda: k.files.write(f"{c}/cgroup.procs", b"99999999"))
