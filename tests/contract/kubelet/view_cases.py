"""What kubelet's PodResources and its Pods API say of pods. Each case has a resource of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

from nodeward.edges.kubelet import pod_resources, pods_api
from nodeward.proto import podresources_pb2 as resources
from nodeward.proto import podsapi_pb2 as pods
from nodeward.wire.kube_objects import PodObject
from nodeward.wire.kube_protobuf import decode_pod
from tests.contract.kubelet.device_cases import Case, fails, has, runs, sockets
from tests.contract.kubelet.sides import Side
from tests.patience import scaled
from tests.peers.daemon import until
from tests.peers.deviceplugin import running_plugin

CASES: dict[str, Case] = {}
CALL_S = scaled(30.0)
FIRST_S = scaled(60.0)
Ids = dict[str, tuple[str, ...]]
ADDED, MODIFIED, DELETED, SYNCED = pods.ADDED, pods.MODIFIED, pods.DELETED, pods.INITIAL_SYNC_COMPLETE


def case(played: Case) -> Case:
    """Adds it, under its name with dashes."""
    CASES[played.__name__.replace("_", "-")] = played
    return played


def call(socket: Path, method: str) -> bytes:
    """The answer to a request without fields; grpc.RpcError where there is none."""
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        answer: bytes = channel.unary_unary(method)(b"", timeout=CALL_S, wait_for_ready=True)
    return answer


def listed(side: Side) -> dict[str, dict[str, Ids]]:
    """What PodResources says: pod, container, resource, its ids in order."""
    answer = call(side.root / pod_resources.PLACE, pod_resources.LIST)
    found: dict[str, dict[str, Ids]] = {}
    for pod in resources.ListPodResourcesResponse.FromString(answer).pod_resources:
        assert pod.namespace == "default"
        for container in pod.containers:
            ids = found.setdefault(pod.name, {}).setdefault(container.name, {})
            for one in container.devices:
                ids[one.resource_name] = tuple(sorted((*ids.get(one.resource_name, ()), *one.device_ids)))
    return found


def pod_of(side: Side, name: str) -> PodObject | None:
    """The pod by the Pods API's list; None where it is not there."""
    every = pods.ListPodsResponse.FromString(call(side.root / pods_api.PLACE, pods_api.LIST)).pods
    found = {pod.metadata.name: pod for pod in (decode_pod(data) for data in every)}
    return found.get(name)


def phase_of(side: Side, name: str) -> str:
    """The pod's phase by the Pods API, empty where it is not there."""
    found = pod_of(side, name)
    return (found.status.phase or "") if found is not None else ""


class Watch:
    """A watch of the Pods API, from its first word on."""

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
def watching(side: Side) -> Iterator[Watch]:
    """A watch, for as long as the block."""
    watch = Watch()
    with grpc.insecure_channel(f"unix:{side.root / pods_api.PLACE}") as channel:
        call = channel.unary_stream(pods_api.WATCH)(b"", wait_for_ready=True)
        thread = threading.Thread(target=watch.follow, args=(call,), daemon=True)
        thread.start()
        yield watch
        call.cancel()
        thread.join(FIRST_S)


@case
def pod_resources_has_each_containers_ids(side: Side, resource: str) -> None:
    with running_plugin(sockets(side), resource, ["a", "b", "c"]):
        has(side, resource, 3, 3)
        side.create("keys", resource, counts=(1, 2))
        runs(side, "keys")
        found = listed(side)["keys"]
        assert {name: len(ids[resource]) for name, ids in found.items()} == {"app0": 1, "app1": 2}
        assert tuple(sorted((*found["app0"][resource], *found["app1"][resource]))) == side.held("keys", resource)
        side.delete("keys")
        until(lambda: "keys" not in listed(side), "the pod that was deleted is not listed")


@case
def pod_resources_has_pods_without_ids_too(side: Side, resource: str) -> None:
    side.create("plain", resource, counts=(0,))
    runs(side, "plain")
    assert listed(side)["plain"] == {"app0": {}}
    side.delete("plain")


