"""Names in lists of MutatingWebhookConfigurations and DaemonSets: who else is in a cluster, and no more of them."""

import msgspec
from msgspec import Struct

from nodeward.wire.errors import WireError

MAX_BYTES = 16 * 1024 * 1024


class _Meta(Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Webhook(Struct, frozen=True):
    name: str = ""


class _Configuration(Struct, frozen=True):
    webhooks: tuple[_Webhook, ...] | None = None


class _Configurations(Struct, frozen=True):
    items: tuple[_Configuration, ...] | None = None


class _DaemonSet(Struct, frozen=True):
    metadata: _Meta


class _DaemonSets(Struct, frozen=True):
    items: tuple[_DaemonSet, ...] | None = None


def webhook_names(body: bytes) -> tuple[str, ...]:
    """The names of all webhooks in a MutatingWebhookConfigurationList."""
    try:
        found = msgspec.json.decode(body, type=_Configurations)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError("MutatingWebhookConfigurationList", "not one that can be read") from error
    return tuple(webhook.name for item in found.items or () for webhook in item.webhooks or ())


def daemon_set_names(body: bytes) -> tuple[str, ...]:
    """NAMESPACE/NAME of each object in a DaemonSetList."""
    try:
        found = msgspec.json.decode(body, type=_DaemonSets)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError("DaemonSetList", "not one that can be read") from error
    return tuple(f"{item.metadata.namespace}/{item.metadata.name}" for item in found.items or ())
