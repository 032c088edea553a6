from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribePodRequest(_message.Message):
    __slots__ = ("selector", "fields", "wait_ms")
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    selector: Selector
    fields: _containers.RepeatedScalarFieldContainer[str]
    wait_ms: int
    def __init__(self, selector: _Optional[_Union[Selector, _Mapping[str, object]]] = ..., fields: _Optional[_Iterable[str]] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class Selector(_message.Message):
    __slots__ = ("uid", "sandbox", "namespace", "name")
    UID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    uid: str
    sandbox: str
    namespace: str
    name: str
    def __init__(self, uid: _Optional[str] = ..., sandbox: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class PodDescription(_message.Message):
    __slots__ = ("identity", "containers", "totals", "overhead", "cgroup", "size", "numa", "devices", "volumes", "network", "images", "pulls", "gate", "checkpoint", "spec")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    OVERHEAD_FIELD_NUMBER: _ClassVar[int]
    CGROUP_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    NUMA_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    VOLUMES_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    PULLS_FIELD_NUMBER: _ClassVar[int]
    GATE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    identity: IdentitySection
    containers: ContainersSection
    totals: TotalsSection
    overhead: OverheadSection
    cgroup: CgroupSection
    size: SizeSection
    numa: NumaSection
    devices: DevicesSection
    volumes: VolumesSection
    network: NetworkSection
    images: ImagesSection
    pulls: PullsSection
    gate: GateSection
    checkpoint: CheckpointSection
    spec: SpecSection
    def __init__(self, identity: _Optional[_Union[IdentitySection, _Mapping[str, object]]] = ..., containers: _Optional[_Union[ContainersSection, _Mapping[str, object]]] = ..., totals: _Optional[_Union[TotalsSection, _Mapping[str, object]]] = ..., overhead: _Optional[_Union[OverheadSection, _Mapping[str, object]]] = ..., cgroup: _Optional[_Union[CgroupSection, _Mapping[str, object]]] = ..., size: _Optional[_Union[SizeSection, _Mapping[str, object]]] = ..., numa: _Optional[_Union[NumaSection, _Mapping[str, object]]] = ..., devices: _Optional[_Union[DevicesSection, _Mapping[str, object]]] = ..., volumes: _Optional[_Union[VolumesSection, _Mapping[str, object]]] = ..., network: _Optional[_Union[NetworkSection, _Mapping[str, object]]] = ..., images: _Optional[_Union[ImagesSection, _Mapping[str, object]]] = ..., pulls: _Optional[_Union[PullsSection, _Mapping[str, object]]] = ..., gate: _Optional[_Union[GateSection, _Mapping[str, object]]] = ..., checkpoint: _Optional[_Union[CheckpointSection, _Mapping[str, object]]] = ..., spec: _Optional[_Union[SpecSection, _Mapping[str, object]]] = ...) -> None: ...

class IdentitySection(_message.Message):
    __slots__ = ("value", "source", "complete", "why", "observed_at")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    value: PodIdentity
    source: str
    complete: bool
    why: str
    observed_at: int
    def __init__(self, value: _Optional[_Union[PodIdentity, _Mapping[str, object]]] = ..., source: _Optional[str] = ..., complete: _Optional[bool] = ..., why: _Optional[str] = ..., observed_at: _Optional[int] = ...) -> None: ...

class PodIdentity(_message.Message):
    __slots__ = ("namespace", "name", "uid", "sandbox", "handler", "runtime_class")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    HANDLER_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_CLASS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    uid: str
    sandbox: str
    handler: str
    runtime_class: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., uid: _Optional[str] = ..., sandbox: _Optional[str] = ..., handler: _Optional[str] = ..., runtime_class: _Optional[str] = ...) -> None: ...

class ContainersSection(_message.Message):
    __slots__ = ("value", "source", "complete", "why", "observed_at")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    value: _containers.RepeatedCompositeFieldContainer[PodContainer]
    source: str
    complete: bool
    why: str
    observed_at: int
    def __init__(self, value: _Optional[_Iterable[_Union[PodContainer, _Mapping[str, object]]]] = ..., source: _Optional[str] = ..., complete: _Optional[bool] = ..., why: _Optional[str] = ..., observed_at: _Optional[int] = ...) -> None: ...

class PodContainer(_message.Message):
    __slots__ = ("name", "role", "cpu_request_m", "cpu_limit_m", "memory_request", "memory_limit", "declared")
    class DeclaredEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CPU_REQUEST_M_FIELD_NUMBER: _ClassVar[int]
    CPU_LIMIT_M_FIELD_NUMBER: _ClassVar[int]
    MEMORY_REQUEST_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_FIELD_NUMBER: _ClassVar[int]
    DECLARED_FIELD_NUMBER: _ClassVar[int]
    name: str
    role: str
    cpu_request_m: int
    cpu_limit_m: int
    memory_request: int
    memory_limit: int
    declared: _containers.ScalarMap[str, int]
    def __init__(self, name: _Optional[str] = ..., role: _Optional[str] = ..., cpu_request_m: _Optional[int] = ..., cpu_limit_m: _Optional[int] = ..., memory_request: _Optional[int] = ..., memory_limit: _Optional[int] = ..., declared: _Optional[_Mapping[str, int]] = ...) -> None: ...

class TotalsSection(_message.Message):
    __slots__ = ("value", "source", "complete", "why", "observed_at")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    value: PodTotals
    source: str
    complete: bool
    why: str
    observed_at: int
    def __init__(self, value: _Optional[_Union[PodTotals, _Mapping[str, object]]] = ..., source: _Optional[str] = ..., complete: _Optional[bool] = ..., why: _Optional[str] = ..., observed_at: _Optional[int] = ...) -> None: ...

class PodTotals(_message.Message):
    __slots__ = ("cpu_request_m", "cpu_limit_m", "memory_request", "memory_limit", "all_cpu_limited", "all_memory_limited")
    CPU_REQUEST_M_FIELD_NUMBER: _ClassVar[int]
    CPU_LIMIT_M_FIELD_NUMBER: _ClassVar[int]
    MEMORY_REQUEST_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_FIELD_NUMBER: _ClassVar[int]
    ALL_CPU_LIMITED_FIELD_NUMBER: _ClassVar[int]
    ALL_MEMORY_LIMITED_FIELD_NUMBER: _ClassVar[int]
    cpu_request_m: int
    cpu_limit_m: int
    memory_request: int
    memory_limit: int
    all_cpu_limited: bool
    all_memory_limited: bool
    def __init__(self, cpu_request_m: _Optional[int] = ..., cpu_limit_m: _Optional[int] = ..., memory_request: _Optional[int] = ..., memory_limit: _Optional[int] = ..., all_cpu_limited: _Optional[bool] = ..., all_memory_limited: _Optional[bool] = ...) -> None: ...

class OverheadSection(_message.Message):
    __slots__ = ("value", "source", "complete", "why", "observed_at")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    value: PodOverhead
    source: str
    complete: bool
    why: str
    observed_at: int
    def __init__(self, value: _Optional[_Union[PodOverhead, _Mapping[str, object]]] = ..., source: _Optional[str] = ..., complete: _Optional[bool] = ..., why: _Optional[str] = ..., observed_at: _Optional[int] = ...) -> None: ...

class PodOverhead(_message.Message):
    __slots__ = ("cpu_m", "memory")
    CPU_M_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    cpu_m: int
    memory: int
    def __init__(self, cpu_m: _Optional[int] = ..., memory: _Optional[int] = ...) -> None: ...

class CgroupSection(_message.Message):
    __slots__ = ("value", "source", "complete", "why", "observed_at")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    value: PodCgroup
    source: str
    complete: bool
    why: str
    observed_at: int
    def __init__(self, value: _Optional[_Union[PodCgroup, _Mapping[str, object]]] = ..., source: _Optional[str] = ..., complete: _Optional[bool] = ..., why: _Optional[str] = ..., observed_at: _Optional[int] = ...) -> None: ...

class PodCgroup(_message.Message):
    __slots__ = ("parent", "driver", "version")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    parent: str
    driver: str
    version: int
    def __init__(self, parent: _Optional[str] = ..., driver: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class SizeSection(_message.Message):
    __slots__ = ("value", "source", "complete", "why", "observed_at")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    value: PodVmSize
    source: str
    complete: bool
    why: str
    observed_at: int
    def __init__(self, value: _Optional[_Union[PodVmSize, _Mapping[str, object]]] = ..., source: _Optional[str] = ..., complete: _Optional[bool] = ..., why: _Optional[str] = ..., observed_at: _Optional[int] = ...) -> None: ...

class PodVmSize(_message.Message):
    __slots__ = ("vcpus", "memory", "by")
    VCPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    vcpus: int
    memory: int
    by: str
    def __init__(self, vcpus: _Optional[int] = ..., memory: _Optional[int] = ..., by: _Optional[str] = ...) -> None: ...

class NumaSection(_message.Message):
    __slots__ = ("value", "source", "complete", "why", "observed_at")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    value: PodNuma
    source: str
    complete: bool
    why: str
    observed_at: int
    def __init__(self, value: _Optional[_Union[PodNuma, _Mapping[str, object]]] = ..., source: _Optional[str] = ..., complete: _Optional[bool] = ..., why: _Optional[str] = ..., observed_at: _Optional[int] = ...) -> None: ...

class PodNuma(_message.Message):
    __slots__ = ("nodes", "containers")
    NODES_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedScalarFieldContainer[int]
    containers: _containers.RepeatedCompositeFieldContainer[ContainerNuma]
    def __init__(self, nodes: _Optional[_Iterable[int]] = ..., containers: _Optional[_Iterable[_Union[ContainerNuma, _Mapping[str, object]]]] = ...) -> None: ...

class ContainerNuma(_message.Message):
    __slots__ = ("container", "cpus", "memory")
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    container: str
    cpus: _containers.RepeatedScalarFieldContainer[int]
    memory: _containers.RepeatedCompositeFieldContainer[MemoryBlock]
    def __init__(self, container: _Optional[str] = ..., cpus: _Optional[_Iterable[int]] = ..., memory: _Optional[_Iterable[_Union[MemoryBlock, _Mapping[str, object]]]] = ...) -> None: ...

class MemoryBlock(_message.Message):
    __slots__ = ("kind", "size", "nodes")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    kind: str
    size: int
    nodes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, kind: _Optional[str] = ..., size: _Optional[int] = ..., nodes: _Optional[_Iterable[int]] = ...) -> None: ...

class DevicesSection(_message.Message):
    __slots__ = ("value", "source", "complete", "why", "observed_at")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    value: _containers.RepeatedCompositeFieldContainer[PodDevice]
    source: str
    complete: bool
    why: str
    observed_at: int
    def __init__(self, value: _Optional[_Iterable[_Union[PodDevice, _Mapping[str, object]]]] = ..., source: _Optional[str] = ..., complete: _Optional[bool] = ..., why: _Optional[str] = ..., observed_at: _Optional[int] = ...) -> None: ...

class PodDevice(_message.Message):
    __slots__ = ("container", "kind", "resource", "device", "name", "paths", "pci", "numa", "sources", "left_out")
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    PCI_FIELD_NUMBER: _ClassVar[int]
    NUMA_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    container: str
    kind: str
    resource: str
    device: str
    name: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    pci: _containers.RepeatedScalarFieldContainer[str]
    numa: _containers.RepeatedScalarFieldContainer[int]
    sources: _containers.RepeatedScalarFieldContainer[str]
    left_out: str
    def __init__(self, container: _Optional[str] = ..., kind: _Optional[str] = ..., resource: _Optional[str] = ..., device: _Optional[str] = ..., name: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ..., pci: _Optional[_Iterable[str]] = ..., numa: _Optional[_Iterable[int]] = ..., sources: _Optional[_Iterable[str]] = ..., left_out: _Optional[str] = ...) -> None: ...

class VolumesSection(_message.Message):
    __slots__ = ("value", "source", "complete", "why", "observed_at")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    value: _containers.RepeatedCompositeFieldContainer[PodVolumeRow]
    source: str
    complete: bool
    why: str
    observed_at: int
    def __init__(self, value: _Optional[_Iterable[_Union[PodVolumeRow, _Mapping[str, object]]]] = ..., source: _Optional[str] = ..., complete: _Optional[bool] = ..., why: _Optional[str] = ..., observed_at: _Optional[int] = ...) -> None: ...

class PodVolumeRow(_message.Message):
    __slots__ = ("name", "kind", "claim_name", "medium", "mounts", "owner", "why", "sandbox", "firm", "lease_s")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CLAIM_NAME_FIELD_NUMBER: _ClassVar[int]
    MEDIUM_FIELD_NUMBER: _ClassVar[int]
    MOUNTS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    FIRM_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    claim_name: str
    medium: str
    mounts: _containers.RepeatedCompositeFieldContainer[VolumeMount]
    owner: str
    why: str
    sandbox: str
    firm: bool
    lease_s: int
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., claim_name: _Optional[str] = ..., medium: _Optional[str] = ..., mounts: _Optional[_Iterable[_Union[VolumeMount, _Mapping[str, object]]]] = ..., owner: _Optional[str] = ..., why: _Optional[str] = ..., sandbox: _Optional[str] = ..., firm: _Optional[bool] = ..., lease_s: _Optional[int] = ...) -> None: ...

