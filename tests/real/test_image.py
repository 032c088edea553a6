"""The image of `make image`: started by a real containerd as the user of the shipped manifests, without a shell and
without Python, the same from the same parts, and with the list of them."""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from nodeward import __version__
from tests.patience import scaled
from tests.peers.bundle import require_bundle, require_image
from tests.peers.cgroups import controllers_as_before
from tests.peers.containerd import Containerd, running_containerd
from tests.peers.cri import Cri, container_config, pod_config, remove_pod
from tests.peers.nriside import Record, member, text
from tests.told import tell

ROOT = Path(__file__).resolve().parents[2]
IMAGE = f"docker.io/library/nodeward:{__version__}"
EXITED = "CONTAINER_EXITED"
WITHIN_S = scaled(60.0)


@pytest.fixture(name="archive", scope="module")
def _archive() -> Path:
    return require_image()


@pytest.fixture(name="blobs", scope="module")
def _blobs(archive: Path) -> Mapping[str, bytes]:
    with tarfile.open(archive) as files:
        return {one.name: found.read() for one in files if (found := files.extractfile(one)) is not None}


def manifest_of(blobs: Mapping[str, bytes]) -> tuple[str, Mapping[str, list[dict[str, str]]]]:
    (entry,) = json.loads(blobs["index.json"])["manifests"]
    return entry["digest"], json.loads(blobs[f"blobs/{entry['digest'].replace(':', '/')}"])


@pytest.fixture(name="containerd", scope="module")
def _containerd(archive: Path) -> Iterator[Containerd]:
    with (
        controllers_as_before(),
        tempfile.TemporaryDirectory(prefix="ctd") as folder,
        running_containerd(Path(folder)) as containerd,
    ):
        loaded = containerd.ctr("images", "import", "--local", str(archive))
        assert loaded.returncode == 0, loaded.stderr
        yield containerd


def ran(containerd: Containerd, cri: Cri, *arguments: str) -> tuple[int, str]:
    pod = pod_config("image", containerd.cgroup_parent, containerd.folder / "logs")
    security: Record = {"readonly_rootfs": True, "no_new_privs": True, "capabilities": {"drop_capabilities": ["ALL"]}}
    container: Record = container_config("app", IMAGE) | {"command": [], "args": list(arguments)}
    container["linux"] = {"security_context": security}
    sandbox = text(cri.call("RunPodSandbox", {"config": pod}), "pod_sandbox_id")
    made = text(
        cri.call("CreateContainer", {"pod_sandbox_id": sandbox, "config": container, "sandbox_config": pod}),
        "container_id",
    )
    cri.call("StartContainer", {"container_id": made})
    end = time.monotonic() + WITHIN_S
    while member(status := cri.call("ContainerStatus", {"container_id": made}), "status", "state") != EXITED:
        assert time.monotonic() < end, status
        time.sleep(0.05)
    log = (containerd.folder / "logs" / "app.log").read_text()
    (containerd.folder / "logs" / "app.log").unlink()
    remove_pod(cri, sandbox)
    assert str(member(status, "status", "user", "linux", "uid")) == "65532", status
    code = member(status, "status", "exit_code") or 0
    return int(str(code)), "".join(line.split(" ", 3)[3] for line in log.splitlines(keepends=True))


def test_containerd_runs_it_as_its_user(containerd: Containerd) -> None:
    with containerd.cri() as cri:
        assert ran(containerd, cri, "--version")[1].startswith(f"nodeward, version {__version__}")
        code, said = ran(containerd, cri, "status", "--socket", "/none.sock")
        assert (code, "no daemon listens at /none.sock" in said) == (1, True), said


def test_what_is_in_it(blobs: Mapping[str, bytes], archive: Path) -> None:
    _, manifest = manifest_of(blobs)
    names = set[str]()
    for layer in manifest["layers"]:
        content = blobs[f"blobs/{layer['digest'].replace(':', '/')}"]
        with tarfile.open(fileobj=io.BytesIO(content)) as files:
            for one in files:
                assert (one.uid, one.gid) == (0, 0), one.name
                names.add(one.name)
    assert {"opt/nodeward/bin/nodeward", "opt/nodeward/bin/lib/nodeward/people/page/static/page.js"} <= names
    assert {name.rpartition("/")[2] for name in names}.isdisjoint(
        ("sh", "bash", "python3", "gcc", "apt-get", "busybox")
    )
    assert not any("/tests/" in name for name in names)
    packages = {f"var/lib/dpkg/status.d/{name}" for name in ("base-files", "libc6")}
    assert {"etc/os-release", "usr/lib/os-release"} | packages <= names, "or no scanner knows whose packages they are"
    for name, content in blobs.items():
        if name.startswith("blobs/"):
            assert hashlib.sha256(content).hexdigest() == name.rpartition("/")[2]
    tell(f"image: {archive.stat().st_size / 1e6:.1f} MB")


def test_two_builds_have_one_digest_and_tell_their_parts(archive: Path, blobs: Mapping[str, bytes]) -> None:
    """Put together twice of one bundle; the deep test beside builds the bundle twice too."""
    digest, _ = manifest_of(blobs)
    stem = archive.name.removesuffix(".oci.tar")
    files = [archive, *(archive.parent / f"{stem}.{end}.json" for end in ("cdx", "provenance"))]
    before = [path.read_bytes() for path in files]
    require_image()
    assert [path.read_bytes() for path in files] == before
    sbom = json.loads((archive.parent / f"{stem}.cdx.json").read_text())
    named = {one["purl"].partition("?")[0].rpartition("@")[0] for one in sbom["components"]}
    licences = {path.name for path in (require_bundle() / "LICENSES").iterdir()}
    assert {one["name"] for one in sbom["components"]} == licences | {"base-files", "libc6"}
    assert {"pkg:pypi/aiohttp", "pkg:deb/debian/libssl3", "pkg:deb/debian/libc6", "pkg:npm/uplot"} <= named
    assert sbom["bomFormat"] == "CycloneDX"
    told = json.loads((archive.parent / f"{stem}.provenance.json").read_text())
    assert told["subject"] == [
        {"name": f"nodeward:{__version__}", "digest": {"sha256": digest.removeprefix("sha256:")}}
    ]


@pytest.mark.nightly
def test_the_bundle_is_the_same_when_built_again_elsewhere(tmp_path: Path) -> None:
    built = require_bundle()
    build = [
        "sh",
        "-c",
        'umask 027 && exec "$@"',
        "sh",
        sys.executable,
        "scripts/build-bundle",
        "--into",
        str(tmp_path),
    ]
    subprocess.run(build, cwd=ROOT, check=True, timeout=scaled(600))
    (again,) = tmp_path.glob("nodeward-*")
    assert again.name == built.name
    compared = ["diff", "--recursive", "--brief", "--no-dereference", str(built), str(again)]
    done = subprocess.run(compared, capture_output=True, timeout=WITHIN_S)
    assert (done.returncode, done.stdout) == (0, b"")
