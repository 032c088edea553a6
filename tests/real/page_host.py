"""A host and a cluster for the commands of the docs' pages.

The host has this machine's folders, and a mount namespace keeps what is changed in them. Nodeward is installed there as
docs/install.md says, and containerd is where pages look for it. Cgroups and network are the machine's. The cluster is a
real API server with one node and the kinds that the pages speak of.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.pages import ROOT, of_page
from tests.patience import scaled
from tests.peers.containerd import Containerd
from tests.peers.daemon import until
from tests.peers.kubeclient import MERGE
from tests.peers.kubelet import Api, kubeconfig
from tests.peers.nriside import Record
from tests.rigs.cluster import NODES, define, make, running_cluster

WITHIN_S: Final = scaled(120.0)
HOLD: Final = r"""
mount -t tmpfs tmpfs "$1"
for folder in /etc /opt /var /usr/share; do
    mkdir -p "$1$folder/up" "$1$folder/work"
    mount -t overlay overlay -o "lowerdir=$folder,upperdir=$1$folder/up,workdir=$1$folder/work" "$folder"
done
mount -t tmpfs tmpfs /run
echo up
exec cat
"""


@dataclass(frozen=True, slots=True)
class Host:
    """The namespace, and the folder in which commands are typed."""

    holder: int
    checkout: Path
    path: str

    def _command(self, text: str) -> tuple[list[str], dict[str, str]]:
        entered = ["nsenter", f"--mount=/proc/{self.holder}/ns/mnt", f"--wdns={self.checkout}"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NODEWARD"))}
        return [*entered, "bash", "-o", "pipefail", "-c", text], {**environment, "PATH": self.path}

    def run(self, text: str) -> tuple[int, str]:
        """As a person types it: how it ends, and what it says."""
        command, environment = self._command(text)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WITHIN_S)
        return done.returncode, done.stdout + done.stderr

    def done(self, text: str) -> str:
        """What a command says that has to end well."""
        code, said = self.run(text)
        assert code == 0, f"{text}: {said[-3000:]}"
        return said

    @contextmanager
    def lasting(self, text: str, says: str) -> Iterator[str]:
        """A command that goes on: the line by which it says that it is ready. At SIGTERM it ends well."""
        log = self.checkout / f"{text.split()[0]}.log"
        command, environment = self._command(f"exec env {text}")
        with log.open("w") as output:
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)

        def ready() -> bool:
            return re.search(says, log.read_text()) is not None or process.poll() is not None

        try:
            until(ready, f"{text} is ready")
            found = next((line for line in log.read_text().splitlines() if re.search(says, line)), None)
            assert found is not None, f"{text}: {log.read_text()[-3000:]}"
            yield found
            process.send_signal(signal.SIGTERM)
            assert process.wait(WITHIN_S) == 0, f"{text}: {log.read_text()[-3000:]}"
        finally:
            process.kill()
            process.wait(WITHIN_S)


@contextmanager
def running_host(folder: Path, containerd: Containerd, programs: tuple[Path, ...]) -> Iterator[Host]:
    """The host, with Nodeward in /opt/nodeward."""
    (folder / "kept").mkdir()
    checkout = folder / "checkout"
    checkout.mkdir()
    for name in ("src", "deploy", "scripts"):  # pip writes beside what it installs
        shutil.copytree(ROOT / name, checkout / name, symlinks=True)
    for name in ("pyproject.toml", "README.md", "LICENSE", "dist"):
        (checkout / name).symlink_to(ROOT / name)
    unshare = ["unshare", "-m", "--propagation", "private", "sh", "-ec", HOLD, "hold", str(folder / "kept")]
    holder = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *unshare], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "up\n"
        path = ":".join(("/opt/nodeward/bin", *map(str, programs), os.environ["PATH"]))
        host = Host(holder.pid, checkout, path)
        for place, there in (
            ("containerd/containerd.sock", containerd.cri_socket),
            ("nri/nri.sock", containerd.nri_socket),
        ):
            host.done(f"mkdir -p /run/{place.partition('/')[0]} /etc/containerd && ln -s {there} /run/{place}")
        host.done(of_page("install.md", "python3 -m venv"))
        host.done(f"/opt/nodeward/bin/{of_page('install.md', 'pip install')}")
        yield host
    finally:
        holder.communicate(timeout=WITHIN_S)


@contextmanager
def a_cluster() -> Iterator[Path]:
    """A kubeconfig of a real API server with one node and the kinds that the manifests speak of."""
    with running_cluster("node-1") as cluster:
        server, client = cluster.server, cluster.client
        define(client, *sorted(path.name for path in Path(__file__).parent.glob("*_crd*.yaml")))
        for namespace in ("nodeward", "nodeward-system"):
            client.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        zones: Record = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology"}
        one: Record = {"name": "n", "type": "Node"}
        make(client, zones | {"metadata": {"name": server.node}, "topologyPolicies": ["none"], "zones": [one]})
        status: Record = {"status": {"capacity": {"devices.kubevirt.io/tdx": "4"}}}
        client.call("PATCH", f"{NODES}/{server.node}/status", status, MERGE)
        file = server.folder / "kubeconfig"
        file.write_text(kubeconfig(Api(server.base_url, server.ca_file, server.token)))
        yield file
