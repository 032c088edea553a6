"""A node without NRI in the guest: containerd 1.7 as it comes, and `nodeward relay` before it, which decides limits.

At first no daemon of ours runs, and all that is known of a pod is what CRI's calls carry. `with_daemon` starts one.
"""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.peers.containerd import OLD, NriOptions, running_containerd
from tests.peers.cri import Cri
from tests.vm.chain_node import READS, Api, Node
from tests.vm.inside import EPC, RESOURCE, RUN_DIR, CriRelay, Daemon

_FOLDER: Final = Path("/dev/shm/relayed")
_SOCKET: Final = _FOLDER / "cri.sock"
_LIMITS: Final = f"limits: {{resources: {{{EPC}: {RESOURCE}}}}}\n"


@dataclass(slots=True)
class RelayedNode(Node):
    relay: CriRelay = field(kw_only=True)
    running: ExitStack = field(kw_only=True)

    def log(self) -> str:
        return f"{self.relay.log()}\n{self.containerd.log()}\n{self.daemon.log()}"

    def start(self, *flags: str) -> None:
        self.relay.start(*flags)
        self.speak("v1")

    def speak(self, version: str) -> None:
        """Connects to the relay; calls are of this version of CRI from now on."""
        self.cri = self.running.enter_context(Cri(_SOCKET, self.containerd.peer / "proto" / "cri.proto", version))

    def run(
        self, name: str, container: str, annotations: Mapping[str, str], behind: bytes = b""
    ) -> tuple[Path, list[str]]:
        """A container that runs: its cgroup, and what its program found as its own limit before anything else."""
        pod = self.pods.get(name) or self.run_pod(name, (), annotations)
        return self.add_container(pod, container, READS, behind), self.read(name, container)


@contextmanager
def running_node() -> Iterator[RelayedNode]:
    (_FOLDER / "containerd").mkdir(parents=True)
    os.environ["NODEWARD_NRI__ENABLED"] = "false"
    with ExitStack() as running:
        nri = NriOptions(disable=True)
        containerd = running.enter_context(running_containerd(_FOLDER / "containerd", nri, OLD))
        config, api = _FOLDER / "nodeward.yaml", Api()
        relayed = f"relay: {{limits: true, listen: {_SOCKET}, runtime: {containerd.cri_socket}}}\n"
        config.write_text(f"run_dir: {RUN_DIR}\n{_LIMITS}{relayed}")
        relay = CriRelay(config, _FOLDER / "relay.log")
        relay.start()
        daemon = Daemon(Path("/run/no-nri"), f'{_LIMITS}kube: {{url: "{api.url}"}}\n')
        with Cri(_SOCKET, containerd.peer / "proto" / "cri.proto") as cri:
            node = RelayedNode(containerd, cri, api, daemon, parent="/kubepods", relay=relay, running=running)
            try:
                yield node
            finally:
                relay.end(signal.SIGKILL)
                daemon.end(signal.SIGKILL)
