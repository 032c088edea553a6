"""AdmissionReview v1, in part: the few fields of a pod that admission looks at, and the answer.

Promises: only declared fields are decoded; values of environment variables, commands, and annotations that nobody
asks for stay undecoded bytes. Every input is bounded; whatever is wrong with it is a WireError that names the place and
never shows the content. Null and absent are the same, as in Go.

Must not: do I/O, or judge.
"""

from base64 import b64encode
from collections.abc import Callable

from msgspec import Raw, Struct
from msgspec.json import Decoder, Encoder

from nodeward.core.errors import WireError
from nodeward.core.text import printable
from nodeward.neighbours.formats.kube_objects import Quantities, Resources, decode_bounded

API_VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"
FORMAT = "admission review"
_SHOWN = 64


class EnvName(Struct, frozen=True):
    """An environment variable without its value."""

    name: str = ""


class Mount(Struct, frozen=True, rename="camel"):
    """A volume mount."""

    name: str = ""
    mount_path: str = ""


class ReviewedContainer(Struct, frozen=True, rename="camel"):
    """A container of any of the pod's three lists. `env` and `volume_mounts` are decoded by the functions below."""

    name: str = ""
    resources: Resources | None = None
    restart_policy: str | None = None
    env: Raw = Raw()
    volume_mounts: Raw = Raw()


class Volume(Struct, frozen=True, rename="camel"):
    """A volume's name, and whether it is a folder of the node."""

    name: str = ""
    host_path: Raw = Raw()


class ReviewedSpec(Struct, frozen=True, rename="camel"):
    """`spec` of v1.Pod."""

    overhead: Quantities | None = None
    volumes: tuple[Volume, ...] | None = None
    init_containers: tuple[ReviewedContainer, ...] | None = None
    containers: tuple[ReviewedContainer, ...] | None = None
    ephemeral_containers: tuple[ReviewedContainer, ...] | None = None


class ReviewedMetadata(Struct, frozen=True, rename="camel"):
    """`metadata` of v1.Pod. Annotations are not decoded; `annotations_of` does so for the keys one asks for."""

    name: str | None = None
    generate_name: str | None = None
    annotations: dict[str, Raw] | None = None


class ReviewedPod(Struct, frozen=True):
    """v1.Pod, in part."""

    metadata: ReviewedMetadata | None = None
    spec: ReviewedSpec | None = None


class ResourceName(Struct, frozen=True):
    """What the request is about: `pods` of the core group, version v1."""

    group: str = ""
    version: str = ""
    resource: str = ""


class ReviewRequest(Struct, frozen=True, rename="camel"):
    """`request` of an AdmissionReview."""

    uid: str
    operation: str = ""
    resource: ResourceName = ResourceName()
    sub_resource: str | None = None
    namespace: str | None = None
    name: str | None = None
    object: ReviewedPod | None = None


class Review(Struct, frozen=True, rename="camel"):
    """What the API server sends."""

    api_version: str = ""
    kind: str = ""
    request: ReviewRequest | None = None


class _Status(Struct, frozen=True):
    code: int
    reason: str
    message: str


class _Response(Struct, frozen=True, rename="camel", omit_defaults=True):
    uid: str
    allowed: bool
    patch_type: str | None = None
    patch: str | None = None
    status: _Status | None = None
    warnings: tuple[str, ...] = ()


class _Answer(Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    response: _Response


_REVIEW = Decoder(Review)
_TEXT = Decoder(str | None)
_ENV = Decoder(tuple[EnvName, ...] | None)
_MOUNTS = Decoder(tuple[Mount, ...] | None)
_ENCODER = Encoder()


def decode_review(data: bytes | bytearray, limit: int) -> ReviewRequest:
    """The request of a review. WireError for what is none, or of another version."""
    review = decode_bounded(_REVIEW, data, "admission review", limit)
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        raise WireError(
            FORMAT,
            f"is {review.kind[:_SHOWN]!r} of {review.api_version[:_SHOWN]!r}; only {KIND} of {API_VERSION} is read: "
            "name v1 in admissionReviewVersions",
        )
    if review.request is None or not review.request.uid:
        raise WireError(FORMAT, "has no request with a uid: an API server always sends one")
    return review.request


def annotations_of(pod: ReviewedPod, chosen: Callable[[str], bool]) -> dict[str, str]:
    """The annotations whose key is `chosen`, decoded."""
    raw = pod.metadata.annotations if pod.metadata is not None else None
    if not raw:
        return {}
    return {key: _text(key, bytes(value)) for key, value in raw.items() if chosen(key)}


def _text(key: str, value: bytes) -> str:
    try:
        return decode_bounded(_TEXT, value, f"annotation {printable(key, _SHOWN)!r}", len(value)) or ""
    except WireError as error:
        raise WireError(FORMAT, f"{error.fault}; write its value as text, in quotes") from error


def is_there(raw: Raw) -> bool:
    """Whether an undecoded field is neither absent nor null."""
    return len(raw) > 0 and bytes(raw) != b"null"


def env_of(container: ReviewedContainer) -> tuple[EnvName, ...]:
    """The environment's names. Most pods need no look at them, and a large pod is mostly environment."""
    raw = container.env
    return decode_bounded(_ENV, bytes(raw), "environment", len(raw)) or () if len(raw) else ()


def mounts_of(container: ReviewedContainer) -> tuple[Mount, ...]:
    """The volume mounts."""
    raw = container.volume_mounts
    return decode_bounded(_MOUNTS, bytes(raw), "volume mounts", len(raw)) or () if len(raw) else ()


def encode_allowed(uid: str, patch: bytes = b"", warnings: tuple[str, ...] = ()) -> bytes:
    """Yes, with a JSON patch unless it is empty."""
    if patch:
        response = _Response(uid, True, "JSONPatch", b64encode(patch).decode("ascii"), warnings=warnings)
    else:
        response = _Response(uid, True, warnings=warnings)
    return _ENCODER.encode(_Answer(API_VERSION, KIND, response))


def encode_refused(uid: str, message: str, warnings: tuple[str, ...] = ()) -> bytes:
    """No, with the text that the user gets to read."""
    status = _Status(403, "Forbidden", message)
    return _ENCODER.encode(_Answer(API_VERSION, KIND, _Response(uid, False, status=status, warnings=warnings)))
