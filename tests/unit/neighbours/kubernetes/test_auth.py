"""Where the API server is, what is said when it cannot be used, and what is read of its pods."""

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
import yaml

from nodeward.core.modes import DEFAULT_RESOURCES
from nodeward.core.workload import PodSpec
from nodeward.features.settings import KubeSection
from nodeward.neighbours.formats.kube_objects import StatusObject, decode_pod
from nodeward.neighbours.kubernetes import errors
from nodeward.neighbours.kubernetes.auth import endpoint_of, from_kubeconfig, in_cluster
from nodeward.neighbours.kubernetes.mapping import pod_spec
from nodeward.neighbours.kubernetes.settings import KubeSettings
from nodeward.neighbours.sockets.kube_http import Endpoint, KubeHttpError, KubeRefusedError, KubeTimeoutError

Json = dict[str, object]


def kubeconfig(cluster: Json, user: Json, **top: object) -> str:
    config: Json = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443", **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        **top,
    }
    return json.dumps(config)


def written(folder: Path, text: str) -> Path:
    path = folder / "kubeconfig"
    path.write_text(text)
    return path


def test_a_token_and_a_ca_given_as_data(tmp_path: Path) -> None:
    authority: Json = {"certificate-authority-data": base64.b64encode(b"PEM").decode()}
    path = written(tmp_path, kubeconfig(authority, {"token": "t"}))
    assert from_kubeconfig(path) == Endpoint("https://10.0.0.1:6443", ca_pem="PEM", token="t")


def test_files_are_relative_to_the_kubeconfig_and_stay_files_so_that_they_may_rotate(tmp_path: Path) -> None:
    user: Json = {"client-certificate": "/abs/client.crt", "client-key": "client.key", "tokenFile": "token"}
    cluster: Json = {"certificate-authority": "ca.crt", "tls-server-name": "api"}
    path = written(tmp_path, kubeconfig(cluster, user | {"token": "old"}))
    assert from_kubeconfig(path) == Endpoint(
        "https://10.0.0.1:6443",
        ca_file=str(tmp_path / "ca.crt"),
        client_certificate_file="/abs/client.crt",
        client_key_file=str(tmp_path / "client.key"),
        token_file=str(tmp_path / "token"),
        server_name="api",
    )


