"""The OCI hook as a whole process, against an interpreter that does nothing: by the daemon's answer, and without one.

The daemon is a socket that answers at once; all files of the host, /proc among them, are ordinary ones in a folder.
"""

import json
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.measure import median
from nodeward.model.settings import LimitsSettings
from nodeward.model.workload import ContainerSpec, PodSpec, PodUid
from nodeward.wire import hook_line, pod_file

RUNS = 15
UID = "0f2a4c6e-1111-2222-3333-444455556666"
PATH = f"/kubepods/pod{UID}/{'c' * 64}"


def run() -> None:
    """Medians of interleaved runs, in milliseconds of wall time and of processor time."""
    with tempfile.TemporaryDirectory() as made:
        host, left = Path(made) / "host", Path(made) / "run"
        left.mkdir()
        state = _node(host, left)
        hook = f"from nodeward.shims.oci_hook import main; main({str(host)!r})"
        command = ("-c", hook, "--on-error", "refuse", "--folder", str(left))
        found: dict[str, list[tuple[float, float]]] = {"empty": [], "asked": [], "alone": []}
        for _ in range(RUNS):
            found["empty"].append(_took(b"", "-c", "pass"))
            with _Daemon(left / "hook.sock"):
                found["asked"].append(_took(state, *command))
            found["alone"].append(_took(state, *command))
    print("nodeward-oci-hook, whole process, milliseconds: wall, processor")
    goals = {"empty": "", "asked": "   goal 80, 60", "alone": "   goal 80, 60"}
    names = {"empty": "an empty interpreter", "asked": "by the daemon's answer", "alone": "by the pod's file"}
    for name, took in found.items():
        wall, cpu = median([one[0] for one in took]), median([one[1] for one in took])
        print(f"  {names[name]}: {wall:.0f}, {cpu:.0f}{goals[name]}")


def _node(host: Path, left: Path) -> bytes:
    """What a hook reads of the host; the state for stdin."""
    annotations = {
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.sandbox-id": "5" * 64,
        "io.kubernetes.cri.sandbox-uid": UID,
        "io.kubernetes.cri.container-name": "app",
    }
    filler = [{"names": [f"call{number}"], "action": "SCMP_ACT_ALLOW"} for number in range(400)]
    linux = {"cgroupsPath": PATH, "seccomp": {"syscalls": filler}}
    spec = PodSpec(PodUid(UID), "default", "web", (ContainerSpec("app", declared={"sgx_epc": 4096}),))
    for path, content in {
        "/proc/7/cgroup": f"0::{PATH}\n".encode(),
        "/bundle/config.json": json.dumps({"ociVersion": "1.0.2", "annotations": annotations, "linux": linux}).encode(),
        "/sys/fs/cgroup/misc.capacity": b"sgx_epc 1048576\n",
        f"/sys/fs/cgroup{PATH}/misc.max": b"sgx_epc max\n",
        f"{left}/{pod_file.name_of(UID)}": pod_file.encode_pod(spec),
        f"{left}/{pod_file.RULE}": pod_file.encode_rule(LimitsSettings()),
    }.items():
        place = Path(f"{host}{path}")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return json.dumps({"id": "c" * 64, "pid": 7, "bundle": "/bundle"}).encode()


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
            peer.sendall(hook_line.encode_answer(hook_line.HookAnswer({"sgx_epc": 4096}, "", "pass", "declared")))


def _took(stdin: bytes, *command: str) -> tuple[float, float]:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *command], input=stdin, check=True, stdout=subprocess.DEVNULL)
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (ended - began) * 1000, cpu_s * 1000
