"""The names of CRI: services, versions, and the methods that there are.

Exists so that whoever counts, dumps or decides calls says `CreateContainer` and not a path, for both versions of CRI by
one table. Promises: a path is looked up, never guessed; what is not in the table has no method. Must not know messages.

Sources: k8s.io/cri-api 0.37 (`runtime.v1`) and 0.25, the last one with `runtime.v1alpha2`, whose methods are a part of
these. Methods that do not exist yet pass the relay like any other; they are only without a name here.
"""

from dataclasses import dataclass
from typing import Final

VERSIONS: Final = ("v1", "v1alpha2")
STREAMING: Final = (
    "StreamPodSandboxes",
    "StreamContainers",
    "StreamContainerStats",
    "StreamPodSandboxStats",
    "StreamPodSandboxMetrics",
    "GetContainerEvents",
    "StreamImages",
)
"""Those that answer with more than one message."""
RUNTIME: Final = (
    "Version",
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "PodSandboxStatus",
    "ListPodSandbox",
    "StreamPodSandboxes",
    "CreateContainer",
    "StartContainer",
    "StopContainer",
    "RemoveContainer",
    "ListContainers",
    "StreamContainers",
    "ContainerStatus",
    "UpdateContainerResources",
    "ReopenContainerLog",
    "ExecSync",
    "Exec",
    "Attach",
    "PortForward",
    "ContainerStats",
    "ListContainerStats",
    "StreamContainerStats",
    "PodSandboxStats",
    "ListPodSandboxStats",
    "StreamPodSandboxStats",
    "UpdateRuntimeConfig",
    "Status",
    "CheckpointContainer",
    "CheckpointPod",
    "RestorePod",
    "GetContainerEvents",
    "ListMetricDescriptors",
    "ListPodSandboxMetrics",
    "StreamPodSandboxMetrics",
    "RuntimeConfig",
    "UpdatePodSandboxResources",
)
IMAGE: Final = ("ListImages", "StreamImages", "ImageStatus", "PullImage", "RemoveImage", "ImageFsInfo")
SERVICES: Final = {"RuntimeService": RUNTIME, "ImageService": IMAGE}
OTHER: Final = "other"
"""What a method that is not in the table is counted as."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method of CRI in one of its versions."""

    version: str
    service: str
    name: str

    @property
    def path(self) -> str:
        """The path in HTTP/2."""
        return f"/runtime.{self.version}.{self.service}/{self.name}"


_METHODS: Final = tuple(
    Method(version, service, name) for version in VERSIONS for service, names in SERVICES.items() for name in names
)
BY_PATH: Final = {method.path: method for method in _METHODS}
ENDLESS: Final = frozenset(path for path, method in BY_PATH.items() if method.name == "GetContainerEvents")
"""Paths of calls that go on until somebody ends them, even if nothing is ever answered. The other streams are lists."""


def paths(*names: str) -> dict[str, str]:
    """The paths of these methods of the RuntimeService in all versions, with the method of each."""
    return {f"/runtime.{version}.RuntimeService/{name}": name for version in VERSIONS for name in names}


HELD: Final = paths("CreateContainer", "UpdateContainerResources")
"""What is held for limits and CPUs."""
STARTS: Final = paths("StartContainer")
"""What is held besides where CPUs are given."""
TOLD: Final = paths(
    *("CreateContainer", "UpdateContainerResources", "StartContainer", "StopContainer", "RemoveContainer"),
    *("RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "RestorePod"),
)
"""Calls whose request and success say what the runtime has."""
