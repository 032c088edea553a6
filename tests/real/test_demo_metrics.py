"""`make demo-metrics` as a user runs it: its address, its numbers, Ctrl-C, and that nothing is left."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.patience import scaled
from tests.peers.find import absent

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = scaled(120.0)


@contextmanager
def demo(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    if shutil.which("prometheus") is None:
        absent("prometheus is not installed: run scripts/install-tools")
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "scripts" / "demo-metrics"), "--every", "1", *words],
        env={**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(scaled(60))


def below(folder: Path) -> list[str]:
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        try:
            text = (one / "cmdline").read_bytes() + (one / "environ").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in text and int(one.name) != os.getpid():
            found.append((one / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


@pytest.fixture(name="folder")
def _folder() -> Iterator[Path]:
    """A folder whose sockets' paths the kernel takes; pytest's own is too long in a process of pytest-xdist."""
    with tempfile.TemporaryDirectory(prefix="nwm") as folder:
        yield Path(folder)


def test_the_demo_prints_numbers_of_a_real_prometheus_and_leaves_nothing_after_ctrl_c(folder: Path) -> None:
    with demo(folder) as process:
        assert process.stdout is not None
        lines: list[str] = []
        end = time.monotonic() + WITHIN_S
        for line in process.stdout:
            lines.append(line.rstrip())
            assert time.monotonic() < end, lines
            if re.match(r"  containers with a limit +[1-9]", line):
                break
        address = next(re.findall(r"http://127\.0\.0\.1:\d+", line) for line in lines if "Prometheus:" in line)[0]
        with urlopen(f"{address}/-/ready", timeout=scaled(10)) as answer:
            assert answer.status == 200
        assert len(below(folder)) >= 4  # the demo, the node, its daemon, Prometheus
        process.send_signal(signal.SIGINT)
        lines += process.stdout.read().splitlines()
        assert process.wait(scaled(60)) == 0, lines
    print("\n".join(lines))
    assert lines[-1] == "ended; nothing is left"
    assert any(re.match(r"  EPC the node has, bytes +[1-9]", line) for line in lines)
    assert below(folder) == []
    assert list(folder.iterdir()) == []


def test_a_demo_whose_node_does_not_start_says_why(tmp_path: Path) -> None:
    with demo(tmp_path, "--scenario", "no-such") as process:
        said = process.communicate(timeout=WITHIN_S)[0]
    assert process.returncode == 1
    assert "nodeward sim ended with" in said
    assert "no-such" in said
    assert list(tmp_path.iterdir()) == []
