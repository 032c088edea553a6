"""Cases of the misc hierarchy of cgroup v1, for a kernel that has it mounted. Most other cases run there as well."""

import errno

from tests.contract.kernel.vocabulary import MOUNT, KernelUnderTest, refused, text


def case_v1_root_has_the_files(k: KernelUnderTest) -> None:
    names = set(k.files.listdir(k.mount))
    assert {"misc.capacity", "misc.current", "misc.peak", "cgroup.procs", "tasks", "release_agent"} <= names
    assert not {"cgroup.controllers", "cgroup.subtree_control", "misc.max"} & names


def case_v1_child_has_the_files_at_once(k: KernelUnderTest) -> None:
    k.files.mkdir(f"{k.base}/c")
    k.files.mkdir(f"{k.base}/c/inner")
    for cgroup in (k.base, f"{k.base}/c", f"{k.base}/c/inner"):
        names = set(k.files.listdir(cgroup))
        assert {"misc.current", "misc.events", "misc.events.local", "misc.max", "misc.peak"} <= names
        assert {"cgroup.procs", "tasks", "notify_on_release", "cgroup.clone_children"} <= names
        assert not {"cgroup.events", "cgroup.controllers", "cgroup.subtree_control"} & names


def case_v1_v2_tree_has_lost_the_controller(k: KernelUnderTest) -> None:
    assert "misc" not in text(k, f"{MOUNT}/cgroup.controllers").split()
    assert not [name for name in k.files.listdir(MOUNT) if name.startswith("misc.")]
    refused(errno.ENOENT, lambda: k.files.write(f"{MOUNT}/cgroup.subtree_control", b"+misc"))


def case_v1_place_is_apart_from_the_v2_tree(k: KernelUnderTest) -> None:
    pid = k.new_process(k.base)
    other = f"{MOUNT}/other"
    k.files.mkdir(other)
    k.files.write(f"{other}/cgroup.procs", str(pid).encode())
    assert text(k, f"{k.base}/cgroup.procs").split() == [str(pid)] == text(k, f"{other}/cgroup.procs").split()
    k.end_process(pid)
    k.files.rmdir(other)
