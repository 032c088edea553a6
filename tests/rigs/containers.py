"""A real containerd with pods on it as kubelet makes them, and a kubelet before it that has joined a cluster."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.peers.containerd import IMAGE, NEWEST, PLAIN, Containerd, NriOptions, Release, running_containerd
from tests.peers.cri import Cri, container_config, pod_config, start
from tests.peers.daemon import until
from tests.peers.image import write_archive
from tests.peers.kubelet import Api, Kubelet, running_kubelet
from tests.peers.nriside import Json, Record
from tests.rigs.cluster import Cluster

BOX: Final = "localhost/nodeward/box:1"
"""An image with /busybox."""
NODE: Final = "localhost"
"""The name of a node whose pods' logs and commands the API server is to reach."""


@contextmanager
def a_containerd(nri: NriOptions = PLAIN, release: Release = NEWEST) -> Iterator[Containerd]:
    """In a folder of its own, for as long as the block."""
    with tempfile.TemporaryDirectory(prefix="ctd") as folder, running_containerd(Path(folder), nri, release) as made:
        yield made


@contextmanager
def with_box(handlers: Mapping[str, Path] | None = None, stream_port: int = 0) -> Iterator[Containerd]:
    with (
        tempfile.TemporaryDirectory(prefix="ctd") as folder,
        running_containerd(Path(folder), handlers=handlers, stream_port=stream_port) as made,
    ):
        box = made.folder / "box.tar"
        write_archive(box, BOX, {"busybox": Path(shutil.which("busybox") or "busybox")})
        assert made.ctr("images", "import", "--local", str(box)).returncode == 0
        yield made


def pod_of(containerd: Containerd, name: str, **more: Json) -> Record:
    return pod_config(name, containerd.cgroup_parent, containerd.folder / "logs") | more


def run_pod(containerd: Containerd, cri: Cri, name: str) -> tuple[str, str]:
    """The ids of a new pod and its container."""
    return start(cri, pod_of(containerd, name), container_config("app", IMAGE))


@contextmanager
def joined_kubelet(cluster: Cluster, containerd: Containerd, relay: Path | None = None) -> Iterator[Kubelet]:
    """A kubelet of the cluster's node that is ready; its runtime may be behind the relay at that socket."""
    server, client = cluster.server, cluster.client
    joins = Api(server.base_url, server.ca_file, server.node_token)
    with running_kubelet(containerd, containerd.folder / "kubelet", server.node, joins, relay=relay) as kubelet:
        until(lambda: client.node_ready(server.node), "the node is ready")
        yield kubelet
