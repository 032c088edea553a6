"""Runs inside the guest of `make demo-vm`: containerd with runc, the API server double, the real daemon, and a shell.

The part of a kubelet is played by `pod`, a command of the shell that asks this process by a socket: it puts a pod into
the API server double, as bound to this node, and starts it by CRI. The node ends with the shell.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from tests.patience import patience
from tests.peers.cri import remove_pod
from tests.vm.chain_node import Node, Pod, running_node
from tests.vm.inside import DEVICE

HERE: Final = Path(__file__).parent
ASKED: Final = "/run/demo.sock"
PODS: Final = Path("/run/pods")
"""A folder for each pod, with links to the cgroups of its containers and, as `pod`, to its own; `NAME.config` is what
runc was given for a container."""
_REQUEST_MAX: Final = 4096
_MANIFEST_MAX: Final = 1 << 20
USAGE: Final = "usage: pod create FILE | pod delete NAME | daemon kill | daemon start"


class RefusedError(Exception):
    """What was asked for cannot be done; the text is for the person at the shell."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What of a pod's manifest is played here: name, limits of each container, annotations."""

    name: str
    containers: Mapping[str, Mapping[str, str]]
    annotations: Mapping[str, str]


def read(path: Path) -> Manifest:
    try:
        with path.open("rb") as file:
            said = yaml.safe_load(file.read(_MANIFEST_MAX))
    except OSError as error:
        there = ", ".join(sorted(one.name for one in HERE.glob("*.yaml")))
        raise RefusedError(
            f"{path}: cannot be read: {error.strerror}; name the file of a pod, such as those of {HERE}: {there}"
        ) from error
    except yaml.YAMLError as error:
        raise RefusedError(f"{path}: is no YAML: {error}") from error
    try:
        metadata, listed = said["metadata"], said["spec"]["containers"]
        containers = {str(one["name"]): _limits(one) for one in listed}
        notes = {str(key): str(value) for key, value in (metadata.get("annotations") or {}).items()}
        return Manifest(str(metadata["name"]), containers, notes)
    except (AttributeError, KeyError, TypeError) as error:
        raise RefusedError(
            f"{path}: a pod with metadata.name and spec.containers is wanted, each container with a name ({error!r})"
        ) from error


def _limits(container: Mapping[str, Mapping[str, Mapping[str, object]]]) -> Mapping[str, str]:
    said = (container.get("resources") or {}).get("limits") or {}
    return {str(resource): str(amount) for resource, amount in said.items()}


def create(node: Node, path: str) -> str:
    wanted = read(Path(path))
    if wanted.name in node.pods:
        raise RefusedError(f"pod {wanted.name} is there already; pod delete {wanted.name}")
    node.api.add(wanted.name, wanted.containers)
    pod = node.run_pod(wanted.name, list(wanted.containers), wanted.annotations)
    _link(node, pod)
    return f"pod {wanted.name} runs: {', '.join(wanted.containers)}"


def delete(node: Node, name: str) -> str:
    pod = node.pods.pop(name, None)
    if pod is None:
        raise RefusedError(f"no pod {name} was created here; there are: {', '.join(node.pods) or 'none'}")
    remove_pod(node.cri, pod.sandbox.name)
    node.api.remove(name)
    for link in (PODS / name).iterdir():
        link.unlink()
    (PODS / name).rmdir()
    return f"pod {name} is gone"


def _link(node: Node, pod: Pod) -> None:
    folder = PODS / pod.name
    folder.mkdir(parents=True)
    tasks = node.containerd.folder / "state" / "io.containerd.runtime.v2.task" / "k8s.io"
    for name, cgroup in pod.containers.items():
        (folder / name).symlink_to(cgroup)
        (folder / f"{name}.config").symlink_to(tasks / cgroup.name / "config.json")
    (folder / "pod").symlink_to(pod.cgroup)


def daemon(node: Node, verb: str) -> str:
    if verb == "kill":
        return f"nodeward node ended with status {node.daemon.end(signal.SIGKILL)}"
    if node.daemon.view() is not None:
        raise RefusedError("nodeward node runs already")
    begin = time.monotonic()
    node.daemon.start()
    return f"nodeward node runs, and was connected after {time.monotonic() - begin:.1f} s"


def answer(node: Node, request: str) -> str:
    """What `pod` or `daemon` prints: the first character is its exit status."""
    try:
        match request.split():
            case ["pod", "create", path]:
                said = create(node, path)
            case ["pod", "delete", name]:
                said = delete(node, name)
            case ["daemon", ("kill" | "start") as verb]:
                said = daemon(node, verb)
            case [_, "-h" | "--help"]:
                said = USAGE
            case _:
                return f"2{USAGE}"
    except RefusedError as refusal:
        return f"1{refusal}"
    except Exception as error:  # of the runtime, say: the person reads it, and the node goes on
        return f"1{type(error).__name__}: {error}"
    return f"0{said}"


def serve(node: Node, listener: socket.socket) -> None:
    """Answers one request after the other, for ever."""
    while True:
        link, _ = listener.accept()
        with link:
            request = link.recv(_REQUEST_MAX).decode(errors="replace").strip()
            link.sendall(answer(node, request).encode())


def shell(arguments: Sequence[str]) -> int:
    """A shell on the console that can be interrupted; its status."""
    rows, columns = arguments
    console = os.open("/dev/ttyS0", os.O_RDWR | os.O_NOCTTY)
    environ = {**os.environ, "DEMO_ROWS": rows, "DEMO_COLUMNS": columns, "TERM": "vt100"}
    line = ["setsid", "-c", "-w", "bash", "--noprofile", "--rcfile", str(HERE / "bashrc"), "-i"]
    return subprocess.call(line, stdin=console, stdout=console, stderr=console, env=environ, cwd=HERE)


def main() -> int:
    cache, *size = sys.argv[1:]
    path = f"{HERE}:{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    os.environ.update(XDG_CACHE_HOME=cache, HOME="/root", PATH=path, NODEWARD_PATIENCE=str(patience()))
    os.environ["NODEWARD_SOCKET"] = "/run/chain/run/nodeward.sock"
    if not os.path.exists(DEVICE):
        print(f"{DEVICE} is missing: this runs in the guest of make demo-vm only")
        return 2
    print("guest: starting containerd, the API server double and the daemon", flush=True)
    with running_node() as node, socket.socket(socket.AF_UNIX) as listener:
        PODS.mkdir()
        listener.bind(ASKED)
        listener.listen()
        threading.Thread(target=serve, args=(node, listener), daemon=True).start()
        status = shell(size)
    print("guest: ends", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