class VolumeMount(_message.Message):
    __slots__ = ("container", "read_only", "sub_path", "raw", "shared")
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    SUB_PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    container: str
    read_only: bool
    sub_path: bool
    raw: bool
    shared: bool
    def __init__(self, container: _Optional[str] = ..., read_only: _Optional[bool] = ..., sub_path: _Optional[bool] = ..., raw: _Optional[bool] = ..., shared: _Optional[bool] = ...) -> None: ...

class NetworkSection(_message.Message):
    __slots__ = ("value", "source", "complete", "why", "observed_at")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    value: PodNetwork
    source: str
    complete: bool
    why: str
    observed_at: int
    def __init__(self, value: _Optional[_Union[PodNetwork, _Mapping[str, object]]] = ..., source: _Optional[str] = ..., complete: _Optional[bool] = ..., why: _Optional[str] = ..., observed_at: _Optional[int] = ...) -> None: ...

class PodNetwork(_message.Message):
    __slots__ = ("netns", "interfaces", "routes")
    NETNS_FIELD_NUMBER: _ClassVar[int]
    INTERFACES_FIELD_NUMBER: _ClassVar[int]
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    netns: str
    interfaces: _containers.RepeatedCompositeFieldContainer[PodInterface]
    routes: _containers.RepeatedCompositeFieldContainer[PodRoute]
    def __init__(self, netns: _Optional[str] = ..., interfaces: _Optional[_Iterable[_Union[PodInterface, _Mapping[str, object]]]] = ..., routes: _Optional[_Iterable[_Union[PodRoute, _Mapping[str, object]]]] = ...) -> None: ...

