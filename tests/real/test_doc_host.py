"""What the pages have a host do is done, where Nodeward is installed by them, with a real containerd and API server.

systemd's commands are run in a guest (`tests/vm/units_cases.py`), Helm's at an API server (`test_chart.py`).
"""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from tests.pages import FOUND, ROOT, Command, of_page, taken
from tests.patience import scaled
from tests.peers.bundle import require_bundle, require_image
from tests.peers.containerd import Containerd, running_containerd
from tests.peers.daemon import until
from tests.peers.find import require
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
    holder: int
    checkout: Path
    path: str

    def _command(self, text: str) -> tuple[list[str], dict[str, str]]:
        entered = ["nsenter", f"--mount=/proc/{self.holder}/ns/mnt", f"--wdns={self.checkout}"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NODEWARD"))}
        return [*entered, "bash", "-o", "pipefail", "-c", text], {**environment, "PATH": self.path}

    def run(self, text: str) -> tuple[int, str]:
        command, environment = self._command(text)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WITHIN_S)
        return done.returncode, done.stdout + done.stderr

    def done(self, text: str) -> str:
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


LASTING = {
    r"nodeward relay|cri-resmgr ": "relaying",
    r"nodeward webhook|cri-resmgr-webhook": "serving",
    r"nodeward node": r"component=(nri|relay-door) ready=yes",
    r"nodeward page": "http://",
}
"""Commands that go on, and what they say once they are ready."""
CHANGING = (r"cp |rm |mkdir |ctr |ssh ", r"nodeward (setup|vms volume|vms network|config check|doctor|uninstall)")
GIVEN = {
    r" \.\.\.$": " --set kube.kubeconfig=/etc/kubernetes/agent.conf --set node_name=node-1",
    r"/tmp/cri.dump": "/var/log/nodeward/cri.dump",
    r"--device /dev/sdb": "--device /etc/hostname",  # any file is an image
    r"\bPATH\b": "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/data/mount",
    r"\bSANDBOX\b": "s1",
    r"ssh -L": "ssh -G -L",
}
"""What a reader puts in the place of the page's words."""
TAKEN = tuple(taken())
HOSTED = [
    one for one in FOUND if one.text not in TAKEN and any(re.match(name, one.text) for name in (*LASTING, *CHANGING))
]
TAP = {"type": "host-tap", "tap_name": "tap0"}
DAN = {"devices": [{"name": "eth0", "device": TAP, "network_info": {"interface": {"ip_addresses": ["10.0.0.5/24"]}}}]}
LAST = ("nodeward uninstall", "rm ")
"""Begins of commands that take away what the others need, in the order in which they are run."""


@pytest.fixture(name="host", scope="module")
def _host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    require_bundle()
    require_image()
    peers = tuple(require(name) / "bin" for name in ("helm", "containerd"))
    with (
        TemporaryDirectory(prefix="ctd") as place,
        running_containerd(Path(place)) as containerd,
        a_cluster() as config,
        running_host(tmp_path_factory.mktemp("host"), containerd, peers) as host,
    ):
        host.done(f"mkdir -p /etc/kubernetes && cp {config} /etc/kubernetes/agent.conf")
        host.done(of_page("webhook.md", "deploy/webhook/make-certificate"))
        host.done(of_page("webhook.md", "for part in crt key"))
        certificates = "/etc/cri-resmgr-webhook/certs.d"
        copies = "".join(f" && cp certificate/tls.{one} {certificates}/svc.{one}" for one in ("crt", "key"))
        host.done(f"mkdir -p {certificates}{copies}")
        (host.checkout / "dan.json").write_text(json.dumps(DAN))
        yield host


def ordered() -> list[Command]:
    """Each once: what installs first, what takes away last."""
    each = {one.text: one for one in HOSTED}

    def place(one: Command) -> tuple[int, bool]:
        last = next((number for number, start in enumerate(LAST, 1) if one.text.startswith(start)), 0)
        return last, one.page != "install.md"

    return sorted(each.values(), key=place)


def test_the_page_of_the_webhook_asks_it_by_hand(host: Host) -> None:
    serves = of_page("webhook.md", "nodeward webhook --set webhook.port=0")
    with host.lasting(serves, "serving") as line:
        port = re.findall(r"[:=](\d+)\b", line)
        assert port, line
        host_name = "nodeward-webhook.nodeward-system.svc"
        said = host.done(f"port={port[-1]} host={host_name}\n{of_page('webhook.md', 'curl --cacert')}")
    assert '"allowed":false' in said


def test_the_page_of_the_agent_has_it_tell_the_relay(host: Host) -> None:
    relay = of_page("relay.md", "cri-resmgr -runtime-socket")
    agent = of_page("relay.md", "NODE_NAME=node-1 nodeward agent")
    with host.lasting(relay, "serving"), host.lasting(agent, r"configmap=\S+ accepted"):
        host.done(of_page("relay.md", "cri-resmgr-agent-probe"))


@pytest.mark.parametrize("command", ordered(), ids=str)
def test_what_a_page_has_a_host_do_is_done(command: Command, host: Host) -> None:
    """In the order of the pages; what takes Nodeward away comes last."""
    text = command.text
    for name, value in GIVEN.items():
        text = re.sub(name, value, text)
    text = text.replace("dist/nodeward-VERSION-MACHINE-HASH", str(require_bundle()))
    if text.startswith("rm -r "):  # what another page has removed already is put there first
        host.done(f"for one in {text.removeprefix('rm -r ')}; do [ -e $one ] || mkdir -p $one; done")
    says = next((word for name, word in LASTING.items() if re.match(name, command.text)), None)
    if says is not None:
        with host.lasting(text, says):
            pass
    else:
        code, said = host.run(text)
        found = text.startswith("nodeward doctor") and "Usage:" not in said  # it exits by what it finds
        assert code in ((0, 1, 2) if found else (0,)), f"{text}: {said[-3000:]}"
