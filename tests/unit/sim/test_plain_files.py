"""The double's ordinary files answer as the operating system does: one suite, run on a real folder and on the
double.
"""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeward.aio.hostfs import HostFiles, OsFiles
from nodeward.doubles.kernel import SimKernel


@pytest.fixture(params=["os", "double"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> HostFiles:
    if request.param == "os":
        (tmp_path / "run").mkdir()
        return OsFiles(str(tmp_path))
    return SimKernel({})


def test_contents(files: HostFiles) -> None:
    files.append("/run/f", b"123", False)
    files.append("/run/f", b"45", True)
    files.write("/run/f", b"ab")
    assert files.read("/run/f", 5) == b"ab345"
    assert files.stat("/run/f").size == 5
    files.replace("/run/f", b"")
    assert files.read("/run/f", 0) == b""


def test_open_handle_keeps_what_was_replaced(files: HostFiles) -> None:
    files.replace("/run/f", b"old")
    handle = files.open("/run/f")
    files.write("/run/f", b"O")
    assert files.pread(handle, 9) == b"Old"
    files.replace("/run/f", b"new")
    assert files.pread(handle, 2) == b"Ol"
    files.unlink("/run/f")
    assert files.pread(handle, 9) == b"Old"
    files.close(handle)


def test_listing_is_sorted(files: HostFiles) -> None:
    for name in "cab":
        files.mkdir(f"/run/{name}")
    assert files.listdir("/run") == ["a", "b", "c"]


def test_replaced_file_is_another_inode(files: HostFiles) -> None:
    files.replace("/run/f", b"1")
    before = files.stat("/run/f").inode
    files.replace("/run/f", b"2")
    assert files.stat("/run/f").inode != before


REFUSALS: dict[str, tuple[int, Callable[[HostFiles], object]]] = {
    "read_missing": (errno.ENOENT, lambda f: f.read("/run/x", 9)),
    "read_folder": (errno.EISDIR, lambda f: f.read("/run/d", 9)),
    "read_too_large": (errno.EFBIG, lambda f: f.read("/run/f", 1)),
    "read_below_a_file": (errno.ENOTDIR, lambda f: f.read("/run/f/x", 9)),
    "open_missing": (errno.ENOENT, lambda f: f.open("/run/x")),
    "pread_folder": (errno.EISDIR, lambda f: f.pread(f.open("/run/d"), 9)),
    "pread_closed": (errno.EBADF, lambda f: f.pread(987, 9)),
    "close_closed": (errno.EBADF, lambda f: f.close(987)),
    "write_missing": (errno.ENOENT, lambda f: f.write("/run/x", b"")),
    "write_folder": (errno.EISDIR, lambda f: f.write("/run/d", b"")),
    "append_folder": (errno.EISDIR, lambda f: f.append("/run/d", b"", False)),
    "append_in_missing": (errno.ENOENT, lambda f: f.append("/run/x/y", b"", False)),
    "append_below_a_file": (errno.ENOTDIR, lambda f: f.append("/run/f/y", b"", False)),
    "replace_folder": (errno.EISDIR, lambda f: f.replace("/run/d", b"")),
    "replace_in_missing": (errno.ENOENT, lambda f: f.replace("/run/x/y", b"")),
    "list_file": (errno.ENOTDIR, lambda f: f.listdir("/run/f")),
    "list_missing": (errno.ENOENT, lambda f: f.listdir("/run/x")),
    "stat_missing": (errno.ENOENT, lambda f: f.stat("/run/x")),
    "mkdir_there": (errno.EEXIST, lambda f: f.mkdir("/run/d")),
    "mkdir_over_a_file": (errno.EEXIST, lambda f: f.mkdir("/run/f")),
    "mkdir_root": (errno.EEXIST, lambda f: f.mkdir("/")),
    "mkdir_in_missing": (errno.ENOENT, lambda f: f.mkdir("/run/x/y")),
    "rmdir_full": (errno.ENOTEMPTY, lambda f: f.rmdir("/run")),
    "rmdir_file": (errno.ENOTDIR, lambda f: f.rmdir("/run/f")),
    "rmdir_missing": (errno.ENOENT, lambda f: f.rmdir("/run/x")),
    "unlink_folder": (errno.EISDIR, lambda f: f.unlink("/run/d")),
    "unlink_missing": (errno.ENOENT, lambda f: f.unlink("/run/x")),
}


@pytest.mark.parametrize("case_id", REFUSALS)
def test_refusal(files: HostFiles, case_id: str) -> None:
    files.mkdir("/run/d")
    files.replace("/run/f", b"12")
    number, act = REFUSALS[case_id]
    with pytest.raises(OSError) as caught:  # noqa: PT011
        act(files)
    assert caught.value.errno == number
    assert files.listdir("/run") == ["d", "f"]