def test_verification_ends_only_where_the_file_says_so(tmp_path: Path) -> None:
    assert from_kubeconfig(written(tmp_path, kubeconfig({}, {}))).verify
    assert not from_kubeconfig(written(tmp_path, kubeconfig({"insecure-skip-tls-verify": True}, {}))).verify


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(kubeconfig({}, {"exec": {"command": "x"}}), "users[u].exec", id="exec plugin"),
        pytest.param(kubeconfig({}, {"username": "a", "password": "s3cret"}), "users[u].username", id="password"),
        pytest.param(kubeconfig({}, {"token": 5}), "users[u].token", id="token is a number"),
        pytest.param(kubeconfig({}, {"client-key-data": "s3cret!"}), "users[u].client-key-data", id="not base64"),
        pytest.param(kubeconfig({"server": "10.0.0.1"}, {}), "clusters[c].server", id="no scheme"),
        pytest.param(kubeconfig({"server": None}, {}), "clusters[c].server", id="no server"),
        pytest.param(kubeconfig({}, {}, **{"current-context": "gone"}), "there is: here", id="unknown context"),
        pytest.param(kubeconfig({}, {}, **{"current-context": ""}), "use-context", id="no context"),
        pytest.param(kubeconfig({}, {}, users=[]), "users[u]", id="no user"),
        pytest.param(kubeconfig({}, {}, clusters="text"), "clusters[c]", id="clusters is text"),
        pytest.param("a: [", "line 1", id="not YAML"),
        pytest.param("- a", "no mapping", id="a list"),
        pytest.param("a: &x 1\nb: *x", "aliases", id="aliases"),
        pytest.param("token: s3cret\x00", "not YAML", id="binary"),
    ],
)
def test_a_wrong_kubeconfig_says_what_where_and_no_secret(tmp_path: Path, text: str, says: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(errors.KubeConfigError) as caught:
        from_kubeconfig(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_kubeconfig_that_is_not_there_says_which_setting(tmp_path: Path) -> None:
    with pytest.raises(errors.KubeConfigError, match=r"kube\.kubeconfig"):
        from_kubeconfig(tmp_path / "none")


def test_in_cluster_uses_the_service_account(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("c")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert in_cluster(environ, str(tmp_path)) == Endpoint(
        "https://[fd00::1]:443", ca_file=str(tmp_path / "ca.crt"), token_file=str(tmp_path / "token")
    )


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        pytest.param({}, "KUBERNETES_SERVICE_HOST", id="no pod"),
        pytest.param({}, r"a host without API server: set kube\.enabled to false", id="no API server at all"),
        pytest.param(
            {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"}, "service account", id="no token"
        ),
    ],
)
def test_not_in_a_cluster_says_how_to_mend(tmp_path: Path, environ: dict[str, str], says: str) -> None:
    with pytest.raises(errors.KubeConfigError, match=says):
        in_cluster(environ, str(tmp_path))


def test_the_settings_choose_url_then_kubeconfig_then_cluster(tmp_path: Path) -> None:
    path = str(written(tmp_path, kubeconfig({}, {})))
    plain = KubeSection(url="http://127.0.0.1:8001/", token_file="/t", kubeconfig=path)
    assert endpoint_of(plain, {}) == Endpoint("http://127.0.0.1:8001", token_file="/t")
    assert endpoint_of(KubeSection(kubeconfig=path), {}).base_url == "https://10.0.0.1:6443"
    with pytest.raises(errors.KubeConfigError, match="no API server"):
        endpoint_of(KubeSection(), {})


@pytest.mark.parametrize(
    ("node", "watch_s", "silence_s"),
    [("", 240, 270.0), ("a,b", 240, 270.0), ("n", 0, 270.0), ("n", 240, 240.0)],
    ids=["no node", "selector in the node's name", "no watch", "silence within the watch"],
)
def test_settings_that_cannot_work_are_refused(node: str, watch_s: int, silence_s: float) -> None:
    with pytest.raises(errors.KubeConfigError):
        KubeSettings(endpoint=Endpoint("http://x"), node_name=node, watch_s=watch_s, watch_silence_s=silence_s)


def refused(status: int, reason: str = "") -> KubeRefusedError:
    return KubeRefusedError("GET /x", status, StatusObject(status, reason, "said so"))


@pytest.mark.parametrize(
    ("error", "expected", "says"),
    [
        pytest.param(refused(401), errors.KubeDeniedError, "renew", id="401"),
        pytest.param(refused(403), errors.KubeDeniedError, "list and watch", id="403"),
        pytest.param(refused(404), errors.KubeMissingError, "said so", id="404"),
        pytest.param(refused(410), errors.KubeExpiredError, "said so", id="410"),
        pytest.param(refused(400, "Expired"), errors.KubeExpiredError, "Expired", id="Expired by reason"),
        pytest.param(refused(429), errors.KubeAwayError, "429", id="429"),
        pytest.param(refused(503), errors.KubeAwayError, "503", id="503"),
        pytest.param(refused(302), errors.KubeAwayError, "302", id="a redirect is not followed"),
        pytest.param(KubeTimeoutError("slow"), errors.KubeAwayError, "slow", id="time-out"),
    ],
)
def test_a_failure_says_what_to_do(error: KubeHttpError, expected: type[errors.KubeError], says: str) -> None:
    found = errors.from_transport(error)
    assert type(found) is expected
    assert says in str(found)


NAMES: Json = {"name": "a", "namespace": "ns", "uid": "u"}


@dataclass(frozen=True, slots=True)
class Case:
    case: str
    then: Json
    containers: list[Json] | None = None
    init_containers: list[Json] | None = None
    ephemeral_containers: list[Json] | None = None
    spec: Json = field(default_factory=dict)
    status: Json = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    table: dict[str, str] = field(default_factory=lambda: dict(DEFAULT_RESOURCES))

    def pod(self) -> bytes:
        lists = {
            "initContainers": self.init_containers,
            "containers": self.containers,
            "ephemeralContainers": self.ephemeral_containers,
        }
        spec = {key: rows for key, rows in lists.items() if rows is not None} | self.spec
        metadata = {**NAMES, "annotations": self.annotations}
        return json.dumps({"metadata": metadata, "spec": spec, "status": self.status}).encode()


TOLD = yaml.safe_load(Path(__file__).with_name("pods.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", msgspec.convert(TOLD, list[Case]), ids=lambda case: case.case)
def test_what_the_model_says_of_a_pod_is(case: Case) -> None:
    assert pod_spec(decode_pod(case.pod()), case.table) == msgspec.convert(NAMES | case.then, PodSpec)
