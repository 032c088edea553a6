"""The control plane's other programs beside a real kube-apiserver: chosen controllers, and the scheduler.

They are what makes a Deployment's pod: the API server alone stores the Deployment and does nothing more.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.peers.find import require
from tests.peers.kube import ApiServer, program
from tests.peers.kubelet import Api, kubeconfig
from tests.peers.ports import free_port


def _command(server: ApiServer, folder: Path, name: str, *more: str) -> list[str]:
    file = folder / f"{name}.kubeconfig"
    file.write_text(kubeconfig(Api(server.base_url, server.ca_file, server.token)))
    return [
        str(require("kubernetes") / "bin" / name),
        f"--kubeconfig={file}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={free_port()}",
        f"--cert-dir={folder / name}",
        *more,
    ]


@contextmanager
def running_controllers(server: ApiServer, folder: Path, controllers: Sequence[str]) -> Iterator[Path]:
    """kube-controller-manager with these controllers alone, for as long as the block; where its log is."""
    more = f"--controllers={','.join(controllers)}", f"--root-ca-file={server.ca_file}"
    line = _command(server, folder, "kube-controller-manager", *more)
    log = folder / "controllers.log"
    with program(line, log):
        yield log


@contextmanager
def running_scheduler(server: ApiServer, folder: Path) -> Iterator[Path]:
    log = folder / "scheduler.log"
    with program(_command(server, folder, "kube-scheduler"), log):
        yield log
