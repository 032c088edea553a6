"""The host's files on the operating system: given a folder as the host's root, what each call does and refuses."""

import errno
import os
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import pytest

from nodeward.host.hostfs import OsFiles, checked_path, opened


@pytest.fixture
def files(tmp_path: Path) -> OsFiles:
    return OsFiles(str(tmp_path))


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        pytest.param("etc/passwd", "relative", id="relative"),
        pytest.param("", "relative", id="empty"),
        pytest.param("/a/../b", "'..'", id="parent"),
        pytest.param("/..", "'..'", id="parent_of_root"),
        pytest.param("/a\0b", "NUL", id="nul"),
    ],
)
def test_path_that_could_leave_the_root_is_refused(files: OsFiles, path: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        files.read(path, 10)
    with pytest.raises(ValueError, match=complaint):
        files.replace(path, b"")


@pytest.mark.parametrize(
    ("path", "place"), [("/", "/"), ("//a//b/", "/a/b"), ("/a/./b", "/a/b"), ("/a/..b", "/a/..b"), ("/...", "/...")]
)
def test_path_is_cleaned(path: str, place: str) -> None:
    assert checked_path(path) == place


def test_read_gives_the_whole_file_or_refuses(files: OsFiles, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 100_000)
    assert len(files.read("/f", 100_000)) == 100_000
    with pytest.raises(OSError, match="larger than the 99999 bytes") as caught:
        files.read("/f", 99_999)
    assert caught.value.errno == errno.EFBIG
    (tmp_path / "empty").touch()
    assert files.read("/empty", 0) == b""
    with pytest.raises(FileNotFoundError):
        files.read("/missing", 10)


def test_handle_reads_from_the_start_each_time(files: OsFiles, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    handle = files.open("/f")
    assert [files.pread(handle, 3), files.pread(handle, 9)] == [b"123", b"12345"]
    (tmp_path / "f").write_bytes(b"6")
    assert files.pread(handle, 9) == b"6"
    files.close(handle)
    with pytest.raises(OSError, match="Bad file descriptor"):
        files.pread(handle, 9)


def test_write_neither_creates_nor_truncates(files: OsFiles, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.write("/f", b"x")
    (tmp_path / "f").write_bytes(b"12345")
    files.write("/f", b"ab")
    assert (tmp_path / "f").read_bytes() == b"ab345"


@pytest.mark.parametrize("call", ["write", "append"])
def test_one_call_is_one_write(files: OsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    (tmp_path / "f").touch()
    counted, data = mock.Mock(wraps=os.write), b"x" * 70_000
    monkeypatch.setattr(os, "write", counted)
    files.write("/f", data) if call == "write" else files.append("/f", data, False)
    assert [len(one.args[1]) for one in counted.call_args_list] == [70_000]


@pytest.mark.parametrize("call", ["write", "append"])
def test_short_write_is_an_error(files: OsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    (tmp_path / "f").touch()
    monkeypatch.setattr(os, "write", lambda fd, data: len(data) - 1)
    with pytest.raises(OSError, match="only 2 of 3 bytes") as caught:
        files.write("/f", b"abc") if call == "write" else files.append("/f", b"abc", True)
    assert caught.value.errno == errno.EIO


def test_append_creates_privately_and_adds(files: OsFiles, tmp_path: Path) -> None:
    files.append("/log", b"a\n", True)
    files.append("/log", b"b\n", True)
    assert (tmp_path / "log").read_bytes() == b"a\nb\n"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_append_syncs_only_when_asked(files: OsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []
    real_stat = os.fstat

    def sync(fd: int) -> None:
        synced.append(real_stat(fd).st_mode & 0o170000 == 0o040000)

    monkeypatch.setattr(os, "fsync", sync)
    files.append("/log", b"a", False)
    assert synced == []
    files.append("/new", b"a", True)
    assert synced == [False, True], "the new file, then the folder that names it"
    files.append("/new", b"a", True)
    assert synced == [False, True, False]


def test_replace_leaves_one_private_file(files: OsFiles, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    (tmp_path / "f").chmod(0o644)
    (tmp_path / ".f.new").write_bytes(b"left behind by a crash, and longer")
    files.replace("/f", b"new")
    assert files.listdir("/") == ["f"]
    assert files.read("/f", 10) == b"new"
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("step", ["write", "fsync", "rename"])
def test_replace_that_fails_keeps_the_old_content(
    files: OsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    (tmp_path / "f").write_bytes(b"old")
    monkeypatch.setattr(os, step, mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        files.replace("/f", b"new")
    assert files.listdir("/") == ["f"]
    assert files.read("/f", 10) == b"old"


@pytest.mark.parametrize("call", ["replace", "append"])
def test_no_planted_link_is_followed(call: str, files: OsFiles, tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / (".f.new" if call == "replace" else "f")).symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="is a symbolic link; remove it") as caught:
        files.replace("/f", b"x") if call == "replace" else files.append("/f", b"x", sync=False)
    assert caught.value.errno == errno.ELOOP
    assert (tmp_path / "victim").read_bytes() == b"precious"


def test_folders_come_and_go(files: OsFiles) -> None:
    files.mkdir("/d")
    with pytest.raises(FileExistsError):
        files.mkdir("/d")
    files.append("/d/f", b"xyz", False)
    folder, file = files.stat("/d"), files.stat("/d/f")
    assert (folder.is_dir, file.is_dir, file.size) == (True, False, 3)
    assert folder.inode != file.inode
    assert folder.device == file.device
    with pytest.raises(OSError, match="not empty") as caught:
        files.rmdir("/d")
    assert caught.value.errno == errno.ENOTEMPTY
    files.unlink("/d/f")
    files.rmdir("/d")
    assert files.listdir("/") == []


def test_a_fifo_is_refused_at_once(files: OsFiles, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file")
    os.mkfifo(tmp_path / ".file.new")
    with pytest.raises(OSError, match="FIFO") as refused:
        files.read("/file", 10)
    assert refused.value.errno == errno.EINVAL
    with pytest.raises(OSError, match="is a FIFO"):
        files.append("/file", b"x", sync=True)
    with pytest.raises(OSError, match="is a FIFO"):
        files.replace("/file", b"x")
    other = [os.open(tmp_path / name, os.O_RDONLY | os.O_NONBLOCK) for name in ("file", ".file.new")]
    with pytest.raises(OSError, match="FIFO"):
        files.append("/file", b"x", sync=False)
    with pytest.raises(OSError, match="FIFO"):
        files.replace("/file", b"x")
    for fd in other:
        os.close(fd)


def test_an_endless_device_is_refused() -> None:
    with pytest.raises(OSError, match="device"):
        OsFiles().read("/dev/zero", 10)


def test_files_that_cannot_be_written_are_told_until_they_can(files: OsFiles, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    for name in ("kept", "other"):
        with pytest.raises(IsADirectoryError) if name == "kept" else nullcontext():
            files.replace(f"/{name}", b"x")
    assert files.unwritten() == ["/kept"]
    (tmp_path / "kept").rmdir()
    files.replace("/kept", b"x")
    assert files.unwritten() == []


def test_a_person_may_name_a_pipe_of_the_shells_and_no_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="is a FIFO"):
        opened(str(tmp_path / "fifo"))
    reads, writes = os.pipe()
    os.write(writes, b"x")
    os.close(writes)
    with opened(f"/dev/fd/{reads}") as file:
        assert file.read() == b"x"
    os.close(reads)