class PodInterface(_message.Message):
    __slots__ = ("name", "mac", "mtu", "addresses", "device", "host", "queues")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MAC_FIELD_NUMBER: _ClassVar[int]
    MTU_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    name: str
    mac: str
    mtu: int
    addresses: _containers.RepeatedScalarFieldContainer[str]
    device: str
    host: str
    queues: int
    def __init__(self, name: _Optional[str] = ..., mac: _Optional[str] = ..., mtu: _Optional[int] = ..., addresses: _Optional[_Iterable[str]] = ..., device: _Optional[str] = ..., host: _Optional[str] = ..., queues: _Optional[int] = ...) -> None: ...

class PodRoute(_message.Message):
    __slots__ = ("destination", "gateway", "interface", "mtu")
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_FIELD_NUMBER: _ClassVar[int]
    INTERFACE_FIELD_NUMBER: _ClassVar[int]
    MTU_FIELD_NUMBER: _ClassVar[int]
    destination: str
    gateway: str
    interface: str
    mtu: int
    def __init__(self, destination: _Optional[str] = ..., gateway: _Optional[str] = ..., interface: _Optional[str] = ..., mtu: _Optional[int] = ...) -> None: ...

class ImagesSection(_message.Message):
    __slots__ = ("value", "source", "complete", "why", "observed_at")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    value: _containers.RepeatedCompositeFieldContainer[PodImage]
    source: str
    complete: bool
    why: str
    observed_at: int
    def __init__(self, value: _Optional[_Iterable[_Union[PodImage, _Mapping[str, object]]]] = ..., source: _Optional[str] = ..., complete: _Optional[bool] = ..., why: _Optional[str] = ..., observed_at: _Optional[int] = ...) -> None: ...

