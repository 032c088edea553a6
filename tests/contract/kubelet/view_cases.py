"""What kubelet's PodResources and its Pods API say of pods."""

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

from nodeward.contracts import podresources_pb2 as resources
from nodeward.contracts import podsapi_pb2 as pods
from nodeward.neighbours.formats.kube_objects import PodObject
from nodeward.neighbours.kubelet import pod_resources, pods_api
from nodeward.neighbours.kubelet.pods_api import decode_pod
from tests.contract.kubelet.sides import Cases, Node
from tests.patience import scaled
from tests.peers.daemon import until

CASES = case = Cases[Node]()
CALL_S = scaled(30.0)
FIRST_S = scaled(60.0)
Ids = dict[str, tuple[str, ...]]
ADDED, MODIFIED, DELETED, SYNCED = pods.ADDED, pods.MODIFIED, pods.DELETED, pods.INITIAL_SYNC_COMPLETE


def call(socket: Path, method: str) -> bytes:
    """The answer to a request without fields; grpc.RpcError where there is none."""
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        answer: bytes = channel.unary_unary(method)(b"", timeout=CALL_S, wait_for_ready=True)
    return answer


def listed(node: Node) -> dict[str, dict[str, Ids]]:
    """What PodResources says: pod, container, resource, its ids in order."""
    answer = call(node.side.root / pod_resources.PLACE, pod_resources.LIST)
    found: dict[str, dict[str, Ids]] = {}
    for pod in resources.ListPodResourcesResponse.FromString(answer).pod_resources:
        assert pod.namespace == "default"
        for container in pod.containers:
            ids = found.setdefault(pod.name, {}).setdefault(container.name, {})
            for one in container.devices:
                ids[one.resource_name] = tuple(sorted((*ids.get(one.resource_name, ()), *one.device_ids)))
    return found


def pod_of(node: Node, name: str) -> PodObject | None:
    every = pods.ListPodsResponse.FromString(call(node.side.root / pods_api.PLACE, pods_api.LIST)).pods
    found = {pod.metadata.name: pod for pod in (decode_pod(data) for data in every)}
    return found.get(name)


def phase_of(node: Node, name: str) -> str:
    """The pod's phase by the Pods API, empty where it is not there."""
    found = pod_of(node, name)
    return (found.status.phase or "") if found is not None else ""


class Watch:
    def __init__(self) -> None:
        self.heard: queue.Queue[tuple[int, PodObject | None]] = queue.Queue()
        self.ended = ""

    def follow(self, call: Iterator[bytes]) -> None:
        try:
            for message in call:
                event = pods.WatchPodsEvent.FromString(message)
                self.heard.put((event.type, decode_pod(event.pod) if event.pod else None))
            self.ended = "OK"
        except grpc.RpcError as error:
            self.ended = error.code().name if isinstance(error, grpc.Call) else str(error)

    def until(self, kind: int, name: str = "") -> list[tuple[int, PodObject | None]]:
        """What is heard, to the first word of this kind, on this pod."""
        words = []
        while True:
            words.append(self.heard.get(timeout=FIRST_S))
            said, pod = words[-1]
            if said == kind and (pod.metadata.name if pod is not None else "") == name:
                return words


@contextmanager
def watching(node: Node) -> Iterator[Watch]:
    watch = Watch()
    with grpc.insecure_channel(f"unix:{node.side.root / pods_api.PLACE}") as channel:
        call = channel.unary_stream(pods_api.WATCH)(b"", wait_for_ready=True)
        thread = threading.Thread(target=watch.follow, args=(call,), daemon=True)
        thread.start()
        yield watch
        call.cancel()
        thread.join(FIRST_S)


@case
def pod_resources_has_each_containers_ids(node: Node) -> None:
    with node.plugin(["a", "b", "c"]):
        node.run("keys", counts=(1, 2))
        found = listed(node)["keys"]
        assert {name: len(ids[node.resource]) for name, ids in found.items()} == {"app0": 1, "app1": 2}
        assert tuple(sorted((*found["app0"][node.resource], *found["app1"][node.resource]))) == node.held("keys")
        node.delete("keys")
        until(lambda: "keys" not in listed(node), "the pod that was deleted is not listed")


