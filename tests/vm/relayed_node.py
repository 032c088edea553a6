"""A node without NRI in the guest: containerd 1.7 as it comes, and `nodeward relay` before it, which decides limits.

At first no daemon of ours runs, and all that is known of a pod is what CRI's calls carry. `with_daemon` starts one, and
the API server double that it watches.
"""

import json
import os
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.patience import patience
from tests.peers.containerd import IMAGE, OLD, Containerd, NriOptions, running_containerd
from tests.peers.cri import Cri, container_config, pod_config
from tests.peers.nriside import Record, text
from tests.vm.chain_node import Api
from tests.vm.forked import Process, started
from tests.vm.inside import CGROUPS, EPC, RESOURCE, RUN_DIR, Daemon, until

_FOLDER: Final = Path("/dev/shm/relayed")
_PODS: Final = "/kubepods"
"""Where kubelet has its pods' cgroups, and the daemon looks for them."""
_BUSYBOX: Final[Record] = {
    "container_path": "/busybox",
    "host_path": shutil.which("busybox") or "/bin/busybox",
    "readonly": True,
}
_SETTINGS: Final = f"""
limits: {{{{resources: {{{{{EPC}: {RESOURCE}}}}}}}}}
nri: {{{{enabled: false}}}}
run_dir: {{run_dir}}
relay: {{{{limits: true, listen: {{folder}}/cri.sock, runtime: {{runtime}}}}}}
"""


@dataclass(slots=True)
class RelayedNode:
    """The runtime, the relay, and the hands of kubelet."""

    containerd: Containerd
    running: ExitStack
    relay: Process | None = None
    sandboxes: dict[str, str] = field(default_factory=dict)
    daemon: Daemon | None = None
    _cri: Cri | None = None

    @property
    def cri(self) -> Cri:
        """The client's connection to the relay."""
        assert self._cri is not None
        return self._cri

    def log(self) -> str:
        """For whoever looks for the fault."""
        logged = (_FOLDER / "relay.log").read_text(errors="replace")[-3000:]
        return f"{logged}\n{self.containerd.log()}\n{self.daemon.log() if self.daemon is not None else ''}"

    def with_daemon(self) -> tuple[Api, Daemon]:
        """Starts the node daemon beside the relay, and the API server that it watches."""
        os.environ["NODEWARD_NRI__ENABLED"] = "false"
        api = Api()
        limited = f'limits: {{resources: {{{EPC}: {RESOURCE}}}}}\nkube: {{url: "{api.url}"}}\n'
        self.daemon = Daemon(Path("/run/no-nri"), limited)
        self.daemon.start_beside_relay()
        return api, self.daemon

    def start(self, *flags: str) -> None:
        """Starts the relay, and connects to it."""
        log = _FOLDER / "relay.log"
        before = log.read_text().count("relaying listen=")
        line = ["relay", "--config", str(_FOLDER / "nodeward.yaml"), *flags]
        process = self.relay = started(line, log, os.environ)
        until(
            lambda: log.read_text().count("relaying listen=") > before or process.poll() is not None,
            "the relay listens",
            30,
        )
        assert process.poll() is None, self.log()
        self.speak("v1")

    def speak(self, version: str) -> None:
        """Connects to the relay; calls are of this version of CRI from now on."""
        proto = self.containerd.peer / "proto" / "cri.proto"
        self._cri = self.running.enter_context(Cri(_FOLDER / "cri.sock", proto, version))

    def end(self, how: signal.Signals) -> None:
        """Ends the relay."""
        if self.relay is not None:
            self.relay.send_signal(how)
            self.relay.wait(60 * patience())

    def config(self, name: str, annotations: Mapping[str, str]) -> Record:
        """The sandbox of a pod as kubelet describes it."""
        made = pod_config(f"uid-{name}", _PODS, _FOLDER / "logs")
        return made | {
            "metadata": {"name": name, "uid": f"uid-{name}", "namespace": "default"},
            "annotations": dict(annotations),
        }

    def create(self, name: str, container: str, annotations: Mapping[str, str], behind: bytes = b"") -> str:
        """The id of a container that is created, in the pod's sandbox; `behind` is what its request ends with."""
        config = self.config(name, annotations)
        if name not in self.sandboxes:
            self.sandboxes[name] = text(self.cri.call("RunPodSandbox", {"config": config}), "pod_sandbox_id")
        wanted = container_config(container, IMAGE)
        wanted |= {
            "mounts": [_BUSYBOX],
            "command": ["/busybox", "sh", "-c", "/busybox cat /sys/fs/cgroup/misc.max; echo read; exec /pause"],
            "log_path": f"{name}-{container}.log",
        }
        request: Record = {"pod_sandbox_id": self.sandboxes[name], "config": wanted, "sandbox_config": config}
        return text(self.cri.call("CreateContainer", request, behind), "container_id")

    def run(
        self, name: str, container: str, annotations: Mapping[str, str], behind: bytes = b""
    ) -> tuple[Path, list[str]]:
        """A container that runs: its cgroup, and what its program found as its own limit before anything else."""
        created = self.create(name, container, annotations, behind)
        self.cri.call("StartContainer", {"container_id": created})
        log = _FOLDER / "logs" / f"{name}-{container}.log"

        def said() -> list[str]:
            return [line.split(" ", 3)[3] for line in log.read_text().splitlines()] if log.exists() else []

        until(lambda: said()[-1:] == ["read"], f"{name}/{container} has read its limit", 30)
        cgroup = CGROUPS / _PODS.lstrip("/") / f"poduid-{name}" / created
        return cgroup, said()[:-1]

    def told(self, container: Path) -> Sequence[str]:
        """The lines of `misc.max` that runc was told."""
        bundle = self.containerd.folder / "state/io.containerd.runtime.v2.task/k8s.io" / container.name
        config: dict[str, dict[str, dict[str, dict[str, str]]]] = json.loads((bundle / "config.json").read_text())
        return config["linux"]["resources"].get("unified", {}).get("misc.max", "").splitlines()


@contextmanager
def running_node() -> Iterator[RelayedNode]:
    """The node, with a relay that listens."""
    (_FOLDER / "containerd").mkdir(parents=True)
    (_FOLDER / "logs").mkdir()
    with ExitStack() as running:
        containerd = running.enter_context(
            running_containerd(_FOLDER / "containerd", NriOptions(disable=True), release=OLD)
        )
        settings = _SETTINGS.format(folder=_FOLDER, run_dir=RUN_DIR, runtime=containerd.cri_socket).lstrip()
        (_FOLDER / "nodeward.yaml").write_text(settings)
        (_FOLDER / "relay.log").touch()
        node = RelayedNode(containerd, running)
        node.start()
        try:
            yield node
        finally:
            with suppress(ProcessLookupError):
                node.end(signal.SIGKILL)
            with suppress(ProcessLookupError):
                if node.daemon is not None:
                    node.daemon.end(signal.SIGKILL)
