"""What of its neighbours' contracts this project does not declare, by name, and since when there is what it declares.

A name listed here is a choice: protobuf skips what is not declared, and nothing is lost, since we never write back a
message that we have read. A name upstream adds is in no list, and fails the test until somebody has chosen.
"""

from collections.abc import Mapping, Sequence


def names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_SECURITY_AND_SCHEDULING = names("""
LinuxContainer.NetDevicesEntry LinuxContainer.SysctlEntry LinuxContainer.io_priority LinuxContainer.net_devices
LinuxContainer.rdt LinuxContainer.scheduler LinuxContainer.seccomp_policy LinuxContainer.seccomp_profile
LinuxContainer.sysctl LinuxContainerAdjustment.NetDevicesEntry LinuxContainerAdjustment.SysctlEntry
LinuxContainerAdjustment.namespaces LinuxContainerAdjustment.net_devices LinuxContainerAdjustment.rdt
LinuxContainerAdjustment.seccomp_policy LinuxContainerAdjustment.sysctl LinuxNetDevice LinuxRdt LinuxSeccomp
LinuxSeccompArg LinuxSyscall OptionalRepeatedString SecurityProfile
""")
"""No feature of ours decides on any of these."""

_HOOKS = ("Container.hooks", "ContainerAdjustment.hooks", "Hook", "Hooks")
"""Ours is brought by a CDI device or a base spec, and those of others are not our business."""

_WHO_CHANGED_WHAT = names("""
CompoundFieldOwners Field FieldOwners OwningPlugins PluginInstance ValidateContainerAdjustmentRequest.owners
ValidateContainerAdjustmentRequest.plugins
""")
"""Every adjustment is agreed to: Nodeward is no validator."""

_WASM = ("HostFunctions", "LogRequest")
"""For plugins that a runtime runs as WebAssembly."""

_OTHERS = (
    "OptionalInt32",  # no message has a field of it
    "ConfigureResponse.failure_policy",  # since 0.12.5; operators choose by NRI's required plugins
    "FailurePolicy",
)

NRI: tuple[str, ...] = (*_SECURITY_AND_SCHEDULING, *_HOOKS, *_WHO_CHANGED_WHAT, *_WASM, *_OTHERS)
"""Of NRI 0.12, and thus of all before."""

_CALLS_OF_0_12 = names("""
PostCreateContainer PostStartContainer PostUpdateContainer PostUpdatePodSandbox RemoveContainer RemovePodSandbox
RunPodSandbox StartContainer StopPodSandbox
""")
"""Through StateChange until then."""
_OF_A_CALL = (("Plugin.", ""), ("", "Request"), ("", "Response"))

_SINCE_0_11 = names("""
Container.CDI_devices Container.created_at Container.exit_code Container.finished_at Container.started_at
Container.status_message Container.status_reason Container.user ContainerAdjustment.args
Event.POST_UPDATE_POD_SANDBOX Event.UPDATE_POD_SANDBOX Event.VALIDATE_CONTAINER_ADJUSTMENT IOPrioClass
LinuxContainerAdjustment.io_priority LinuxContainerAdjustment.scheduler LinuxIOPriority LinuxScheduler
LinuxSchedulerFlag LinuxSchedulerPolicy Plugin.UpdatePodSandbox Plugin.ValidateContainerAdjustment
UpdatePodSandboxRequest UpdatePodSandboxResponse User ValidateContainerAdjustmentRequest
ValidateContainerAdjustmentResponse
""")
_SINCE_0_12 = names("""
ConfigureRequest.NRI_version Container.image Image LinuxContainerAdjustment.memory_policy LinuxMemoryPolicy
MpolFlag MpolMode RegisterPluginRequest.NRI_version
""")
NRI_SINCE: Mapping[str, Sequence[str]] = {
    "0.11": _SINCE_0_11,
    "0.12": [*_SINCE_0_12, *(f"{of}{call}{what}" for call in _CALLS_OF_0_12 for of, what in _OF_A_CALL)],
}
"""What we declare, and a release before the named one (of those that peers are built of) does not have."""

NRI_OTHERWISE: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "0.8": {"Event.LAST": ("12", "15")}  # the end of the list, of which nothing is read
}
"""What a release says otherwise than we do: its number, and ours."""

TTRPC = (
    "StringList",  # no message has a field of it
    "Status.details",
)

DEVICE_PLUGIN = names("""
CDIDevice ContainerAllocateResponse.AnnotationsEntry ContainerAllocateResponse.annotations
ContainerAllocateResponse.cdi_devices
""")
"""What a container gets with it is a device node or a folder."""

PODS_API = ("GetPodRequest", "GetPodResponse", "Pods.GetPod")
"""Whoever asks for one pod waits for kubelet's word on it anyway: the list says that, and of all others too."""