@case
def pod_resources_leaves_out_init_containers(side: Side, resource: str) -> None:
    with running_plugin(sockets(side), resource, ["a", "b"]):
        has(side, resource, 2, 2)
        side.create("two", resource, counts=(1,), init=(2,))
        until(lambda: listed(side).get("two", {}).get("app0", {}) != {}, "the pod is listed with its ids")
        during = listed(side)["two"]
        side.end_init("two")
        runs(side, "two")
        assert list(during) == ["app0"]
        assert during == listed(side)["two"]
        side.delete("two")


@case
def pod_resources_leaves_out_pods_that_were_refused(side: Side, resource: str) -> None:
    with running_plugin(sockets(side), resource, ["a"]) as plugin:
        has(side, resource, 1, 1)
        plugin.refuses_ids = "no"
        side.create("refused", resource)
        fails(side, "refused")
        assert "refused" not in listed(side)
        side.delete("refused")


@case
def pod_resources_has_the_ids_of_before_after_a_restart(side: Side, resource: str) -> None:
    with running_plugin(sockets(side), resource, ["a", "b"]):
        has(side, resource, 2, 2)
        side.create("stays", resource)
        runs(side, "stays")
        before = listed(side)["stays"]
        side.restart()
        until(lambda: "stays" in listed(side), "the pod is listed again")
        assert listed(side)["stays"] == before
        side.delete("stays")


@case
def pods_api_has_pods_as_they_are(side: Side, resource: str) -> None:
    with running_plugin(sockets(side), resource, ["a", "b", "c"]) as plugin:
        has(side, resource, 3, 3)
        side.create("well", resource, counts=(1, 0), init=(2,))
        until(lambda: phase_of(side, "well") == "Pending", "the pod waits for its init container")
        side.end_init("well")
        until(lambda: phase_of(side, "well") == "Running", "the pod runs")
        found = pod_of(side, "well")
        assert found is not None
        assert (found.metadata.namespace, found.metadata.uid) == ("default", side.uid("well"))
        asked = {
            one.name: (one.resources.limits or {}).get(resource) if one.resources is not None else None
            for one in (*(found.spec.init_containers or ()), *(found.spec.containers or ()))
        }
        assert asked == {"init0": "2", "app0": "1", "app1": None}
        plugin.refuses_ids = "no"
        side.create("refused", resource)
        until(lambda: phase_of(side, "refused") == "Failed", "the refused pod is listed")
        for pod in ("well", "refused"):
            side.delete(pod)
        until(lambda: phase_of(side, "well") == "", "the pod that was deleted is not listed")


@case
def pods_api_watch_begins_with_every_pod_and_a_mark(side: Side, resource: str) -> None:
    for pod in ("first", "second"):
        side.create(pod, resource, counts=(0,))
        runs(side, pod)
    with watching(side) as watch:
        first = watch.until(SYNCED)
        assert [kind for kind, _ in first] == [ADDED] * (len(first) - 1) + [SYNCED]
        names = [pod.metadata.name for _, pod in first if pod is not None]
        assert (names.count("first"), names.count("second")) == (1, 1)
    for pod in ("first", "second"):
        side.delete(pod)


@case
def pods_api_watch_tells_of_what_comes_and_goes(side: Side, resource: str) -> None:
    with watching(side) as watch:
        watch.until(SYNCED)
        side.create("comes", resource, counts=(0,))
        runs(side, "comes")
        assert [kind for kind, _ in watch.until(ADDED, "comes")] == [ADDED]
        said, pod = watch.until(MODIFIED, "comes")[-1]
        while pod is not None and pod.status.phase != "Running":
            said, pod = watch.until(MODIFIED, "comes")[-1]
        assert said == MODIFIED
        side.delete("comes")
        watch.until(DELETED, "comes")


@case
def pods_api_watch_ends_with_kubelet_and_pods_are_there_after_it(side: Side, resource: str) -> None:
    side.create("stays", resource, counts=(0,))
    runs(side, "stays")
    uid = side.uid("stays")
    with watching(side) as watch:
        watch.until(SYNCED)
        side.restart()
        until(lambda: watch.ended == "UNAVAILABLE", "the watch has ended")

    def there() -> bool:
        try:
            found = pod_of(side, "stays")
        except grpc.RpcError as error:
            if isinstance(error, grpc.Call) and error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                return False  # it begins
            raise
        return found is not None and found.metadata.uid == uid

    until(there, "kubelet has the pod again")
    side.delete("stays")
