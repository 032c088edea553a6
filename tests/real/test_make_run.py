"""`make run` in a fresh copy of the checkout: what it installs, and the page at the address that it prints."""

import os
import re
import shutil
import signal
import subprocess
import urllib.request
from pathlib import Path

from tests.pages import ROOT, of_page
from tests.patience import scaled

WITHIN_S = scaled(120.0)
LEFT_OUT = (".git", ".venv", "build", "certificate", "dist", "__pycache__")
TOOLS = ("pytest", "mypy", "ruff", "pyinstaller", "playwright", "mkdocs")


def test_make_run_installs_what_runs_and_serves_the_page(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(ROOT, tmp_path / "checkout", symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT)))
    ours = ("ARGS", "MAKE", "PYTHON", "VIRTUAL")
    outside = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    command = ["timeout", "--foreground", str(WITHIN_S), "bash", "-c", of_page("README.md", "make run")]
    with subprocess.Popen(
        command, cwd=copy, env=outside, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0
    ) as process:
        try:
            assert process.stdout is not None
            said: list[str] = []
            address = None
            while address is None and (line := process.stdout.readline()):
                said.append(line)
                address = re.search(r"http://127\.0\.0\.1:\d+/", line)
            assert address is not None, "".join(said)
            with urllib.request.urlopen(address[0], timeout=WITHIN_S) as page:
                assert "<title>Nodeward" in page.read().decode()
        finally:
            os.killpg(process.pid, signal.SIGINT)
            process.communicate(timeout=WITHIN_S)
    (packages,) = (copy / ".venv/lib").glob("python3*/site-packages")
    assert [one.name for one in packages.iterdir() if one.name.lower().startswith(TOOLS)] == []
