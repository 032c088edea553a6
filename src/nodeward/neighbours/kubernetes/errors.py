"""The errors of requests to the API server.

    NodewardError
    └── KubeError
        ├── KubeConfigError     a kubeconfig or the in-cluster files cannot be used; says what, where, how to mend
        ├── KubeAwayError       no answer, or one that says "not now" (5xx, 429): wait and try again
        ├── KubeDeniedError     401 or 403: the credentials or the RBAC rules have to be mended
        ├── KubeExpiredError    410: this version or page is no longer kept; list again
        ├── KubeMissingError    404
        └── KubeGarbageError    an answer that is not what the API promises; list again

Must not: hold bodies, tokens or keys.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from nodeward.core.errors import NodewardError, WireError
from nodeward.neighbours.sockets.kube_http import KubeHttpError, KubeRefusedError


class KubeError(NodewardError):
    """Something between us and the API server."""


class KubeConfigError(KubeError):
    """A kubeconfig or the in-cluster files cannot be used."""


class KubeAwayError(KubeError):
    """No answer, or one that says "not now"."""


class KubeDeniedError(KubeError):
    """The credentials or the RBAC rules have to be mended."""


class KubeExpiredError(KubeError):
    """This version or page has expired."""


class KubeMissingError(KubeError):
    """The object does not exist."""


class KubeGarbageError(KubeError):
    """An answer that is not what the API promises."""


def is_expired(code: int, reason: str) -> bool:
    """Whether a Status says that a version has expired."""
    return code == 410 or reason in ("Expired", "Gone")


PODS_RIGHTS = "get, list and watch on pods"


def from_transport(error: KubeHttpError, rights: str = PODS_RIGHTS) -> KubeError:
    """The KubeError that says what to do about `error`; `rights` are those that the request needs."""
    if not isinstance(error, KubeRefusedError):
        return KubeAwayError(str(error))
    if error.status == 401:
        return KubeDeniedError(f"{error}; the token or client certificate is refused: renew it")
    if error.status == 403:
        return KubeDeniedError(f"{error}; allow {rights} (deploy/ has the ClusterRole)")
    if error.status == 404:
        return KubeMissingError(str(error))
    if is_expired(error.status, error.reason):
        return KubeExpiredError(str(error))
    return KubeAwayError(str(error))


@contextmanager
def errors_of(what: str, rights: str = PODS_RIGHTS) -> Iterator[None]:
    """Within it a failed request, and an answer that cannot be read, is a KubeError. `what` names the request."""
    try:
        yield
    except KubeHttpError as error:
        raise from_transport(error, rights) from error
    except WireError as error:
        raise KubeGarbageError(f"{what}: {error}") from error
