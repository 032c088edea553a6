"""deploy/webhook/make-certificate, as a person runs it: what it writes, and what it says where it cannot."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.component.webhook.support import WITHIN_S

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "deploy" / "webhook" / "make-certificate"


def run(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The script, run in a folder."""
    bash = shutil.which("bash")
    assert bash is not None
    return subprocess.run(
        [bash, str(SCRIPT), *words],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )


def test_it_writes_a_secret_and_a_patch_that_nobody_else_may_read(tmp_path: Path) -> None:
    done = run(tmp_path, "new/certificate")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "new/certificate/secret.yaml new/certificate/trust.yaml\n"
    made = tmp_path / "new" / "certificate"
    assert sorted(one.name for one in made.iterdir()) == ["ca.crt", "secret.yaml", "trust.yaml"]
    assert stat.S_IMODE((made / "secret.yaml").stat().st_mode) == 0o600


@pytest.mark.parametrize("words", [(), ("",), ("a", "b"), ("--folder",)], ids=["none", "empty", "two", "a flag"])
def test_other_words_than_one_folder_are_told_the_usage(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run(tmp_path, *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: make-certificate FOLDER\n")
    assert "deploy/webhook/make-certificate certificate\n" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_who_asks_for_help_gets_it(tmp_path: Path, word: str) -> None:
    done = run(tmp_path, word)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: make-certificate FOLDER\n")
    assert list(tmp_path.iterdir()) == []


def test_without_openssl_it_says_so_and_how_to_mend_it(tmp_path: Path) -> None:
    done = run(tmp_path, "certificate", PATH=str(tmp_path))

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "make-certificate: openssl is not on PATH; install it, on Debian by 'apt-get install openssl', and run this "
        "again\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_where_openssl_fails_its_words_are_shown(tmp_path: Path) -> None:
    broken = tmp_path / "openssl.cnf"
    broken.write_text("[")
    done = run(tmp_path, "certificate", OPENSSL_CONF=str(broken))

    assert (done.returncode, done.stdout) == (1, "")
    first, *rest = done.stderr.splitlines()
    assert first == "make-certificate: 'openssl req' failed; nothing was written. It said:"
    assert any(str(broken) in line for line in rest), done.stderr
    assert list((tmp_path / "certificate").iterdir()) == []
