"""The daemon logged in as a pod is: by the token, the CA and the variables that kubelet gives every pod.

The API server gives the tokens itself (TokenRequest), bound to an object each, so that deleting the object ends the
token long before its time. Kubelet's way of changing files is played: a new folder, and one link that is turned round.
The folder is laid over its fixed place in a mount namespace of the daemon's own, so this needs root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from nodeward.edges.kube.auth import SERVICE_ACCOUNT_DIR
from tests.peers.daemon import NODEWARD, WITHIN_S, Daemon, until
from tests.peers.find import absent
from tests.peers.kube import ApiServer, running_apiserver
from tests.peers.kubeclient import ApiError, KubeClient
from tests.peers.nriside import Record, member

RBAC = Path(__file__).resolve().parents[2] / "deploy" / "node" / "rbac.yaml"
NAMESPACE = "/api/v1/namespaces/nodeward"
PLACES = {
    "ServiceAccount": f"{NAMESPACE}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}
INSIDE = (
    f'mount -t tmpfs run /run && mkdir -p {SERVICE_ACCOUNT_DIR} && mount --bind "$0" {SERVICE_ACCOUNT_DIR} && exec "$@"'
)
"""What a pod's file tree is like at that place. /var/run is /run."""


class Way:
    """The way to the API server, which can be cut: whoever was connected has to come again."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._ends: list[socket.socket] = []
        self.door = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.door.getsockname()[1])

    def accept(self) -> None:
        with contextlib.suppress(OSError):  # the end of the block
            while True:
                near, _ = self.door.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._ends += (near, far)
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=_copy, args=(source, sink), daemon=True).start()

    def cut(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while block := source.recv(65536):
            sink.sendall(block)
        sink.shutdown(socket.SHUT_RDWR)


@contextmanager
def way_to(server: ApiServer) -> Iterator[Way]:
    way = Way(urlsplit(server.base_url).port or 0)
    accepting = threading.Thread(target=way.accept)
    accepting.start()
    try:
        yield way
    finally:
        way.door.shutdown(socket.SHUT_RDWR)
        way.cut()
        accepting.join(WITHIN_S)
        way.door.close()


def prepared(client: KubeClient) -> None:
    """The shipped account and its rights."""
    client.call("POST", "/api/v1/namespaces", {"metadata": {"name": "nodeward"}})
    for one in yaml.safe_load_all(RBAC.read_text()):
        client.call("POST", PLACES[one["kind"]], one)


def token(client: KubeClient, bound: str) -> str:
    """A token of the account that ends with a secret of this name, which is made."""
    secret = client.call("POST", f"{NAMESPACE}/secrets", {"metadata": {"name": bound}})
    reference: Record = {"kind": "Secret", "apiVersion": "v1", "name": bound, "uid": member(secret, "metadata", "uid")}
    asked: Record = {"spec": {"audiences": [], "expirationSeconds": 600, "boundObjectRef": reference}}
    answer = client.call("POST", f"{PLACES['ServiceAccount']}/nodeward-node/token", asked)
    return str(member(answer, "status", "token"))


def give(folder: Path, ca_file: Path, text: str) -> None:
    """The folder's files as kubelet changes them: all at once."""
    made = Path(tempfile.mkdtemp(prefix="..", dir=folder))
    (made / "token").write_text(text)
    shutil.copy(ca_file, made / "ca.crt")
    (folder / "..new").symlink_to(made.name)
    os.replace(folder / "..new", folder / "..data")
    for name in ("token", "ca.crt"):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")


def pod(client: KubeClient, node: str, name: str) -> None:
    spec: Record = {"nodeName": node, "containers": [{"name": "app", "image": "none"}]}
    client.call("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": spec})


def refused(server: ApiServer, held: str) -> bool:
    """Whether who holds this token is nobody any more."""
    try:
        KubeClient(server.base_url, server.ca_file, held).call("GET", "/api/v1/pods?limit=1")
    except ApiError as error:
        return error.status == 401
    return False


def test_a_daemon_in_a_pod_logs_in_by_its_account_and_by_the_tokens_that_follow() -> None:
    """Given a pod's files and variables, when the token ends and the way is cut, then the daemon is refused and says
    so; when another token lies there, then it knows the pods that came meanwhile."""
    if os.geteuid() != 0:
        absent("a pod's files at their fixed place need root for a mount namespace: run the tests as root")
    with contextlib.ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nws"))) for _ in range(3)]
        server = stack.enter_context(running_apiserver(folders[0]))
        way = stack.enter_context(way_to(server))
        client = KubeClient(server.base_url, server.ca_file, server.token)
        prepared(client)
        first = token(client, "first")
        give(folders[1], server.ca_file, first)
        pod(client, server.node, "before")

        node = Daemon(folders[2], folders[2] / "none.sock")
        node.configure(f"node_name: {server.node}", kube="{enabled: true}")
        known = folders[2] / "state" / "pods.json"
        variables = f"KUBERNETES_SERVICE_HOST=127.0.0.1 KUBERNETES_SERVICE_PORT={way.port}".split()
        inside = ("env", *variables, "unshare", "--mount", "sh", "-ec", INSIDE, str(folders[1]), NODEWARD)
        process = node.start(inside)
        stack.callback(process.wait, 30)
        stack.callback(process.kill)
        until(lambda: known.exists() and "before" in known.read_text(), "the pod is known by the first token")
        print("in-cluster:", [line for line in node.log().splitlines() if "kube api=" in line][-1])

        client.call("DELETE", f"{NAMESPACE}/secrets/first")
        until(lambda: refused(server, first), "the API server has forgotten that it knew the first token")
        way.cut()
        until(lambda: "401 Unauthorized" in node.log(), "the first token has ended, and the daemon says so")
        print("ended:", next(line for line in node.log().splitlines() if "401" in line))

        pod(client, server.node, "meanwhile")
        give(folders[1], server.ca_file, token(client, "second"))
        until(lambda: "meanwhile" in known.read_text(), "the pod is known by the second token")
        print("second:", [line for line in node.log().splitlines() if "kube api=" in line][-1])
        assert process.poll() is None
