"""What kubelet asks of its runtime while a node runs, as messages of their real sizes: 100 calls for each second.

Its event generator lists pods and containers once a second, here a node with 500 containers; it looks at single ones,
probes run commands, and a few pods come and go.
"""

from collections.abc import Iterator

from nodeward.contracts import cri_pb2 as cri

CONTAINERS = 500
CALLS = 100
ID = "0123456789abcdef" * 4
_SECOND = (
    ("ListContainers", 1),
    ("ListPodSandbox", 1),
    ("Status", 1),
    ("ImageFsInfo", 1),
    ("PodSandboxStatus", 24),
    ("ContainerStatus", 48),
    ("ExecSync", 20),
    ("CreateContainer", 2),
    ("StartContainer", 2),
)
_LABELS = {
    "io.kubernetes.container.name": "main",
    "io.kubernetes.pod.name": "web-5f6d7c8b9d-x2x7z",
    "io.kubernetes.pod.namespace": "default",
    "io.kubernetes.pod.uid": "6f9c1a52-7f0c-4d0e-9d0e-0d7c1b1f2a33",
}


def second() -> Iterator[str]:
    names = [name for name, often in _SECOND for _ in range(often)]
    assert len(names) == CALLS
    return (names[number * 37 % CALLS] for number in range(CALLS))


def changed_list(nth: int) -> bytes:
    """An answer to ListContainers that has no row of an answer of another number."""
    answer = cri.ListContainersResponse()
    for number in range(CONTAINERS):
        one = answer.containers.add(id=ID, pod_sandbox_id=ID, image_ref=ID, state=cri.CONTAINER_RUNNING)
        one.metadata.name, one.created_at = f"main-{number}", created_ns(nth)
        one.labels.update(_LABELS)
        one.annotations.update({"io.kubernetes.container.hash": "5c1a52", "io.kubernetes.container.restartCount": "0"})
    return answer.SerializeToString()


def created_ns(number: int) -> int:
    return 1_763_762_571_123_456_789 + number


def _create() -> bytes:
    asked = cri.CreateContainerRequest(pod_sandbox_id=ID)
    asked.config.metadata.name = "main"
    asked.config.labels.update(_LABELS)
    for number in range(20):
        asked.config.envs.add(key=f"KEY_{number}", value=b"value")
        asked.config.mounts.add(container_path=f"/mnt/{number}", host_path=f"/var/lib/kubelet/{number}")
    return asked.SerializeToString()


def _status() -> bytes:
    answer = cri.ContainerStatusResponse()
    answer.status.id, answer.status.state = ID, cri.CONTAINER_RUNNING
    answer.status.labels.update(_LABELS)
    answer.info["info"] = "{" + "x" * 4000 + "}"
    return answer.SerializeToString()


def _sandbox() -> bytes:
    answer = cri.PodSandboxStatusResponse()
    answer.status.id = ID
    answer.status.labels.update(_LABELS)
    return answer.SerializeToString()


REQUESTS = {
    "PodSandboxStatus": cri.PodSandboxStatusRequest(pod_sandbox_id=ID).SerializeToString(),
    "ContainerStatus": cri.ContainerStatusRequest(container_id=ID).SerializeToString(),
    "ExecSync": cri.ExecSyncRequest(container_id=ID, cmd=["/bin/probe", "--ready"], timeout=1).SerializeToString(),
    "CreateContainer": _create(),
    "StartContainer": cri.StartContainerRequest(container_id=ID).SerializeToString(),
}
"""Others are empty."""
REPLIES = {
    "ListContainers": changed_list(0),
    "PodSandboxStatus": _sandbox(),
    "ContainerStatus": _status(),
    "ExecSync": cri.ExecSyncResponse(stdout=b"ok\n").SerializeToString(),
    "CreateContainer": cri.CreateContainerResponse(container_id=ID).SerializeToString(),
}
