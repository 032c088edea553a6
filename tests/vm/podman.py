"""Debian's podman in the guest: unpacked on the host by scripts/vm-prepare and installed nowhere, linked into the
guest's own file tree. It runs containers as a node's pods have them, and what puts our hook there is `hooks.d` alone.

A container's files are a plain folder (`--rootfs`), so that neither an image nor a network is needed. Its program
prints what it sees as its own limit before it does anything else.
"""

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.patience import scaled
from tests.peers.bundle import require_bundle
from tests.peers.distribution import require_packaged
from tests.peers.find import absent
from tests.vm.guest import PREPARE, cache
from tests.vm.inside import CGROUPS, until

HOME: Final = Path("/dev/shm/podman")
HOOKS: Final = HOME / "hooks.d"
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def require_podman() -> Path:
    unpacked = cache() / "podman"
    if not (unpacked / "complete").exists():
        absent(f"no podman in {unpacked}: run {PREPARE}")
    return unpacked


def required() -> list[str]:
    """What a chain is given: the bundle, the unpacked podman, the distribution's crun and runc."""
    return list(map(str, (require_bundle(), require_podman(), require_packaged("crun"), require_packaged("runc"))))


@dataclass(frozen=True, slots=True)
class Ran:
    """A container whose program ended, or never began."""

    status: int
    printed: str
    error: str


@dataclass(frozen=True, slots=True)
class Podman:
    """podman as root, with the cgroupfs driver and without a network."""

    crun: Path
    runc: Path

    def run(
        self,
        runtime: Path,
        pod: str,
        program: str = "true",
        annotations: Mapping[str, str] = _NOTHING,
        hooks: Path | None = HOOKS,
    ) -> Ran:
        """Runs container `app` of this pod to its end. Without `hooks` podman looks where it looks by itself."""
        command = self._command(runtime, pod, program, {**notes_of(pod), **annotations}, hooks)
        done = subprocess.run(command, capture_output=True, text=True, timeout=scaled(120), check=False)
        return Ran(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def running(self, runtime: Path, pod: str) -> Iterator[tuple[str, Path]]:
        """Container `app` of this pod while the block runs: what its program began with, and its cgroup."""
        command = self._command(runtime, pod, "echo started; busybox sleep 1000", notes_of(pod), HOOKS)
        said = HOME / pod
        with said.with_suffix(".out").open("wb") as out, said.with_suffix(".err").open("wb") as err:
            process = subprocess.Popen(command, stdout=out, stderr=err)
        try:
            printed = said.with_suffix(".out").read_text
            until(lambda: "started" in printed() or process.poll() is not None, "podman's container runs", 60)
            assert process.poll() is None, said.with_suffix(".err").read_text()
            (cgroup,) = (CGROUPS / _parent(pod).lstrip("/")).glob("libpod-*")
            yield printed(), cgroup
            (cgroup / "cgroup.kill").write_text("1")
        finally:
            process.wait(scaled(60))

    def _command(
        self, runtime: Path, pod: str, program: str, annotations: Mapping[str, str], hooks: Path | None
    ) -> Sequence[str]:
        itself = ["podman", "--root", f"{HOME}/root", "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"]
        itself += ["--runtime", str(runtime), *(["--hooks-dir", str(hooks)] if hooks else [])]
        told = [word for name, value in annotations.items() for word in ("--annotation", f"{name}={value}")]
        run = ["run", "--rm", "--network", "none", "--cgroup-parent", _parent(pod), *told, "--rootfs", f"{HOME}/rootfs"]
        return [*itself, *run, "/bin/busybox", "sh", "-c", f"busybox cat /sys/fs/cgroup/misc.max; {program}"]


def installed_podman(packages: str, crun: str, runc: str) -> Podman:
    """Links the packages' files to where the packages have them, and makes the folder of the containers' files."""
    unpacked = Path(packages)
    for folder in ("usr/bin", "usr/lib", "lib"):
        for path in (unpacked / folder).rglob("*"):
            place = Path("/") / path.relative_to(unpacked)
            if path.is_dir():
                place.mkdir(exist_ok=True)
            elif not place.exists():
                place.symlink_to(path)
    (HOME / "rootfs/bin").mkdir(parents=True)
    HOOKS.mkdir()
    shutil.copy2(shutil.which("busybox") or "/bin/busybox", HOME / "rootfs/bin/busybox")
    return Podman(Path(crun), Path(runc))


def _parent(pod: str) -> str:
    return f"/kubepods/poduid-{pod}" if pod else "/alone"


def notes_of(pod: str, container: str = "app") -> dict[str, str]:
    """What a Kubernetes runtime notes of a pod's container, and no two pods have the same sandbox; nothing without a
    pod."""
    if not pod:
        return {}
    return {
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.sandbox-id": sha256(pod.encode()).hexdigest(),
        "io.kubernetes.cri.sandbox-uid": f"uid-{pod}",
        "io.kubernetes.cri.sandbox-namespace": "default",
        "io.kubernetes.cri.sandbox-name": pod,
        "io.kubernetes.cri.container-name": container,
    }
