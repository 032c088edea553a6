"""A real kubelet, joined to a real API server, for tests of device plugins: its folder, its restarts, pods with ids.

Kubelet's folder is reached through the process that holds containerd's mount namespace, so it stays reachable while
kubelet is dead. Pods name their node, so no scheduler stands between.
"""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import msgspec
from google.protobuf.unknown_fields import UnknownFieldSet

from nodeward.contracts import podresources_pb2 as resources
from nodeward.neighbours.kubelet import checkpoint_file, pod_resources
from tests.patience import scaled
from tests.peers.containerd import IMAGE, Containerd, children, running_containerd
from tests.peers.daemon import until
from tests.peers.kube import ApiServer, running_apiserver
from tests.peers.kubeclient import KubeClient
from tests.peers.kubelet import Api, Kubelet, running_kubelet
from tests.peers.nriside import Record, member, objects, text

PODS = "/api/v1/namespaces/default/pods"
NODE = "/api/v1/nodes"
ALLOCATABLE = "/v1.PodResourcesLister/GetAllocatableResources"
CALL_S = scaled(30.0)


@dataclass(slots=True)
class KeyNode:
    api: KubeClient
    kubelet: Kubelet
    containerd: Containerd
    server: ApiServer
    home: Path
    """Kubelet's folder, as it is seen from here; also while kubelet is dead."""

    @property
    def name(self) -> str:
        return self.server.node

    @property
    def root(self) -> Path:
        return self.kubelet.plan.folder / "root"

    def capacity(self, resource: str) -> tuple[int, int] | None:
        status = (self.api.find(f"{NODE}/{self.name}") or {}).get("status")
        assert isinstance(status, dict)
        there = member(status, "capacity", resource)
        return None if there is None else (int(str(there)), int(str(member(status, "allocatable", resource) or 0)))

    def says(self, resource: str, amount: str | None, by: str = "") -> None:
        """Writes the resource into the node's status, as who publishes one without a device plugin, under this name
        where one is given; None takes it out again."""
        body: Record = {"status": {"capacity": {resource: amount}}}
        path = f"{NODE}/{self.name}/status?fieldManager={by}"
        self.api.call("PATCH", path, body, "application/merge-patch+json")

    def healthy(self, resource: str) -> int:
        """How many healthy ids of the resource kubelet itself has now. Pods are admitted by this; its node's status is
        older, and may still be that of a plugin which has ended."""
        with grpc.insecure_channel(f"unix:{self.root / pod_resources.PLACE}") as channel:
            answer: bytes = channel.unary_unary(ALLOCATABLE)(b"", timeout=CALL_S, wait_for_ready=True)
        every = UnknownFieldSet(resources.ListPodResourcesRequest.FromString(answer))
        fields = [every[place] for place in range(len(every))]
        devices = [resources.ContainerDevices.FromString(field.data) for field in fields if field.field_number == 1]
        return sum(len(one.device_ids) for one in devices if one.resource_name == resource)

    def has(self, resource: str, capacity: tuple[int, int]) -> None:
        """Returns when kubelet itself has so many healthy ids, and the node's status has this."""

        def is_so() -> bool:
            return self.healthy(resource) == capacity[1] and self.capacity(resource) == capacity

        until(is_so, f"{capacity} of {resource}")

    @contextmanager
    def relisted(self, resource: str, capacity: tuple[int, int]) -> Iterator[None]:
        """For a block in which a plugin begins, or registers with a kubelet that begins: it ends when kubelet has its
        list. A list that is as long as that of an earlier plugin shows only by the checkpoint: kubelet writes it
        whenever it has taken over a list, and not when a plugin ends."""
        before = self._written()
        yield
        until(lambda: self._written() != before, f"kubelet has another list of {resource}")
        self.has(resource, capacity)

    def _written(self) -> int:
        checkpoint = self.home / checkpoint_file.PLACE
        return checkpoint.stat().st_ctime_ns if checkpoint.exists() else 0

    def create(self, pod: str, resource: str, counts: Sequence[int] = (1,), init: Sequence[int] = ()) -> None:
        def made(kind: str, number: int, count: int) -> Record:
            limits: Record = {"resources": {"limits": {resource: str(count)}}} if count else {}
            return {"name": f"{kind}{number}", "image": IMAGE, "imagePullPolicy": "Never", **limits}

        spec: Record = {
            "nodeName": self.name,
            "terminationGracePeriodSeconds": 1,
            "containers": [made("app", number, count) for number, count in enumerate(counts)],
            "initContainers": [made("init", number, count) for number, count in enumerate(init)],
        }
        self.api.call("POST", PODS, {"metadata": {"name": pod}, "spec": spec})

    def status(self, pod: str) -> Record:
        found = (self.api.find(f"{PODS}/{pod}") or {}).get("status")
        return found if isinstance(found, dict) else {}

    def phase(self, pod: str) -> str:
        return str(self.status(pod).get("phase", ""))

    def runs(self, pod: str) -> bool:
        return self.phase(pod) == "Running"

    def failed(self, pod: str) -> str:
        status = self.status(pod)
        return f"{status.get('reason')}: {status.get('message')}" if status.get("phase") == "Failed" else ""

    def waits(self, pod: str) -> str:
        return str(member(self._first(pod), "state", "waiting", "message"))

    def end_init(self, pod: str) -> None:
        """Asks the process of the pod's first init container to end, until it has heard it and ended well."""

        def ended() -> bool:
            first = self._first(pod, "initContainerStatuses")
            found = text(first, "containerID").removeprefix("containerd://")
            self.containerd.ctr("tasks", "kill", "-s", "SIGTERM", found)
            return member(first, "state", "terminated") is not None

        until(ended, f"the end of {pod}'s init container")

    def init_runs(self, pod: str) -> bool:
        return member(self._first(pod, "initContainerStatuses"), "state", "running") is not None

    def started(self, pod: str) -> str:
        return str(member(self._first(pod), "state", "running", "startedAt"))

    def _first(self, pod: str, kind: str = "containerStatuses") -> Record:
        return next(iter(objects(self.status(pod).get(kind))), {})

    def uid(self, pod: str) -> str:
        return str(member(self.api.find(f"{PODS}/{pod}") or {}, "metadata", "uid"))

    def held(self, pod: str, resource: str) -> tuple[str, ...]:
        return self.handed_out(resource).get(self.uid(pod), ())

    def handed_out(self, resource: str) -> dict[str, tuple[str, ...]]:
        found = checkpoint_file.decode((self.home / checkpoint_file.PLACE).read_bytes(), [resource])
        return {uid: held[resource] for uid, held in found.pods.items() if resource in held}

    def restart(self, *, forgets: bool = False) -> None:
        """Kills kubelet, and starts it again, without its checkpoint where it `forgets`. Returns when plugins can
        register."""
        with self.down():
            if forgets:
                (self.home / checkpoint_file.PLACE).unlink()

    def strike_out(self) -> None:
        """Kubelet, which is dead, knows no plugin any more, as after five minutes without one; no pod has an id."""
        data = checkpoint_file.Data(None, {})
        file = {"Data": data, "Checksum": checkpoint_file.checksum(data)}
        (self.home / checkpoint_file.PLACE).write_bytes(msgspec.json.encode(file))

    @contextmanager
    def down(self) -> Iterator[None]:
        """Kubelet is killed, for the block, and started again. It takes plugins' sockets away first, and may say before
        that it is well: this ends when they can register."""
        before = self._door()
        self.kubelet.kill()
        yield
        self.kubelet.start_again()
        self.kubelet.wait_healthy()
        until(lambda: self._door() not in ("", before), "kubelet takes registrations")

    def _door(self) -> str:
        """Which socket kubelet takes registrations at; empty for none."""
        try:
            found = (self.home / "device-plugins" / "kubelet.sock").stat()
        except FileNotFoundError:
            return ""
        return f"{found.st_ino} {found.st_ctime_ns}"

    def delete(self, pod: str) -> None:
        self.api.call("DELETE", f"{PODS}/{pod}")
        until(lambda: self.api.find(f"{PODS}/{pod}") is None, f"{pod} is gone from the API server")