@case
def pod_resources_has_pods_without_ids_too(node: Node) -> None:
    node.run("plain", counts=(0,))
    assert listed(node)["plain"] == {"app0": {}}


@case
def pod_resources_leaves_out_init_containers(node: Node) -> None:
    with node.plugin(["a", "b"]):
        node.create("two", counts=(1,), init=(2,))
        until(lambda: listed(node).get("two", {}).get("app0", {}) != {}, "the pod is listed with its ids")
        during = listed(node)["two"]
        node.side.end_init("two")
        node.runs("two")
        assert list(during) == ["app0"]
        assert during == listed(node)["two"]


@case
def pod_resources_leaves_out_pods_that_were_refused(node: Node) -> None:
    with node.plugin(["a"]) as plugin:
        plugin.refuses_ids = "no"
        node.create("refused")
        node.fails("refused")
        assert "refused" not in listed(node)


@case
def pod_resources_has_the_ids_of_before_after_a_restart(node: Node) -> None:
    with node.plugin(["a", "b"]):
        node.run("stays")
        before = listed(node)["stays"]
        node.side.restart()
        until(lambda: "stays" in listed(node), "the pod is listed again")
        assert listed(node)["stays"] == before


@case
def pods_api_has_pods_as_they_are(node: Node) -> None:
    with node.plugin(["a", "b", "c"]) as plugin:
        node.create("well", counts=(1, 0), init=(2,))
        until(lambda: phase_of(node, "well") == "Pending", "the pod waits for its init container")
        node.side.end_init("well")
        until(lambda: phase_of(node, "well") == "Running", "the pod runs")
        found = pod_of(node, "well")
        assert found is not None
        assert (found.metadata.namespace, found.metadata.uid) == ("default", node.side.uid("well"))
        asked = {
            one.name: (one.resources.limits or {}).get(node.resource) if one.resources is not None else None
            for one in (*(found.spec.init_containers or ()), *(found.spec.containers or ()))
        }
        assert asked == {"init0": "2", "app0": "1", "app1": None}
        plugin.refuses_ids = "no"
        node.create("refused")
        until(lambda: phase_of(node, "refused") == "Failed", "the refused pod is listed")
        for pod in ("well", "refused"):
            node.delete(pod)
        until(lambda: phase_of(node, "well") == "", "the pod that was deleted is not listed")


@case
def pods_api_watch_begins_with_every_pod_and_a_mark(node: Node) -> None:
    for pod in ("first", "second"):
        node.run(pod, counts=(0,))
    with watching(node) as watch:
        first = watch.until(SYNCED)
        assert [kind for kind, _ in first] == [ADDED] * (len(first) - 1) + [SYNCED]
        names = [pod.metadata.name for _, pod in first if pod is not None]
        assert (names.count("first"), names.count("second")) == (1, 1)


@case
def pods_api_watch_tells_of_what_comes_and_goes(node: Node) -> None:
    with watching(node) as watch:
        watch.until(SYNCED)
        node.run("comes", counts=(0,))
        assert [kind for kind, _ in watch.until(ADDED, "comes")] == [ADDED]
        said, pod = watch.until(MODIFIED, "comes")[-1]
        while pod is not None and pod.status.phase != "Running":
            said, pod = watch.until(MODIFIED, "comes")[-1]
        assert said == MODIFIED
        node.delete("comes")
        watch.until(DELETED, "comes")


@case
def pods_api_watch_ends_with_kubelet_and_pods_are_there_after_it(node: Node) -> None:
    node.run("stays", counts=(0,))
    uid = node.side.uid("stays")
    with watching(node) as watch:
        watch.until(SYNCED)
        node.side.restart()
        until(lambda: watch.ended == "UNAVAILABLE", "the watch has ended")

    def there() -> bool:
        try:
            found = pod_of(node, "stays")
        except grpc.RpcError as error:
            if isinstance(error, grpc.Call) and error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                return False  # it begins
            raise
        return found is not None and found.metadata.uid == uid

    until(there, "kubelet has the pod again")
