"""What the runtime double's CRI says of its sandboxes and containers: names taken, statuses, filtered lists, events.

Exists so that the calls (`cri_runtime`) only call. Promises: a state is what the runtime double has at that moment; a
name is held from before its sandbox or container is made until it is removed, or could not be made; listeners that do
not read lose the oldest events, as containerd's do, and nobody waits for them. Must not know gRPC.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from nodeward.contracts import cri_pb2 as cri
from nodeward.contracts import nri_pb2
from nodeward_sim.doubles.runtime import SimRuntime
from nodeward_sim.doubles.runtime_plugins import RuntimeRefusalError

MAX_EVENTS = 1000
"""Events that wait for one listener."""
_STATES = {nri_pb2.CONTAINER_CREATED: cri.CONTAINER_CREATED, nri_pb2.CONTAINER_RUNNING: cri.CONTAINER_RUNNING}
_MADE, _BEGUN, _ENDED, _GONE = (
    cri.CONTAINER_CREATED_EVENT,
    cri.CONTAINER_STARTED_EVENT,
    cri.CONTAINER_STOPPED_EVENT,
    cri.CONTAINER_DELETED_EVENT,
)
Events = asyncio.Queue[cri.ContainerEventResponse]


class NameTakenError(RuntimeRefusalError):
    """Another sandbox or container holds the name."""


@dataclass(slots=True)
class Pod:
    """A sandbox that was not removed."""

    status: cri.PodSandboxStatus
    containers: dict[str, cri.ContainerStatus] = field(default_factory=dict)
    """By id."""


class Shelf:
    """The sandboxes, containers and images of one runtime. Belongs to the loop's thread."""

    def __init__(self, runtime: SimRuntime, tells_each: bool) -> None:
        """`tells_each`: events go to each listener; else to one of them, in turn."""
        self._runtime, self._tells_each = runtime, tells_each
        self._pods: dict[str, Pod] = {}
        self._names: dict[str, None] = {}
        self._listeners: list[Events] = []

    @contextmanager
    def reserved(self, name: str) -> Iterator[None]:
        """The name is taken from before something of that name is made; it stays so unless that fails."""
        if name in self._names:
            raise NameTakenError(f'failed to reserve name "{name}": it is reserved')
        self._names[name] = None
        try:
            yield
        except BaseException:
            del self._names[name]
            raise

    def put_pod(self, pod_id: str, config: cri.PodSandboxConfig) -> None:
        """A sandbox was made, and runs."""
        status = cri.PodSandboxStatus(
            id=pod_id, metadata=config.metadata, created_at=time.time_ns(), labels=config.labels
        )
        status.annotations.update(config.annotations)
        pod = self._pods[pod_id] = Pod(status)
        self._say(pod_id, _MADE, pod)
        self._say(pod_id, _BEGUN, pod)

    def stopped(self, pod: Pod) -> None:
        """Its sandbox was stopped."""
        if pod.status.state == cri.SANDBOX_READY:
            pod.status.state = cri.SANDBOX_NOTREADY
            self._say(pod.status.id, _ENDED, pod)

    def put_container(self, container_id: str, pod: Pod, config: cri.ContainerConfig) -> None:
        """A container was made."""
        status = cri.ContainerStatus(
            id=container_id,
            metadata=config.metadata,
            created_at=time.time_ns(),
            image=config.image,
            labels=config.labels,
            annotations=config.annotations,
            log_path=config.log_path,
        )
        status.resources.linux.CopyFrom(config.linux.resources)
        pod.containers[container_id] = status
        self._say(container_id, _MADE, pod)

    def find_pod(self, pod_id: str) -> Pod | None:
        """None where it is not there, or no longer."""
        self.look()
        return self._pods.get(pod_id)

    def find_container(self, container_id: str) -> cri.ContainerStatus | None:
        """Its status; None where it is not there, or no longer."""
        self.look()
        return next(
            (pod.containers[container_id] for pod in self._pods.values() if container_id in pod.containers), None
        )

    def pods(self, wanted: cri.PodSandboxFilter) -> list[cri.PodSandbox]:
        """All that the filter takes."""
        self.look()
        found = []
        for pod in self._pods.values():
            said = pod.status
            state = not wanted.HasField("state") or wanted.state.state == said.state
            if wanted.id in ("", said.id) and state and _has(said.labels, wanted.label_selector):
                one = cri.PodSandbox(id=said.id, metadata=said.metadata, state=said.state, created_at=said.created_at)
                one.labels.update(said.labels)
                one.annotations.update(said.annotations)
                found.append(one)
        return found

    def containers(self, wanted: cri.ContainerFilter) -> list[cri.Container]:
        """All that the filter takes."""
        self.look()
        found = []
        for pod_id, pod in self._pods.items():
            for said in pod.containers.values() if wanted.pod_sandbox_id in ("", pod_id) else ():
                state = not wanted.HasField("state") or wanted.state.state == said.state
                if wanted.id in ("", said.id) and state and _has(said.labels, wanted.label_selector):
                    one = cri.Container(id=said.id, pod_sandbox_id=pod_id, metadata=said.metadata, image=said.image)
                    one.state, one.created_at = said.state, said.created_at
                    one.labels.update(said.labels)
                    one.annotations.update(said.annotations)
                    found.append(one)
        return found

    @contextmanager
    def listening(self) -> Iterator[Events]:
        """What happens from now on."""
        events = Events(MAX_EVENTS)
        self._listeners.append(events)
        try:
            yield events
        finally:
            self._listeners.remove(events)

    def look(self) -> None:
        """Takes over what has become of all of them."""
        states = {one.id: _STATES.get(one.state, cri.CONTAINER_EXITED) for one in self._runtime.containers()}
        there = {pod.id for pod in self._runtime.pods()}
        for pod_id, pod in list(self._pods.items()):
            for container_id, status in list(pod.containers.items()):
                self._follow(pod, status, states.get(container_id))
            if pod_id not in there:
                self.stopped(pod)
                del self._pods[pod_id]
                del self._names[pod_name(pod.status.metadata)]
                self._say(pod_id, _GONE, pod)

    def _follow(self, pod: Pod, status: cri.ContainerStatus, state: cri.ContainerState | None) -> None:
        now = cri.CONTAINER_EXITED if state is None else state
        if now == cri.CONTAINER_RUNNING and status.state == cri.CONTAINER_CREATED:
            status.state, status.started_at = now, time.time_ns()
            self._say(status.id, _BEGUN, pod)
        if now == cri.CONTAINER_EXITED and status.state != now:
            status.state, status.finished_at = now, time.time_ns()
            self._say(status.id, _ENDED, pod)
        if state is None:
            del pod.containers[status.id]
            del self._names[container_name(status.metadata, pod.status.metadata)]
            self._say(status.id, _GONE, pod)

    def _say(self, about: str, what: cri.ContainerEventType, pod: Pod) -> None:
        event = cri.ContainerEventResponse(
            container_id=about, container_event_type=what, created_at=time.time_ns(), pod_sandbox_status=pod.status
        )
        event.containers_statuses.extend(pod.containers.values())
        heard = self._listeners if self._tells_each else self._listeners[:1]
        for listener in heard:
            if listener.full():
                listener.get_nowait()
            listener.put_nowait(event)
        if heard and not self._tells_each:
            self._listeners.append(self._listeners.pop(0))


def pod_name(named: cri.PodSandboxMetadata) -> str:
    """The name that a sandbox holds."""
    return f"{named.name}_{named.namespace}_{named.uid}_{named.attempt}"


def container_name(named: cri.ContainerMetadata, home: cri.PodSandboxMetadata) -> str:
    """The name that a container of this pod holds."""
    return f"{named.name}_{home.name}_{home.namespace}_{home.uid}_{named.attempt}"


def _has(labels: Mapping[str, str], selected: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selected.items())