class PodImage(_message.Message):
    __slots__ = ("container", "image", "host", "guest")
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    GUEST_FIELD_NUMBER: _ClassVar[int]
    container: str
    image: str
    host: _containers.RepeatedScalarFieldContainer[str]
    guest: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, container: _Optional[str] = ..., image: _Optional[str] = ..., host: _Optional[_Iterable[str]] = ..., guest: _Optional[_Iterable[str]] = ...) -> None: ...

class PullsSection(_message.Message):
    __slots__ = ("value", "source", "complete", "why", "observed_at")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    value: PodPullsSeen
    source: str
    complete: bool
    why: str
    observed_at: int
    def __init__(self, value: _Optional[_Union[PodPullsSeen, _Mapping[str, object]]] = ..., source: _Optional[str] = ..., complete: _Optional[bool] = ..., why: _Optional[str] = ..., observed_at: _Optional[int] = ...) -> None: ...

class PodPullsSeen(_message.Message):
    __slots__ = ("sandbox", "host", "guest", "mode", "mode_why")
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    GUEST_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    MODE_WHY_FIELD_NUMBER: _ClassVar[int]
    sandbox: str
    host: _containers.RepeatedCompositeFieldContainer[HostPull]
    guest: _containers.RepeatedCompositeFieldContainer[GuestImage]
    mode: str
    mode_why: str
    def __init__(self, sandbox: _Optional[str] = ..., host: _Optional[_Iterable[_Union[HostPull, _Mapping[str, object]]]] = ..., guest: _Optional[_Iterable[_Union[GuestImage, _Mapping[str, object]]]] = ..., mode: _Optional[str] = ..., mode_why: _Optional[str] = ...) -> None: ...

