"""A node of several runtimes in the guest: containerd 1.7, later replaced by 2.4, with runc 1.5 and, as further runtime
handlers, the distribution's older runc and crun.

The daemon is not started: the cases say when, and with which flags.
"""

import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.peers.containerd import OLD, Containerd, Release, running_containerd
from tests.peers.cri import Cri
from tests.vm.chain_node import Api, Node
from tests.vm.inside import EPC, RESOURCE, SECOND_RESOURCE, Daemon

KEYS: Final = "amd.com/sev-es"
NEW_RUNC: Final = "runc"
OLD_RUNC: Final = "runc-old"
OLD_CRUN: Final = "crun-old"
_FOLDER: Final = Path("/dev/shm")
_NRI: Final = Path("/run/nri.sock")
_SETTINGS: Final = """
limits: {{resources: {{{epc}: {resource}, {keys}: {second}}}}}
kube: {{url: "{url}"}}
"""


@dataclass(slots=True)
class RuntimesNode(Node):
    handlers: Mapping[str, Path] = field(default_factory=dict)
    running: ExitStack = field(default_factory=ExitStack)

    def log(self) -> str:
        return f"{self.daemon.log()}\n{self.containerd.log()}"

    def replace(self, release: Release) -> None:
        self.pods.clear()
        self.running.close()
        self.containerd, self.cri = _containerd(self.running, self.handlers, release)


def _containerd(running: ExitStack, handlers: Mapping[str, Path], release: Release) -> tuple[Containerd, Cri]:
    folder = _FOLDER / release.peer
    folder.mkdir()
    containerd = running.enter_context(running_containerd(folder, release=release, handlers=handlers))
    _NRI.unlink(missing_ok=True)
    _NRI.symlink_to(containerd.nri_socket)
    return containerd, running.enter_context(containerd.cri())


@contextmanager
def running_node(runc: str, crun: str) -> Iterator[RuntimesNode]:
    Path("/dev/stdin").symlink_to("/proc/self/fd/0")  # crun reads it when it updates a container
    with ExitStack() as running:
        handlers = {OLD_RUNC: Path(runc), OLD_CRUN: Path(crun)}
        containerd, cri = _containerd(running, handlers, OLD)
        api = Api()
        settings = _SETTINGS.format(epc=EPC, resource=RESOURCE, keys=KEYS, second=SECOND_RESOURCE, url=api.url)
        daemon = Daemon(_NRI, settings.lstrip())
        try:
            yield RuntimesNode(containerd, cri, api, daemon, handlers=handlers, running=running)
        finally:
            daemon.end(signal.SIGKILL)
