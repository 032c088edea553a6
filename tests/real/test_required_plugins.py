"""Fail closed on a real containerd: NRI's default validator with Nodeward among the required plugins.

What an operator is told about it (docs/limits.md, docs/webhook.md) was seen here, sentence by sentence: what is
refused while the plugin is away and with which words, what is exempt, and the gap that stays.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from nodeward.features.admission.notes import required
from tests.peers.containerd import IMAGE, Containerd, NriOptions
from tests.peers.cri import Cri, container_config, remove_pod, start
from tests.peers.daemon import WITHIN_S, daemon, until
from tests.peers.nriside import Record, text
from tests.rigs.containers import a_containerd, pod_of

TOLERATE = "tolerate-missing-plugins.example.com"
REFUSED = 'required plugin "nodeward" not present'


@pytest.fixture(name="containerd", scope="module")
def _containerd() -> Iterator[Containerd]:
    """A containerd that creates no container without Nodeward, with a short patience for plugins."""
    strict = NriOptions(required_plugins=("nodeward",), tolerate=TOLERATE, request_timeout_s=1.0)
    with a_containerd(strict) as runtime:
        yield runtime


@pytest.fixture(name="cri")
def _cri(containerd: Containerd) -> Iterator[Cri]:
    with kubelet(containerd) as cri:
        yield cri


@contextmanager
def kubelet(containerd: Containerd) -> Iterator[Cri]:
    with containerd.cri() as cri:
        yield cri
        listed = cri.call("ListPodSandbox").get("items", [])
        for pod in listed if isinstance(listed, list) else []:
            assert isinstance(pod, dict)
            remove_pod(cri, text(pod, "id"))


def outcome(cri: Cri, config: Record) -> str:
    try:
        start(cri, config, container_config("app", IMAGE))
    except grpc.RpcError as error:
        return str(error)
    return ""


def test_nothing_is_created_while_the_daemon_is_away_and_all_is_when_it_is_there(
    containerd: Containerd, cri: Cri
) -> None:
    assert REFUSED in outcome(cri, pod_of(containerd, "early"))
    with tempfile.TemporaryDirectory(prefix="nwd") as own, daemon(containerd.nri_socket, Path(own)) as node:
        until(lambda: containerd.synchronized("90-nodeward") == 1, "containerd calls the daemon")
        sandbox, container = start(cri, pod_of(containerd, "served"), container_config("app", IMAGE))
        assert node.containers() == {container}
        assert node.process is not None
        node.process.kill()
        node.process.wait(timeout=WITHIN_S)
        assert REFUSED in outcome(cri, pod_of(containerd, "late"))
        status = cri.call("ContainerStatus", {"container_id": container})["status"]
        assert isinstance(status, dict)
        assert status["state"] == "CONTAINER_RUNNING", "what ran goes on"
        assert sandbox


@pytest.mark.parametrize(
    ("annotations", "refused"),
    [
        pytest.param({TOLERATE: "true"}, False, id="the whole pod is exempt"),
        pytest.param({f"{TOLERATE}/pod": "true"}, False, id="the whole pod is exempt, in the long form"),
        pytest.param({f"{TOLERATE}/container.app": "true"}, False, id="this container is exempt"),
        pytest.param({f"{TOLERATE}/container.other": "true"}, True, id="another container is exempt"),
        pytest.param({TOLERATE: "false"}, True, id="exempt: false"),
        pytest.param({"tolerate-missing-plugins.other.com": "true"}, True, id="an annotation nobody has named"),
    ],
)
def test_who_is_exempt_starts_without_the_daemon(
    containerd: Containerd, cri: Cri, annotations: Record, refused: bool
) -> None:
    told = outcome(cri, pod_of(containerd, "exempt", annotations=annotations))
    assert (REFUSED in told) is refused
    assert refused or told == ""


def test_only_a_pod_with_the_webhooks_annotation_needs_the_daemon_where_the_runtimes_list_is_empty() -> None:
    written: Record = dict(required({}, "nodeward", []))
    assert written == {"required-plugins.noderesource.dev": '["nodeward"]'}
    with a_containerd(NriOptions(required_plugins=())) as runtime, kubelet(runtime) as cri:
        assert REFUSED in outcome(cri, pod_of(runtime, "limited", annotations=written))
        assert outcome(cri, pod_of(runtime, "other")) == ""
        with tempfile.TemporaryDirectory(prefix="nwd") as own, daemon(runtime.nri_socket, Path(own)) as node:
            until(lambda: runtime.synchronized("90-nodeward") == 1, "containerd calls the daemon")
            _, container = start(cri, pod_of(runtime, "served", annotations=written), container_config("app", IMAGE))
            assert container in node.containers()
