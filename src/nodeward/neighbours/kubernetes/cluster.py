"""Reads names in lists of webhooks, DaemonSets, bindings of policies, RuntimeClasses and DeviceClasses."""

from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from nodeward.core.errors import WireError
from nodeward.core.finding import ParameterRef, Registered, RuntimeClass
from nodeward.core.quantity import QuantityError, whole_units
from nodeward.core.times import from_rfc3339

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
MAX_ACCESS_BYTES = 64 * 1024


class _Status(Struct, frozen=True):
    allowed: bool


class _Review(Struct, frozen=True):
    status: _Status


def question(verb: str, group: str, resource: str) -> bytes:
    """Whether we may do that in every namespace."""
    wanted = {"verb": verb, "group": group, "resource": resource}
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    return msgspec.json.encode({**kind, "spec": {"resourceAttributes": wanted}})


def is_allowed(body: bytes) -> bool:
    """What the answer says."""
    try:
        return msgspec.json.decode(body, type=_Review).status.allowed
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError("SelfSubjectAccessReview", "not one that can be read") from error


MAX_BYTES = 16 * 1024 * 1024
OUR_POLICIES = "nodeward-"
"""What the names of the policies in deploy/policies begin with."""
T = TypeVar("T")


class _Meta(Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Client(Struct, frozen=True, rename="camel"):
    url: str | None = None
    ca_bundle: str | None = None


class _Webhook(Struct, frozen=True, rename="camel"):
    name: str = ""
    client_config: _Client = _Client()


class _Configuration(Struct, frozen=True):
    webhooks: tuple[_Webhook, ...] | None = None


class _Configurations(Struct, frozen=True):
    items: tuple[_Configuration, ...] | None = None


class _DaemonSet(Struct, frozen=True):
    metadata: _Meta


class _DaemonSets(Struct, frozen=True):
    items: tuple[_DaemonSet, ...] | None = None


class _ParamRef(Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    parameter_not_found_action: str = ""


class _BindingSpec(Struct, frozen=True, rename="camel"):
    policy_name: str = ""
    param_ref: _ParamRef | None = None


class _Binding(Struct, frozen=True):
    spec: _BindingSpec


class _Bindings(Struct, frozen=True):
    items: tuple[_Binding, ...] | None = None


class _Overhead(Struct, frozen=True, rename="camel"):
    pod_fixed: dict[str, str] | None = None


class _RuntimeClass(Struct, frozen=True):
    metadata: _Meta
    handler: str = ""
    overhead: _Overhead | None = None


class _SliceSpec(Struct, frozen=True):
    driver: str = ""


class _PodMeta(Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    deletion_timestamp: str = ""


class _PodSpec(Struct, frozen=True, rename="camel"):
    resource_claims: tuple[Raw, ...] | None = None


class _DeviceClassSpec(Struct, frozen=True, rename="camel"):
    extended_resource_name: str = ""


class _DeviceClass(Struct, frozen=True):
    metadata: _Meta
    spec: _DeviceClassSpec = _DeviceClassSpec()


class _DeviceClasses(Struct, frozen=True):
    items: tuple[_DeviceClass, ...] | None = None


class _Slice(Struct, frozen=True):
    metadata: _Meta
    spec: _SliceSpec = _SliceSpec()


class _Slices(Struct, frozen=True):
    items: tuple[_Slice, ...] | None = None


class _Pod(Struct, frozen=True):
    metadata: _PodMeta
    spec: _PodSpec = _PodSpec()


class _Pods(Struct, frozen=True):
    items: tuple[_Pod, ...] | None = None


class _RuntimeClasses(Struct, frozen=True):
    items: tuple[_RuntimeClass, ...] | None = None


def _read(body: bytes, kind: type[T], name: str) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(name, "not one that can be read") from error


def webhooks(body: bytes) -> tuple[Registered, ...]:
    """All webhooks in a MutatingWebhookConfigurationList."""
    found = _read(body, _Configurations, "MutatingWebhookConfigurationList")
    return tuple(
        Registered(webhook.name, bool(webhook.client_config.ca_bundle or webhook.client_config.url))
        for item in found.items or ()
        for webhook in item.webhooks or ()
    )


def parameters(body: bytes) -> tuple[ParameterRef, ...]:
    """What the bindings of our policies in a ValidatingAdmissionPolicyBindingList cannot do without."""
    found = _read(body, _Bindings, "ValidatingAdmissionPolicyBindingList")
    return tuple(
        ParameterRef(item.spec.policy_name, ref.namespace, ref.name)
        for item in found.items or ()
        if item.spec.policy_name.startswith(OUR_POLICIES)
        and (ref := item.spec.param_ref) is not None
        and ref.name
        and ref.namespace
        and ref.parameter_not_found_action == "Deny"
    )


def bound_policies(body: bytes) -> tuple[str, ...]:
    """The policies of ours that a ValidatingAdmissionPolicyBindingList binds."""
    found = _read(body, _Bindings, "ValidatingAdmissionPolicyBindingList")
    names = [item.spec.policy_name for item in found.items or ()]
    return tuple(dict.fromkeys(name for name in names if name.startswith(OUR_POLICIES)))


def runtime_classes(body: bytes) -> tuple[RuntimeClass, ...]:
    """All RuntimeClasses in a RuntimeClassList."""
    found = _read(body, _RuntimeClasses, "RuntimeClassList")
    return tuple(RuntimeClass(item.metadata.name, item.handler, _memory(item)) for item in found.items or ())


def device_classes(body: bytes) -> tuple[tuple[str, str], ...]:
    """The DeviceClasses that stand for an extended resource: each with the resource's name."""
    found = _read(body, _DeviceClasses, "DeviceClassList").items or ()
    return tuple(
        (one.metadata.name, one.spec.extended_resource_name) for one in found if one.spec.extended_resource_name
    )


def slices(body: bytes) -> tuple[tuple[str, str], ...]:
    """The driver and the name of each object in a ResourceSliceList."""
    found = _read(body, _Slices, "ResourceSliceList").items or ()
    return tuple((one.spec.driver, one.metadata.name) for one in found)


def ending_with_claims(body: bytes) -> tuple[tuple[str, int], ...]:
    """NAMESPACE/NAME of each pod in a PodList that has claims and is to end, and when it was to have ended."""
    return tuple(
        (f"{one.metadata.namespace}/{one.metadata.name}", from_rfc3339(one.metadata.deletion_timestamp))
        for one in _read(body, _Pods, "PodList").items or ()
        if one.metadata.deletion_timestamp and one.spec.resource_claims
    )


def _memory(of: _RuntimeClass) -> int | None:
    fixed = of.overhead.pod_fixed or {} if of.overhead is not None else {}
    text = fixed.get("memory")
    try:
        return None if text is None else whole_units(text)
    except QuantityError as error:
        raise WireError(f"RuntimeClass {of.metadata.name}", f"podFixed.memory is {text!r}: {error}") from error


def daemon_set_names(body: bytes) -> tuple[str, ...]:
    """NAMESPACE/NAME of each object in a DaemonSetList."""
    found = _read(body, _DaemonSets, "DaemonSetList")
    return tuple(f"{item.metadata.namespace}/{item.metadata.name}" for item in found.items or ())
