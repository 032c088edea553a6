"""A finding of `nodeward doctor`, and what the cluster's objects say of themselves."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """How bad a finding is, best first."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """0 for the best."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is well, or is not: what, where, and how to mend it in one sentence (empty for what is well)."""

    code: str
    severity: Severity
    what: str
    where: str
    remedy: str = ""


class Access(Enum):
    """How the API server answered."""

    UNKNOWN = ""
    OFF = "off"
    OK = "ok"
    CONFIG = "config"
    DENIED = "denied"
    CERTIFICATE = "certificate"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Unlisted:
    """What the API server did not list, and why. `denied`: this user may not."""

    what: str
    why: str
    denied: bool


@dataclass(frozen=True, slots=True)
class Registered:
    """A webhook in a MutatingWebhookConfiguration. `has_ca`: the API server is told whose certificates to trust, or
    goes by its own where the webhook is a url."""

    name: str
    has_ca: bool


@dataclass(frozen=True, slots=True)
class ParameterRef:
    """A ConfigMap that a binding of one of our policies names; while it is missing, that policy refuses all it sees."""

    policy: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class RuntimeClass:
    """A RuntimeClass: `memory` is its overhead in bytes (podFixed), None where it declares none."""

    name: str
    handler: str
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Somebody else who is here, and by what it was seen."""

    name: str
    seen_at: str


def not_looked_at(where: str, unlisted: Iterable[Unlisted]) -> Iterator[Finding]:
    """What could not be looked at."""
    for one in unlisted:
        if one.denied:
            what = f"the API server does not let this user read {one.what}, so what is wrong there is not seen"
            remedy = "Run doctor once with an administrator's kubeconfig (--set kube.kubeconfig=FILE)."
        else:
            what = f"{one.what}: not read, so what is wrong there is not seen: {one.why}"
            remedy = "Run doctor again when the API server answers well, or look with kubectl."
        yield Finding("cluster-not-looked-at", Severity.NOTE, what, where, remedy)
