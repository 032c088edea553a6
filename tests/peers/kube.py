"""A real kube-apiserver with etcd behind it, on free ports of the loopback, with three tokens and client certificates.

It has no kubelet and no controllers: a test makes nodes and pods as plain objects. Admission is the API server's own
except for what would wait for a controller (a node's not-ready taint, the default service account's secret).
"""

import http.client
import os
import ssl
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.patience import scaled, until
from tests.peers.find import require
from tests.peers.pki import Certificate, authority, openssl
from tests.peers.ports import free_port

START_TIMEOUT_S = scaled(60.0)
ADMIN_TOKEN, NODE_TOKEN, PLAIN_TOKEN = "token-of-admin", "token-of-node", "token-of-somebody"


@dataclass(frozen=True, slots=True)
class ApiServer:
    base_url: str
    ca_file: Path
    token: str
    """A member of system:masters."""
    node_token: str
    """The kubelet's credential of the node below."""
    plain_token: str
    """Somebody with a name and without rights."""
    clients: Certificate
    """Who it has a certificate by is the user that the certificate says."""
    node: str
    folder: Path
    etcd_url: str
    process: subprocess.Popen[bytes]


@contextmanager
def program(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process for as long as the block, and no longer than ours.

    It is killed: an API server without etcd does not end on SIGTERM.
    """
    line = ["setpriv", "--pdeathsig", "KILL", *command]
    with log.open("ab") as out:
        process = subprocess.Popen(line, stdout=out, stderr=out, env={**os.environ, "PATH": "/usr/bin:/bin"})
    try:
        yield process
    finally:
        process.kill()
        process.wait(START_TIMEOUT_S)


def _etcd(home: Path, folder: Path, client: int, between: int) -> list[str]:
    return [
        str(home / "bin" / "etcd"),
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls=http://127.0.0.1:{client}",
        f"--advertise-client-urls=http://127.0.0.1:{client}",
        f"--listen-peer-urls=http://127.0.0.1:{between}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _apiserver(home: Path, folder: Path, etcd: int, port: int, advertised: str, accounts: bool) -> list[str]:
    return [
        str(home / "bin" / "kube-apiserver"),
        f"--etcd-servers=http://127.0.0.1:{etcd}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--advertise-address={advertised}",
        "--endpoint-reconciler-type=none",
        f"--cert-dir={folder / 'certs'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        f"--client-ca-file={folder / 'clients.crt'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--disable-admission-plugins=TaintNodesByCondition{'' if accounts else ',ServiceAccount'}",
        "--allow-privileged=true",
        "--service-account-issuer=https://nodeward.invalid",
        f"--service-account-key-file={folder / 'sa.key'}",
        f"--service-account-signing-key-file={folder / 'sa.key'}",
        "--service-cluster-ip-range=10.0.0.0/24",
        # A fifth of its start: nobody here asks for these.
        "--enable-priority-and-fairness=false",
        "--runtime-config=autoscaling/v1=false,autoscaling/v2=false,batch/v1=false,flowcontrol.apiserver.k8s.io/v1=false",
    ]


def _ready(port: int, ca_file: Path) -> bool:
    if not ca_file.exists():
        return False
    try:
        trust = ssl.create_default_context(cafile=str(ca_file))
        link = http.client.HTTPSConnection("127.0.0.1", port, timeout=2, context=trust)
        try:
            link.request("GET", "/readyz", headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
            return link.getresponse().status == 200
        finally:
            link.close()
    except (OSError, http.client.HTTPException):
        return False


@contextmanager
def running_apiserver(
    folder: Path, node: str = "node-1", advertised: str = "192.0.2.1", accounts: bool = False
) -> Iterator[ApiServer]:
    """An API server that answers, for as long as the block; the test skips where the peer is not built.

    With `accounts` it gives each pod its service account's token, and refuses one whose account is not there.

    The certificate names the advertised address, which must not be a loopback: a guest calls our loopback so. Nobody
    else goes there without an endpoint reconciler.
    """
    home = require("kubernetes")
    (folder / "certs").mkdir()
    key = folder / "sa.key"
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(key))
    clients = authority(folder)
    (folder / "tokens.csv").write_text(
        f'{ADMIN_TOKEN},admin,1,"system:masters"\n'
        f'{NODE_TOKEN},system:node:{node},2,"system:nodes"\n'
        f"{PLAIN_TOKEN},somebody,3\n"
    )
    etcd, between, port = free_port(), free_port(), free_port()
    ca_file, log = folder / "certs" / "apiserver.crt", folder / "apiserver.log"
    with ExitStack() as running:
        running.enter_context(program(_etcd(home, folder, etcd, between), folder / "etcd.log"))
        server = running.enter_context(program(_apiserver(home, folder, etcd, port, advertised, accounts), log))
        until(
            lambda: server.poll() is not None or _ready(port, ca_file),
            "kube-apiserver is ready",
            told=lambda: log.read_text(errors="replace")[-4000:],
        )
        assert server.poll() is None, log.read_text(errors="replace")[-4000:]
        url, behind = f"https://127.0.0.1:{port}", f"http://127.0.0.1:{etcd}"
        yield ApiServer(url, ca_file, ADMIN_TOKEN, NODE_TOKEN, PLAIN_TOKEN, clients, node, folder, behind, server)
