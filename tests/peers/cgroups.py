"""The cgroup hierarchies of the machine that a test runs on, and what is put back in them at its end.

Whoever makes containers has the root of cgroup v2 pass its controllers on: runc all of them, a test for its kubelet
those that a kubelet insists on. Given `controllers_as_before`, the root is afterwards as it was. Tests run beside each
other, so the first of them remembers, and the last one puts back.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

CGROUP_ROOT = Path("/sys/fs/cgroup")
REMEMBERED = Path("/run/nodeward-test-controllers")
"""What the root passed on before the first of the tests that run now; each of them has it locked."""
KEPT = frozenset({"misc"})
"""Nodeward's own: a daemon switches it on, and its tests look after it."""


def hierarchies() -> list[Path]:
    """The roots of all cgroup hierarchies: one with cgroup v2, one a controller with v1."""
    if (CGROUP_ROOT / "cgroup.procs").exists():
        return [CGROUP_ROOT]
    return [path for path in sorted(CGROUP_ROOT.iterdir()) if (path / "cgroup.procs").exists()]


def make_cgroup(name: str, controllers: Iterable[str]) -> None:
    """The cgroup in every hierarchy; with cgroup v2 it has those of the controllers that are there."""
    for root in hierarchies():
        passed_on = root / "cgroup.subtree_control"
        if passed_on.exists() and root == CGROUP_ROOT:
            there = (root / "cgroup.controllers").read_text().split()
            passed_on.write_text(" ".join(f"+{one}" for one in controllers if one in there))
        (root / name.lstrip("/")).mkdir(exist_ok=True)


def remove_cgroups(name: str) -> None:
    for root in (CGROUP_ROOT, *(path for path in CGROUP_ROOT.iterdir() if path.is_dir())):
        top = root / name.lstrip("/")
        if not top.is_dir():
            continue
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)


def passed_on(root: Path = CGROUP_ROOT) -> set[str]:
    """The controllers that the root of cgroup v2 passes on; none with v1."""
    control = root / "cgroup.subtree_control"
    return set(control.read_text().split()) if control.exists() else set()


@contextmanager
def controllers_as_before(root: Path = CGROUP_ROOT, remembered: Path = REMEMBERED) -> Iterator[None]:
    """While the block runs anybody may have the root pass controllers on; after the last block that runs at the same
    time it passes on what it did before the first. What a cgroup passes on further, somebody needs: it stays."""
    if not (root / "cgroup.subtree_control").exists():
        yield
        return
    with remembered.open("a+") as shared:
        if _alone(shared):
            shared.truncate(0)
            shared.write(" ".join(passed_on(root)))
            shared.flush()
        fcntl.flock(shared, fcntl.LOCK_SH)
        try:
            yield
        finally:
            if _alone(shared):
                shared.seek(0)
                _take_back(root, passed_on(root) - set(shared.read().split()) - KEPT)


def _alone(shared: TextIO) -> bool:
    """Whether nobody else has the file locked; then we have."""
    try:
        fcntl.flock(shared, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _take_back(root: Path, controllers: Iterable[str]) -> None:
    for controller in controllers:
        with contextlib.suppress(OSError):
            (root / "cgroup.subtree_control").write_text(f"-{controller}")
