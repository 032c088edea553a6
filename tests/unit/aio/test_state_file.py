"""A write that hangs never replaces what was written after it."""

import threading
from pathlib import Path

import pytest

from nodeward.aio.hostfs import OsFiles
from nodeward.aio.state_file import StateFile


class SlowFiles(OsFiles):
    """Its first write hangs until `go`."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go = threading.Event(), threading.Event()

    def replace(self, path: str, data: bytes) -> None:
        if not self.begun.is_set():
            self.begun.set()
            assert self.go.wait(10)
        super().replace(path, data)


def test_a_write_that_comes_back_late_never_replaces_newer_content(tmp_path: Path) -> None:
    files, path = SlowFiles(), tmp_path / "state.json"
    file = StateFile(files, str(path))
    late = threading.Thread(target=file.replace, args=(b"old",), daemon=True)
    late.start()
    assert files.begun.wait(10)

    with pytest.raises(OSError, match="an earlier write hangs"):
        file.replace(b"new")
    files.go.set()
    late.join(10)
    file.replace(b"new")

    assert path.read_bytes() == b"new"
