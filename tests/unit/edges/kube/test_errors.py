"""Each refusal of the API server is the error that says what to do about it."""

import pytest

from nodeward.edges.kube.errors import (
    KubeAwayError,
    KubeDeniedError,
    KubeError,
    KubeExpiredError,
    KubeMissingError,
    from_transport,
)
from nodeward.transport.kube_http import KubeHttpError, KubeRefusedError, KubeTimeoutError
from nodeward.wire.kube_objects import StatusObject


def refused(status: int, reason: str = "") -> KubeRefusedError:
    return KubeRefusedError("GET /x", status, StatusObject(status, reason, "said so"))


@pytest.mark.parametrize(
    ("error", "expected", "says"),
    [
        pytest.param(refused(401), KubeDeniedError, "renew", id="401"),
        pytest.param(refused(403), KubeDeniedError, "list and watch", id="403"),
        pytest.param(refused(404), KubeMissingError, "said so", id="404"),
        pytest.param(refused(410), KubeExpiredError, "said so", id="410"),
        pytest.param(refused(400, "Expired"), KubeExpiredError, "Expired", id="Expired by reason"),
        pytest.param(refused(429), KubeAwayError, "429", id="429"),
        pytest.param(refused(503), KubeAwayError, "503", id="503"),
        pytest.param(refused(302), KubeAwayError, "302", id="a redirect is not followed"),
        pytest.param(KubeTimeoutError("slow"), KubeAwayError, "slow", id="time-out"),
    ],
)
def test_a_failure_says_what_to_do(error: KubeHttpError, expected: type[KubeError], says: str) -> None:
    found = from_transport(error)
    assert type(found) is expected
    assert says in str(found)