@contextmanager
def timeline(node: KeyNode, resource: str) -> Iterator[Callable[[], list[tuple[float, tuple[int, int] | None]]]]:
    """What the node's status says, each time it says something else, with the seconds since the beginning."""
    seen: list[tuple[float, tuple[int, int] | None]] = []
    over = threading.Event()
    began = time.monotonic()

    def watch() -> None:
        while not over.wait(0.05):
            now = node.capacity(resource)
            if not seen or seen[-1][1] != now:
                seen.append((round(time.monotonic() - began, 2), now))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield lambda: list(seen)
    finally:
        over.set()
        thread.join(scaled(10))


@contextmanager
def key_node() -> Iterator[KeyNode]:
    with (
        tempfile.TemporaryDirectory(prefix="kub") as control_plane,
        tempfile.TemporaryDirectory(prefix="ctd") as folder,
        running_apiserver(Path(control_plane)) as server,
        running_containerd(Path(folder)) as containerd,
    ):
        api = KubeClient(server.base_url, server.ca_file, server.token)
        joined = Api(server.base_url, server.ca_file, server.node_token)
        with running_kubelet(containerd, containerd.folder / "kubelet", server.node, joined) as kubelet:
            until(lambda: api.node_ready(server.node), "the node is ready")
            home = Path("/proc", str(children(containerd.holder.pid)[0]), "root/var/lib/kubelet")
            yield KeyNode(api, kubelet, containerd, server, home)