class HostPull(_message.Message):
    __slots__ = ("image", "attempt", "sandbox", "began", "ended", "status", "image_ref")
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_REF_FIELD_NUMBER: _ClassVar[int]
    image: str
    attempt: int
    sandbox: str
    began: int
    ended: int
    status: str
    image_ref: str
    def __init__(self, image: _Optional[str] = ..., attempt: _Optional[int] = ..., sandbox: _Optional[str] = ..., began: _Optional[int] = ..., ended: _Optional[int] = ..., status: _Optional[str] = ..., image_ref: _Optional[str] = ...) -> None: ...

class GuestImage(_message.Message):
    __slots__ = ("sandbox", "image", "state", "digest", "bytes", "error", "reported")
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REPORTED_FIELD_NUMBER: _ClassVar[int]
    sandbox: str
    image: str
    state: str
    digest: str
    bytes: int
    error: str
    reported: int
    def __init__(self, sandbox: _Optional[str] = ..., image: _Optional[str] = ..., state: _Optional[str] = ..., digest: _Optional[str] = ..., bytes: _Optional[int] = ..., error: _Optional[str] = ..., reported: _Optional[int] = ...) -> None: ...

class GateSection(_message.Message):
    __slots__ = ("value", "source", "complete", "why", "observed_at")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    value: PodGate
    source: str
    complete: bool
    why: str
    observed_at: int
    def __init__(self, value: _Optional[_Union[PodGate, _Mapping[str, object]]] = ..., source: _Optional[str] = ..., complete: _Optional[bool] = ..., why: _Optional[str] = ..., observed_at: _Optional[int] = ...) -> None: ...

class PodGate(_message.Message):
    __slots__ = ("mode", "open", "conditions", "verdict", "reason", "evidence_digest", "set_by", "set_at", "expires_at")
    MODE_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SET_BY_FIELD_NUMBER: _ClassVar[int]
    SET_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    mode: str
    open: bool
    conditions: _containers.RepeatedCompositeFieldContainer[GateCondition]
    verdict: str
    reason: str
    evidence_digest: str
    set_by: int
    set_at: int
    expires_at: int
    def __init__(self, mode: _Optional[str] = ..., open: _Optional[bool] = ..., conditions: _Optional[_Iterable[_Union[GateCondition, _Mapping[str, object]]]] = ..., verdict: _Optional[str] = ..., reason: _Optional[str] = ..., evidence_digest: _Optional[str] = ..., set_by: _Optional[int] = ..., set_at: _Optional[int] = ..., expires_at: _Optional[int] = ...) -> None: ...

class GateCondition(_message.Message):
    __slots__ = ("name", "open", "why")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    name: str
    open: bool
    why: str
    def __init__(self, name: _Optional[str] = ..., open: _Optional[bool] = ..., why: _Optional[str] = ...) -> None: ...

class CheckpointSection(_message.Message):
    __slots__ = ("value", "source", "complete", "why", "observed_at")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    value: PodCheckpoint
    source: str
    complete: bool
    why: str
    observed_at: int
    def __init__(self, value: _Optional[_Union[PodCheckpoint, _Mapping[str, object]]] = ..., source: _Optional[str] = ..., complete: _Optional[bool] = ..., why: _Optional[str] = ..., observed_at: _Optional[int] = ...) -> None: ...

class PodCheckpoint(_message.Message):
    __slots__ = ("possible",)
    POSSIBLE_FIELD_NUMBER: _ClassVar[int]
    possible: bool
    def __init__(self, possible: _Optional[bool] = ...) -> None: ...

class SpecSection(_message.Message):
    __slots__ = ("value", "source", "complete", "why", "observed_at")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    value: str
    source: str
    complete: bool
    why: str
    observed_at: int
    def __init__(self, value: _Optional[str] = ..., source: _Optional[str] = ..., complete: _Optional[bool] = ..., why: _Optional[str] = ..., observed_at: _Optional[int] = ...) -> None: ...

class ListPodsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListPodsResponse(_message.Message):
    __slots__ = ("pods",)
    PODS_FIELD_NUMBER: _ClassVar[int]
    pods: _containers.RepeatedCompositeFieldContainer[PodIdentity]
    def __init__(self, pods: _Optional[_Iterable[_Union[PodIdentity, _Mapping[str, object]]]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchEvent(_message.Message):
    __slots__ = ("kind", "seq", "namespace", "name", "uid", "sandbox")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[WatchEvent.Kind]
        ADDED: _ClassVar[WatchEvent.Kind]
        CHANGED: _ClassVar[WatchEvent.Kind]
        GONE: _ClassVar[WatchEvent.Kind]
        GAP: _ClassVar[WatchEvent.Kind]
    UNSPECIFIED: WatchEvent.Kind
    ADDED: WatchEvent.Kind
    CHANGED: WatchEvent.Kind
    GONE: WatchEvent.Kind
    GAP: WatchEvent.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    kind: WatchEvent.Kind
    seq: int
    namespace: str
    name: str
    uid: str
    sandbox: str
    def __init__(self, kind: _Optional[_Union[WatchEvent.Kind, str]] = ..., seq: _Optional[int] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., uid: _Optional[str] = ..., sandbox: _Optional[str] = ...) -> None: ...

class ComputeSizeRequest(_message.Message):
    __slots__ = ("selector", "handler", "unlimited", "keep_cpus", "keep_memory_mib")
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    HANDLER_FIELD_NUMBER: _ClassVar[int]
    UNLIMITED_FIELD_NUMBER: _ClassVar[int]
    KEEP_CPUS_FIELD_NUMBER: _ClassVar[int]
    KEEP_MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    selector: Selector
    handler: str
    unlimited: str
    keep_cpus: int
    keep_memory_mib: int
    def __init__(self, selector: _Optional[_Union[Selector, _Mapping[str, object]]] = ..., handler: _Optional[str] = ..., unlimited: _Optional[str] = ..., keep_cpus: _Optional[int] = ..., keep_memory_mib: _Optional[int] = ...) -> None: ...

class ComputeSizeResponse(_message.Message):
    __slots__ = ("handler", "cpu_m", "vcpus", "memory", "terms", "sent", "kata")
    HANDLER_FIELD_NUMBER: _ClassVar[int]
    CPU_M_FIELD_NUMBER: _ClassVar[int]
    VCPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    KATA_FIELD_NUMBER: _ClassVar[int]
    handler: str
    cpu_m: int
    vcpus: int
    memory: int
    terms: _containers.RepeatedCompositeFieldContainer[SizeTerm]
    sent: SizeSent
    kata: KataSize
    def __init__(self, handler: _Optional[str] = ..., cpu_m: _Optional[int] = ..., vcpus: _Optional[int] = ..., memory: _Optional[int] = ..., terms: _Optional[_Iterable[_Union[SizeTerm, _Mapping[str, object]]]] = ..., sent: _Optional[_Union[SizeSent, _Mapping[str, object]]] = ..., kata: _Optional[_Union[KataSize, _Mapping[str, object]]] = ...) -> None: ...

class SizeTerm(_message.Message):
    __slots__ = ("what", "amount", "why")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    what: str
    amount: int
    why: str
    def __init__(self, what: _Optional[str] = ..., amount: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class SizeSent(_message.Message):
    __slots__ = ("way", "cpu_period", "cpu_quota", "memory_limit", "annotations", "changes", "why")
    class AnnotationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    WAY_FIELD_NUMBER: _ClassVar[int]
    CPU_PERIOD_FIELD_NUMBER: _ClassVar[int]
    CPU_QUOTA_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    way: str
    cpu_period: int
    cpu_quota: int
    memory_limit: int
    annotations: _containers.ScalarMap[str, str]
    changes: bool
    why: str
    def __init__(self, way: _Optional[str] = ..., cpu_period: _Optional[int] = ..., cpu_quota: _Optional[int] = ..., memory_limit: _Optional[int] = ..., annotations: _Optional[_Mapping[str, str]] = ..., changes: _Optional[bool] = ..., why: _Optional[str] = ...) -> None: ...

class KataSize(_message.Message):
    __slots__ = ("vcpus", "memory", "why")
    VCPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    vcpus: int
    memory: int
    why: str
    def __init__(self, vcpus: _Optional[int] = ..., memory: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class ReportSandboxRequest(_message.Message):
    __slots__ = ("sandbox", "vmm_pid", "vcpu_tids", "vcpus", "memory", "cgroups", "runtime")
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    VMM_PID_FIELD_NUMBER: _ClassVar[int]
    VCPU_TIDS_FIELD_NUMBER: _ClassVar[int]
    VCPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    CGROUPS_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    sandbox: str
    vmm_pid: int
    vcpu_tids: _containers.RepeatedScalarFieldContainer[int]
    vcpus: int
    memory: int
    cgroups: _containers.RepeatedScalarFieldContainer[str]
    runtime: str
    def __init__(self, sandbox: _Optional[str] = ..., vmm_pid: _Optional[int] = ..., vcpu_tids: _Optional[_Iterable[int]] = ..., vcpus: _Optional[int] = ..., memory: _Optional[int] = ..., cgroups: _Optional[_Iterable[str]] = ..., runtime: _Optional[str] = ...) -> None: ...

class ReportSandboxResponse(_message.Message):
    __slots__ = ("known",)
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    known: bool
    def __init__(self, known: _Optional[bool] = ...) -> None: ...

class SetGateRequest(_message.Message):
    __slots__ = ("verdict", "uid", "namespace", "name", "reason", "evidence_digest", "expires_s")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_S_FIELD_NUMBER: _ClassVar[int]
    verdict: str
    uid: str
    namespace: str
    name: str
    reason: str
    evidence_digest: str
    expires_s: int
    def __init__(self, verdict: _Optional[str] = ..., uid: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., reason: _Optional[str] = ..., evidence_digest: _Optional[str] = ..., expires_s: _Optional[int] = ...) -> None: ...

class SetGateResponse(_message.Message):
    __slots__ = ("uid", "namespace", "name", "verdict", "set_at", "expires_at")
    UID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    SET_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    uid: str
    namespace: str
    name: str
    verdict: str
    set_at: int
    expires_at: int
    def __init__(self, uid: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., verdict: _Optional[str] = ..., set_at: _Optional[int] = ..., expires_at: _Optional[int] = ...) -> None: ...

class ResolvePullRequest(_message.Message):
    __slots__ = ("namespace", "name", "uid", "attempt", "image")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    uid: str
    attempt: int
    image: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., uid: _Optional[str] = ..., attempt: _Optional[int] = ..., image: _Optional[str] = ...) -> None: ...

class ResolvePullResponse(_message.Message):
    __slots__ = ("state", "why", "sandbox", "handler", "mode", "mode_why")
    STATE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    HANDLER_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    MODE_WHY_FIELD_NUMBER: _ClassVar[int]
    state: str
    why: str
    sandbox: str
    handler: str
    mode: str
    mode_why: str
    def __init__(self, state: _Optional[str] = ..., why: _Optional[str] = ..., sandbox: _Optional[str] = ..., handler: _Optional[str] = ..., mode: _Optional[str] = ..., mode_why: _Optional[str] = ...) -> None: ...

class ReportPullRequest(_message.Message):
    __slots__ = ("sandbox", "image", "state", "digest", "bytes", "error")
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    sandbox: str
    image: str
    state: str
    digest: str
    bytes: int
    error: str
    def __init__(self, sandbox: _Optional[str] = ..., image: _Optional[str] = ..., state: _Optional[str] = ..., digest: _Optional[str] = ..., bytes: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class ReportPullResponse(_message.Message):
    __slots__ = ("accepted", "why")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    why: str
    def __init__(self, accepted: _Optional[bool] = ..., why: _Optional[str] = ...) -> None: ...

class OfferVolumesRequest(_message.Message):
    __slots__ = ("pod_uid", "sandbox", "volumes")
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    VOLUMES_FIELD_NUMBER: _ClassVar[int]
    pod_uid: str
    sandbox: str
    volumes: _containers.RepeatedCompositeFieldContainer[OfferedVolume]
    def __init__(self, pod_uid: _Optional[str] = ..., sandbox: _Optional[str] = ..., volumes: _Optional[_Iterable[_Union[OfferedVolume, _Mapping[str, object]]]] = ...) -> None: ...

class OfferedVolume(_message.Message):
    __slots__ = ("volume", "path", "capabilities", "fs")
    VOLUME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    FS_FIELD_NUMBER: _ClassVar[int]
    volume: str
    path: str
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    fs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, volume: _Optional[str] = ..., path: _Optional[str] = ..., capabilities: _Optional[_Iterable[str]] = ..., fs: _Optional[_Iterable[str]] = ...) -> None: ...

class OfferVolumesResponse(_message.Message):
    __slots__ = ("pod_uid", "sandbox", "offers")
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    OFFERS_FIELD_NUMBER: _ClassVar[int]
    pod_uid: str
    sandbox: str
    offers: _containers.RepeatedCompositeFieldContainer[VolumeOffer]
    def __init__(self, pod_uid: _Optional[str] = ..., sandbox: _Optional[str] = ..., offers: _Optional[_Iterable[_Union[VolumeOffer, _Mapping[str, object]]]] = ...) -> None: ...

class VolumeOffer(_message.Message):
    __slots__ = ("volume", "owner", "why", "lease_s", "firm", "held_by")
    VOLUME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    FIRM_FIELD_NUMBER: _ClassVar[int]
    HELD_BY_FIELD_NUMBER: _ClassVar[int]
    volume: str
    owner: str
    why: str
    lease_s: int
    firm: bool
    held_by: str
    def __init__(self, volume: _Optional[str] = ..., owner: _Optional[str] = ..., why: _Optional[str] = ..., lease_s: _Optional[int] = ..., firm: _Optional[bool] = ..., held_by: _Optional[str] = ...) -> None: ...

class ConfirmVolumeRequest(_message.Message):
    __slots__ = ("pod_uid", "sandbox", "volume", "release")
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    VOLUME_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    pod_uid: str
    sandbox: str
    volume: str
    release: bool
    def __init__(self, pod_uid: _Optional[str] = ..., sandbox: _Optional[str] = ..., volume: _Optional[str] = ..., release: _Optional[bool] = ...) -> None: ...

class ConfirmVolumeResponse(_message.Message):
    __slots__ = ("volume", "owner", "why")
    VOLUME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    volume: str
    owner: str
    why: str
    def __init__(self, volume: _Optional[str] = ..., owner: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class ListVolumeClaimsRequest(_message.Message):
    __slots__ = ("path", "pod_uid")
    PATH_FIELD_NUMBER: _ClassVar[int]
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    path: str
    pod_uid: str
    def __init__(self, path: _Optional[str] = ..., pod_uid: _Optional[str] = ...) -> None: ...

class ListVolumeClaimsResponse(_message.Message):
    __slots__ = ("claims", "complete", "why")
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    claims: _containers.RepeatedCompositeFieldContainer[VolumeClaim]
    complete: bool
    why: str
    def __init__(self, claims: _Optional[_Iterable[_Union[VolumeClaim, _Mapping[str, object]]]] = ..., complete: _Optional[bool] = ..., why: _Optional[str] = ...) -> None: ...

class VolumeClaim(_message.Message):
    __slots__ = ("volume", "path", "namespace", "pod", "pod_uid", "sandbox", "claim_name", "firm", "lease_s", "by", "holder")
    VOLUME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    CLAIM_NAME_FIELD_NUMBER: _ClassVar[int]
    FIRM_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    volume: str
    path: str
    namespace: str
    pod: str
    pod_uid: str
    sandbox: str
    claim_name: str
    firm: bool
    lease_s: int
    by: str
    holder: str
    def __init__(self, volume: _Optional[str] = ..., path: _Optional[str] = ..., namespace: _Optional[str] = ..., pod: _Optional[str] = ..., pod_uid: _Optional[str] = ..., sandbox: _Optional[str] = ..., claim_name: _Optional[str] = ..., firm: _Optional[bool] = ..., lease_s: _Optional[int] = ..., by: _Optional[str] = ..., holder: _Optional[str] = ...) -> None: ...

class HoldVolumeRequest(_message.Message):
    __slots__ = ("path", "holder", "release")
    PATH_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    path: str
    holder: str
    release: bool
    def __init__(self, path: _Optional[str] = ..., holder: _Optional[str] = ..., release: _Optional[bool] = ...) -> None: ...

class HoldVolumeResponse(_message.Message):
    __slots__ = ("path", "held", "why", "lease_s", "held_by")
    PATH_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    HELD_BY_FIELD_NUMBER: _ClassVar[int]
    path: str
    held: bool
    why: str
    lease_s: int
    held_by: str
    def __init__(self, path: _Optional[str] = ..., held: _Optional[bool] = ..., why: _Optional[str] = ..., lease_s: _Optional[int] = ..., held_by: _Optional[str] = ...) -> None: ...
