"""What `make release` makes, used as a receiver does: checked by sha256sum and minisign, installed by pip; and its
chart compared with what `helm package` makes."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeward import __version__
from nodeward.cli.commit import commit, short
from tests.pages import of_page
from tests.patience import scaled
from tests.peers.bundle import require_bundle
from tests.peers.find import absent, require

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = scaled(240.0)
WHEEL = f"nodeward-{__version__}-py3-none-any.whl"
OUTSIDE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@dataclass(frozen=True, slots=True)
class Release:
    folder: Path
    public_key: Path


def said(*words: str | Path, cwd: Path, code: int = 0, environment: Mapping[str, str] = OUTSIDE) -> str:
    """What a program prints on both streams; it has to end with `code`."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == code, f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(name="release", scope="module")
def _release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    if shutil.which("minisign") is None:
        absent("no minisign here to sign with: run scripts/install-tools")
    require_bundle()
    keys = tmp_path_factory.mktemp("keys")
    said("minisign", "-G", "-W", "-p", "public", "-s", "secret", cwd=keys)
    told = said(
        sys.executable, ROOT / "scripts/build-release", "--key", keys / "secret", cwd=ROOT, environment=os.environ
    )
    assert f"of commit {short(commit()) or 'unknown'}\nsigned\n" in told
    return Release(ROOT / "dist" / "release", keys / "public")


def test_checksums_and_signature_hold_for_all_files_and_for_no_other(release: Release, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(release.folder, tmp_path / "r"))
    (copy.parent / "nodeward.pub").write_bytes(release.public_key.read_bytes())
    checked = said(*shlex.split(of_page("install.md", "sha256sum")), cwd=copy)
    others = {path.name for path in copy.iterdir()} - {"SHA256SUMS", "SHA256SUMS.minisig"}
    assert set(re.findall(r"^(\S+): OK$", checked, re.MULTILINE)) == others
    verify = shlex.split(of_page("install.md", "minisign").replace("nodeward.pub", "../nodeward.pub"))
    assert f"Trusted comment: nodeward-{__version__}, " in said(*verify, cwd=copy)
    with (copy / "SHA256SUMS").open("a") as sums:
        sums.write(f"{'0' * 64}  other\n")
    said(*verify, cwd=copy, code=1)


def test_the_chart_is_what_helm_package_makes(release: Release, tmp_path: Path) -> None:
    said(require("helm") / "bin/helm", "package", ROOT / "deploy/chart/nodeward", cwd=tmp_path)
    name = f"nodeward-{__version__}.tgz"
    theirs, ours = _files(tmp_path / name), _files(release.folder / name)
    chart = "nodeward/Chart.yaml"  # helm writes it anew
    assert sorted(ours) == sorted(theirs)
    assert {one for one in ours if ours[one] != theirs[one]} <= {chart}
    shown = [
        said(require("helm") / "bin/helm", "show", "chart", folder / name, cwd=tmp_path)
        for folder in (tmp_path, release.folder)
    ]
    assert shown[0] == shown[1]


def test_pip_installs_the_wheel_which_runs_and_says_its_commit(release: Release, tmp_path: Path) -> None:
    bin_ = tmp_path / "venv" / "bin"
    said(sys.executable, "-m", "venv", "venv", cwd=tmp_path)
    pip = (bin_ / "pip", "install", "--quiet", "--disable-pip-version-check")
    said(*pip, "--require-hashes", "-r", ROOT / "constraints/run.txt", cwd=tmp_path)
    said(*pip, "--no-deps", release.folder / WHEEL, cwd=tmp_path)
    mark = f" (commit {short(commit())})" if commit() else ""
    assert said(bin_ / "nodeward", "--version", cwd=tmp_path) == f"nodeward, version {__version__}{mark}\n"
    told = said(bin_ / "nodeward", "sim", "--for", "3s", cwd=tmp_path)
    assert re.search(r"^invariants: [1-9]\d* checks, 0 violations$", told, re.MULTILINE), told


def test_the_wheel_is_the_same_once_more_and_the_checkout_stays_as_it_is(release: Release, tmp_path: Path) -> None:
    before = commit()
    when = {"SOURCE_DATE_EPOCH": said("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()}
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path)
    said(*build, cwd=ROOT, environment={**OUTSIDE, **when})
    assert (tmp_path / WHEEL).read_bytes() == (release.folder / WHEEL).read_bytes()
    assert commit() == before
    told = json.loads((release.folder / f"nodeward-{__version__}.provenance.json").read_text())
    (source,) = [one for one in told["predicate"]["buildDefinition"]["resolvedDependencies"] if one["uri"] == "git"]
    assert source["digest"]["gitCommit"] == before.removesuffix("-dirty")


def _files(archive: Path) -> Mapping[str, bytes]:
    with tarfile.open(archive) as files:
        return {one.name: found.read() for one in files if (found := files.extractfile(one)) is not None}
