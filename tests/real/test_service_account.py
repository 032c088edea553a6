"""The daemon logged in as a pod is: by the token, the CA and the variables that kubelet gives every pod.

The API server gives the tokens itself (TokenRequest), bound to an object each, so that deleting the object ends the
token long before its time. Kubelet's way of changing files is played: a new folder, and one link that is turned round.
The folder is laid over its fixed place in a mount namespace of the daemon's own, so this needs root.
"""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from nodeward.neighbours.kubernetes.auth import SERVICE_ACCOUNT_DIR
from tests.peers.daemon import NODEWARD, Daemon, until
from tests.peers.find import absent
from tests.peers.kubeclient import KubeClient
from tests.peers.nriside import Record
from tests.rigs.cluster import PODS, make, manifests, refusal, running_cluster, token_of, way_to

SECRETS = "/api/v1/namespaces/nodeward/secrets"
INSIDE = (
    f'mount -t tmpfs run /run && mkdir -p {SERVICE_ACCOUNT_DIR} && mount --bind "$0" {SERVICE_ACCOUNT_DIR} && exec "$@"'
)
"""What a pod's file tree is like at that place. /var/run is /run."""


def token(client: KubeClient, bound: str) -> str:
    return token_of(client, "nodeward/nodeward-node", client.call("POST", SECRETS, {"metadata": {"name": bound}}))


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
    client.call("POST", PODS, {"metadata": {"name": name}, "spec": spec})


def test_a_daemon_in_a_pod_logs_in_by_its_account_and_by_the_tokens_that_follow() -> None:
    if os.geteuid() != 0:
        absent("a pod's files at their fixed place need root for a mount namespace: run the tests as root")
    with contextlib.ExitStack() as stack:
        account, own = (Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nws"))) for _ in range(2))
        cluster = stack.enter_context(running_cluster())
        server, client = cluster.server, cluster.client
        way = stack.enter_context(way_to(server))
        make(client, *manifests("node/namespace.yaml"), *manifests("node/rbac.yaml"))
        first = token(client, "first")
        give(account, server.ca_file, first)
        pod(client, server.node, "before")

        node = Daemon(own, own / "none.sock")
        node.configure(f"node_name: {server.node}", kube="{enabled: true}")
        known = own / "state" / "pods.json"
        variables = f"KUBERNETES_SERVICE_HOST=127.0.0.1 KUBERNETES_SERVICE_PORT={way.port}".split()
        inside = ("env", *variables, "unshare", "--mount", "sh", "-ec", INSIDE, str(account), NODEWARD)
        process = node.start(inside)
        stack.callback(process.wait, 30)
        stack.callback(process.kill)
        until(lambda: known.exists() and "before" in known.read_text(), "the pod is known by the first token")
        print("in-cluster:", [line for line in node.log().splitlines() if "kube api=" in line][-1])

        client.call("DELETE", f"{SECRETS}/first")
        until(
            lambda: refusal(cluster.user(first), "GET", "/api/v1/pods?limit=1").startswith("401 "),
            "the API server has forgotten that it knew the first token",
        )
        way.cut()
        until(lambda: "401 Unauthorized" in node.log(), "the first token has ended, and the daemon says so")
        print("ended:", next(line for line in node.log().splitlines() if "401" in line))

        pod(client, server.node, "meanwhile")
        give(account, server.ca_file, token(client, "second"))
        until(lambda: "meanwhile" in known.read_text(), "the pod is known by the second token")
        print("second:", [line for line in node.log().splitlines() if "kube api=" in line][-1])
        assert process.poll() is None
