"""The OCI hook as a whole process, against an interpreter that does nothing: by the daemon's answer, and without one.

The installed script, and the bundle's program where `make bundle` has made one. The daemon is a socket that answers at
once. The hook looks for the host's files at their own places, so a process in a mount namespace of its own measures:
there ordinary files in a folder lie over /sys/fs/cgroup and over that process' cgroup file in /proc.
"""

import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench import plugins
from bench.measure import median
from nodeward.core.workload import ContainerSpec, PodSpec, PodUid
from nodeward.features.limits import hook_file
from nodeward.features.limits.settings import LimitsSettings
from nodeward.neighbours.hook import line

ROOT = Path(__file__).resolve().parents[1]
RUNS = 15
WITHIN_S = 300
UID = "0f2a4c6e-1111-2222-3333-444455556666"
PATH = f"/kubepods/pod{UID}/{'c' * 64}"


PROGRAM = "nodeward-oci-hook"
ENTER = (
    'mount --bind "$1/host/sys/fs/cgroup" /sys/fs/cgroup && mount --bind "$1/host/cgroup" "/proc/$$/cgroup" '
    '&& exec "$2" -m bench.hook "$1"'
)


def run() -> None:
    """Medians of interleaved runs, in milliseconds of wall time and of processor time."""
    plugins.installed(PROGRAM)
    if os.geteuid() != 0:
        raise plugins.MissingError("a mount namespace of one's own needs root: run it as root")
    with tempfile.TemporaryDirectory() as made:
        unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "enter", made, sys.executable]
        _write_node(Path(made))
        sys.stdout.flush()
        subprocess.run(unshare, cwd=ROOT, check=True, timeout=WITHIN_S)


def measure(made: Path) -> None:
    """All figures, inside the mount namespace."""
    left = made / "run"
    state = json.dumps({"id": "c" * 64, "pid": os.getpid(), "bundle": str(made / "host/bundle")}).encode()
    limit = made / f"host/sys/fs/cgroup{PATH}/misc.max"
    programs = {"the installed script": plugins.installed(PROGRAM)}
    bundle = newest_bundle()
    if bundle is not None:
        programs[f"the bundle's program ({bundle.name})"] = str(bundle / "bin" / PROGRAM)
    floor: list[tuple[float, float]] = []
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(RUNS):
        floor.append(_took(b"", sys.executable, "-c", "pass"))
        for name, program in programs.items():
            command = (program, "--on-error", "refuse", "--folder", str(left))
            with _Daemon(left / "hook.sock"):
                found.setdefault(f"{name}, by the daemon's answer", []).append(_limited(limit, state, command))
            found.setdefault(f"{name}, by the pod's file", []).append(_limited(limit, state, command))
    print(f"{PROGRAM}, whole process, milliseconds: wall, processor")
    _row("an empty interpreter", floor, "")
    for name, took in found.items():
        _row(name, took, "   goal 80, 60")
    if bundle is None:
        print("  the bundle's program: no bundle is built (make bundle)")


def newest_bundle() -> Path | None:
    """The folder that `make bundle` made last; its name says of what, and it may be older than the sources."""
    made = [path for path in (ROOT / "dist").glob("nodeward-*") if (path / "bin" / PROGRAM).is_file()]
    return max(made, key=lambda path: path.stat().st_mtime, default=None)


def _row(name: str, took: list[tuple[float, float]], goal: str) -> None:
    print(f"  {name}: {median([one[0] for one in took]):.0f}, {median([one[1] for one in took]):.0f}{goal}")


def _limited(limit: Path, state: bytes, command: tuple[str, ...]) -> tuple[float, float]:
    """What a run took; UnfairError where it set no limit."""
    limit.write_bytes(b"sgx_epc max\n")
    took = _took(state, *command)
    if limit.read_bytes() != b"sgx_epc 4096\n":
        raise plugins.UnfairError(f"{command[0]} left {limit.read_bytes()!r} in misc.max")
    return took


def _write_node(made: Path) -> None:
    """What a hook reads: the host's files in `host`, the daemon's in `run`."""
    host, left = made / "host", made / "run"
    annotations = {
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.sandbox-id": "5" * 64,
        "io.kubernetes.cri.sandbox-uid": UID,
        "io.kubernetes.cri.container-name": "app",
    }
    filler = [{"names": [f"call{number}"], "action": "SCMP_ACT_ALLOW"} for number in range(400)]
    linux = {"cgroupsPath": PATH, "seccomp": {"syscalls": filler}}
    spec = PodSpec(PodUid(UID), "default", "web", (ContainerSpec("app", declared={"sgx_epc": 4096}),))
    for place, content in {
        host / "cgroup": f"0::{PATH}\n".encode(),
        host / "bundle/config.json": json.dumps(
            {"ociVersion": "1.0.2", "annotations": annotations, "linux": linux}
        ).encode(),
        host / "sys/fs/cgroup/misc.capacity": b"sgx_epc 1048576\n",
        host / f"sys/fs/cgroup{PATH}/misc.max": b"sgx_epc max\n",
        left / hook_file.name_of(UID): hook_file.encode_pod(spec),
        left / hook_file.RULE: hook_file.encode_rule(LimitsSettings()),
    }.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


class _Daemon:
    """Answers one hook, at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join(10)
        self._socket.close()
        self._path.unlink()

    def _serve(self) -> None:
        peer, _ = self._socket.accept()
        with peer, peer.makefile("rb") as lines:
            lines.readline()
            peer.sendall(line.encode_answer(line.HookAnswer({"sgx_epc": 4096}, "", "pass", "declared")))


def _took(stdin: bytes, *command: str) -> tuple[float, float]:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, input=stdin, check=True, stdout=subprocess.DEVNULL)
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (ended - began) * 1000, cpu_s * 1000


if __name__ == "__main__":
    measure(Path(sys.argv[1]))
