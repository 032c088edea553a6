"""The question whether we may do something, as the API `authorization.k8s.io/v1` takes it, and its answer.

Every user who is known may ask it of himself (Kubernetes' own role system:basic-user); it is kept nowhere.
"""

import msgspec
from msgspec import Struct

from nodeward.core.errors import WireError

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
MAX_BYTES = 64 * 1024


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
