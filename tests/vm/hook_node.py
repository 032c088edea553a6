"""A node without NRI and without containerd in the guest: runc, our hook in each bundle, the daemon, the API double.

Each container is a bundle that `runc run` starts, with the annotations that containerd writes. Its program prints what
it sees as its own limit before it does anything else.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nodeward.features.limits import hook_file
from nodeward.features.limits.settings import LimitsSettings
from tests.patience import scaled
from tests.peers.find import require
from tests.vm.chain_node import Api
from tests.vm.inside import CGROUPS, EPC, RESOURCE, SECOND_RESOURCE, Daemon, until
from tests.vm.podman import Podman, Ran, installed_podman, notes_of
from tests.vm.systemd import place_bundle

FOLDER: Final = Path("/dev/shm/hook")
LEFT: Final = Path("/dev/shm/left")
"""The settings' hook.folder. Not below /run, of which the containerd of the tests has one of its own."""
HOOK: Final = ("-c", "from nodeward.programs.hook.run import main; main()")
"""The console script may not be installed where the tests run."""
KEYS: Final = "amd.com/sev-es"
_SETTINGS: Final = """
limits: {{resources: {{{epc}: {resource}, {keys}: {second}}}}}
kube: {{url: "{url}"}}
hook: {{enabled: true, folder: {left}}}
"""


@contextmanager
def rule_of(limits: LimitsSettings, folder: Path = LEFT) -> Iterator[None]:
    """While the block runs, the rule that the daemon has left says this."""
    rule = folder / hook_file.RULE
    before = rule.read_bytes()
    rule.write_bytes(hook_file.encode_rule(limits))
    try:
        yield
    finally:
        rule.write_bytes(before)


class HookDaemon(Daemon):
    """The daemon, ready when it has the pods and the hook's socket is there."""

    def _connected(self, api: str) -> bool:
        view = self.view()
        return view is not None and view.api == api and (LEFT / "hook.sock").exists()


@dataclass(slots=True)
class HookNode:
    runc: Path
    podman: Podman
    api: Api
    daemon: Daemon
    cgroups: Path = CGROUPS
    containers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def log(self) -> str:
        return self.daemon.log()

    def knows(self, pod: str, containers: Mapping[str, Mapping[str, str]]) -> None:
        self.api.add(pod, containers)
        until((LEFT / f"pods/uid-{pod}.json").exists, "the daemon has left the pod's file")

    def cgroup(self, pod: str, container_id: str) -> Path:
        """Where the container's cgroup is, in the tree that has the misc controller."""
        return self.cgroups / "kubepods" / f"poduid-{pod}" / container_id

    def bundle(
        self,
        pod: str,
        container: str,
        program: str,
        annotations: Mapping[str, str],
        options: Sequence[str] = ("--on-error", "refuse"),
    ) -> tuple[Path, str]:
        """A bundle, and the id of the container. Its hook is an interpreter with the sources."""
        number = len(list(FOLDER.iterdir()))
        container_id = f"{number:064x}"
        home = FOLDER / container_id
        (home / "rootfs/bin").mkdir(parents=True)
        shutil.copy2(shutil.which("busybox") or "/bin/busybox", home / "rootfs/bin/busybox")
        for name in ("proc", "sys", "dev"):
            (home / "rootfs" / name).mkdir()
        options = ("--folder", str(LEFT), *options)
        hook: dict[str, object] = {"path": sys.executable, "args": [sys.executable, *HOOK, *options]}
        config = {
            "ociVersion": "1.0.2",
            "process": {
                "terminal": False,
                "user": {"uid": 0, "gid": 0},
                "args": ["/bin/busybox", "sh", "-c", f"busybox cat /sys/fs/cgroup/misc.max; {program}"],
                "env": ["PATH=/bin"],
                "cwd": "/",
            },
            "root": {"path": "rootfs"},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": ["ro"]},
            ],
            "hooks": {"createRuntime": [hook]},
            "annotations": {**notes_of(pod, container), **annotations},
            "linux": {
                "cgroupsPath": f"/kubepods/poduid-{pod}/{container_id}",
                "namespaces": [{"type": kind} for kind in ("mount", "pid", "ipc", "uts", "cgroup")],
                "resources": {"devices": [{"allow": True, "access": "rwm"}]},
            },
        }
        (home / "config.json").write_text(json.dumps(config))
        return home, container_id

    def run(self, bundle: Path, container_id: str, runc: Path | None = None) -> Ran:
        command = [str(runc or self.runc), "--root", "/run/runc", "run", "--bundle", str(bundle), container_id]
        done = subprocess.run(command, capture_output=True, text=True, timeout=scaled(120), check=False)
        return Ran(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def running(self, bundle: Path, container_id: str, runc: Path | None = None) -> Iterator[str]:
        itself = [str(runc or self.runc), "--root", "/run/runc"]
        command = [*itself, "run", "--bundle", str(bundle), container_id]
        with (bundle / "out").open("wb") as out, (bundle / "err").open("wb") as err:
            process = subprocess.Popen(command, stdout=out, stderr=err)
        try:
            until(lambda: "started" in (bundle / "out").read_text() or process.poll() is not None, "it runs", 60)
            assert process.poll() is None, (bundle / "err").read_text()
            yield (bundle / "out").read_text()
        finally:
            subprocess.run([*itself, "kill", container_id, "KILL"], check=False)
            process.wait(scaled(60))


@contextmanager
def running_node(bundle: str, *of_podman: str) -> Iterator[HookNode]:
    podman = installed_podman(*of_podman)
    FOLDER.mkdir()
    place_bundle(Path(bundle))
    os.environ["NODEWARD_NRI__ENABLED"] = "false"
    api = Api()
    settings = _SETTINGS.format(
        epc=EPC, resource=RESOURCE, keys=KEYS, second=SECOND_RESOURCE, url=api.url, left=LEFT
    ).lstrip()
    daemon = HookDaemon(Path("/run/no-nri"), settings)
    daemon.start()
    try:
        yield HookNode(require("containerd") / "bin/runc", podman, api, daemon)
    finally:
        with suppress(ProcessLookupError):
            daemon.end(signal.SIGKILL)
