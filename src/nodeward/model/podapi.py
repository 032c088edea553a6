"""What the Pod API answers of one pod: sections, each with its source."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from nodeward.model.podapi_pulls import PodImage, PodPullsSeen

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Section(Generic[T]):
    """One part of an answer. `why` says what it lacks; `observed_at` is in nanoseconds since 1970, 0 for not known."""

    value: T | None
    source: str
    complete: bool = True
    why: str = ""
    observed_at: int = 0


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """Which pod it is."""

    namespace: str
    name: str
    uid: str
    sandbox: str
    handler: str
    runtime_class: str


@dataclass(frozen=True, slots=True)
class PodContainer:
    """One container of the spec, also before it exists. None is not known; a limit of 0 is none."""

    name: str
    role: str
    cpu_request_m: int | None
    cpu_limit_m: int
    memory_request: int | None
    memory_limit: int
    declared: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PodOverhead:
    """What its RuntimeClass adds."""

    cpu_m: int
    memory: int


@dataclass(frozen=True, slots=True)
class PodVmSize:
    """What its VM is given; None is not known."""

    vcpus: int | None
    memory: int | None
    by: str


@dataclass(frozen=True, slots=True)
class PodVolume:
    """A volume of the spec; `kind` is the name of its source, such as secret or emptyDir."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class PodDescription:
    """Everything that is answered of one pod."""

    identity: Section[PodIdentity]
    containers: Section[tuple[PodContainer, ...]]
    overhead: Section[PodOverhead]
    cgroup: Section[str]
    size: Section[PodVmSize]
    devices: Section[tuple[str, ...]]
    volumes: Section[tuple[PodVolume, ...]]
    images: Section[tuple[PodImage, ...]]
    gate: Section[str]
    spec: Section[object]
    pulls: Section[PodPullsSeen]
