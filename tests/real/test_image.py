"""The image of deploy/Containerfile, built by podman over the bundle and a base that has glibc and nothing else.

There is no registry here, so the base is not the one that the file names. No container is run of it: its programs are
called in its mounted tree, with its own PATH and as the user of the shipped manifests.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from nodeward import __version__
from tests.patience import scaled
from tests.real.test_bundle import Bare, bare, bundle
from tests.vm.podman import require_podman

__all__ = ["bare", "bundle"]
DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
WITHIN_S = scaled(240)
TAG = f"nodeward:{__version__}"
USER = 65532
ENTER = f'tree=$1; shift; mount -t proc proc "$tree/proc" && exec chroot --userspec={USER}:{USER} "$tree" "$@"'


@dataclass(frozen=True, slots=True)
class Image:
    """What podman says of the image, and its tree."""

    tree: Path
    config: dict[str, object]

    def run(self, *words: str) -> str:
        """What these words print on both streams, as a runtime starts them without any of its own."""
        variables = self.config["Env"]
        assert isinstance(variables, list)
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "enter", str(self.tree), *words]
        environment = dict(str(one).split("=", 1) for one in variables)
        assert list(environment) == ["PATH"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WITHIN_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def image(bare: Bare, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """The image, in a store of its own."""
    unpacked, home = require_podman(), tmp_path_factory.mktemp("i")
    (home / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    itself = [str(unpacked / "usr/bin/podman"), "--root", f"{home}/root", "--runroot", f"{home}/run", "--tmpdir"]
    itself += [f"{home}/t", "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "none"]
    itself += ["--conmon", str(unpacked / "usr/bin/conmon")]
    policy = ["--signature-policy", f"{home}/policy.json"]
    libraries = {**os.environ, "LD_LIBRARY_PATH": str(unpacked / "usr/lib/x86_64-linux-gnu")}

    def podman(*words: str) -> str:
        done = subprocess.run(
            [*itself, *words], env=libraries, capture_output=True, text=True, timeout=WITHIN_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    subprocess.run(
        ["tar", "-C", bare.root, "-cf", home / "base.tar", "lib", "lib64", "proc", "tmp"],
        check=True,
        timeout=scaled(60),
    )
    podman("import", *policy, f"{home}/base.tar", "glibc:1")
    build = ("build", "-t", TAG, "-f", str(DEPLOY / "Containerfile"), str(bare.bundle))
    podman(*build, *policy, "--isolation", "chroot", "--layers=false", "--build-arg", "BASE=localhost/glibc:1")
    (about,) = json.loads(podman("image", "inspect", TAG))
    tree = Path(podman("image", "mount", TAG))
    yield Image(tree, about["Config"])
    podman("image", "umount", TAG)


def containers() -> list[dict[str, object]]:
    """Those of the shipped workloads."""
    files = [DEPLOY / name for name in ("webhook/deployment.yaml", "node/daemonset.yaml", "exporter/daemonset.yaml")]
    whole = [one for path in files for one in yaml.safe_load_all(path.read_text()) if "template" in one.get("spec", {})]
    return [one for found in whole for one in found["spec"]["template"]["spec"]["containers"]]


def test_what_the_manifests_start_is_in_it_under_the_name_that_they_use(image: Image) -> None:
    assert [one["image"] for one in containers()] == [TAG] * 3
    assert {str(one["command"]) for one in containers()} == {"['nodeward']"} == {str(image.config["Entrypoint"])}
    assert image.run("nodeward", "--version") == f"nodeward, version {__version__}\n"
    for one in containers():
        words = one["args"]
        assert isinstance(words, list)
        assert f"Usage: nodeward {words[0]} " in image.run("nodeward", words[0], "--help")
    assert "--on-error" in image.run("nodeward-oci-hook", "--help")


def test_it_has_no_more_than_base_and_bundle(image: Image) -> None:
    assert sorted(path.name for path in image.tree.iterdir() if any(path.iterdir())) == ["lib", "lib64", "opt"]
    assert (image.tree / "opt/nodeward/LICENSES").is_dir()
