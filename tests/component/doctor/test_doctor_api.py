"""`nodeward doctor` before an API server double, and before one that somebody else wrote."""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from nodeward.core.finding import Access
from nodeward.features.settings import KubeSection, Settings
from nodeward.host.clock import SystemClock
from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.kubernetes import cluster
from nodeward.people.doctor.run import Diagnosis, diagnose
from nodeward_sim.doubles.apiserver import ApiServer
from tests.component.doctor.hosts import around, bad, codes, host
from tests.component.kubernetes.support import HandClock, answering, make_ca, make_leaf, openssl
from tests.rigs.stories import told_in


def asked(files: HostFiles, kube: KubeSection, clock: SystemClock | HandClock | None = None) -> Diagnosis:
    settings = Settings(node_name="n1", kube=kube)
    return diagnose(settings, replace(around(files), clock=clock or SystemClock()))


Answer = Callable[[web.Request], Awaitable[web.Response]]


def by_path(answers: Mapping[str, object]) -> Answer:
    async def answer(request: web.Request) -> web.Response:
        found = answers[request.path]
        return web.Response(status=found, text="{}") if isinstance(found, int) else web.json_response(found)

    return answer


async def asked_of(answer: Answer, files: HostFiles, events: bool = True) -> Diagnosis:
    """The same, of an API server that answers so."""
    async with answering(answer) as url:
        return await asyncio.to_thread(asked, files, KubeSection(url=url, events=events))


def api() -> ApiServer:
    return ApiServer(tokens=("good",))


@pytest.mark.parametrize(
    ("token", "refuse", "access"),
    [
        ("good", 0, Access.OK),
        ("bad", 0, Access.DENIED),
        ("good", 403, Access.DENIED),
        ("good", 500, Access.UNREACHABLE),
    ],
    ids=["ok", "401", "403", "500"],
)
@told_in(api)
async def test_how_the_api_server_answers_is_told(
    server: ApiServer, tmp_path: Path, token: str, refuse: int, access: Access
) -> None:
    (tmp_path / "token").write_text(token)
    files = host(tmp_path / "host")
    if refuse:
        server.faults.refuse.append(refuse)
    kube = KubeSection(url=server.url, token_file=str(tmp_path / "token"))
    found = await asyncio.to_thread(asked, files, kube)
    assert found.facts.api.access is access
    assert (bad(found) == []) == (access is Access.OK)
    assert found.facts.api.behind_s is not None
    assert abs(found.facts.api.behind_s) < 60
    assert token not in found.facts.api.detail.split()
    assert all("; " not in one.what for one in found.findings if one.code == "api-denied")


@told_in(api)
async def test_a_clock_that_is_far_off_is_seen_by_the_servers_date(server: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("good")
    files = host(tmp_path / "host")
    kube = KubeSection(url=server.url, token_file=str(tmp_path / "token"))
    found = await asyncio.to_thread(asked, files, kube, HandClock())  # in 1970
    assert bad(found) == ["clock-skew"]


@told_in(api)
async def test_an_api_server_that_hangs_is_given_up_in_time(server: ApiServer, tmp_path: Path) -> None:
    files = host(tmp_path)
    server.faults.hang = True
    found = await asyncio.to_thread(asked, files, KubeSection(url=server.url))
    assert bad(found) == ["api-unreachable"]


@pytest.mark.parametrize(
    ("kube", "expected"),
    [
        (KubeSection(url="http://127.0.0.1:1"), "api-unreachable"),
        (KubeSection(), "api-config"),
        (KubeSection(kubeconfig="/nowhere/config"), "api-config"),
        (KubeSection(url="http://127.0.0.1:1", token_file="/nowhere/token"), "api-config"),
    ],
    ids=["refused", "no-pod", "no-kubeconfig", "no-token-file"],
)
def test_no_way_to_the_api_server_is_told(tmp_path: Path, kube: KubeSection, expected: str) -> None:
    found = asked(host(tmp_path), kube)
    assert bad(found) == [expected]
    (one,) = (one for one in found.findings if one.code == expected)
    assert "; " not in one.what  # the remedy is said once, and as that


async def test_an_expired_certificate_is_told_as_one(tmp_path: Path) -> None:
    make_ca(tmp_path, "ca")
    make_leaf(tmp_path, "server", "ca")
    openssl(
        "x509", "-req", "-in", str(tmp_path / "server.csr"), "-days", "-1", "-CA", str(tmp_path / "ca.crt"),
        "-CAkey", str(tmp_path / "ca.key"), "-CAcreateserial", "-extfile", str(tmp_path / "server.ext"),
        "-out", str(tmp_path / "server.crt"),
    )  # fmt: skip
    files = host(tmp_path / "host")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    server = await ApiServer().start(tls=tls)
    try:
        kube = KubeSection(url=server.url, ca_file=str(tmp_path / "ca.crt"))
        found = await asyncio.to_thread(asked, files, kube)
        assert bad(found) == ["api-certificate"]
        assert "expired" in found.facts.api.detail
    finally:
        await server.stop()


HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
DAEMON_SETS = "/apis/apps/v1/daemonsets"
INTELS = {"webhooks": [{"name": "sgx.mutator.webhooks.intel.com", "clientConfig": {"caBundle": "x"}}]}
NAMES: dict[str, object] = {
    "/api/v1/pods": {"metadata": {"resourceVersion": "1"}, "items": []},
    HOOKS: {"items": [INTELS, {}]},
    BINDINGS: {"items": []},
    DAEMON_SETS: {"items": [{"metadata": {"name": "nri-sgx-epc", "namespace": "kube-system"}}]},
}


async def test_others_in_the_cluster_are_found_by_their_names(tmp_path: Path) -> None:
    found = await asked_of(by_path(NAMES), host(tmp_path))
    assert bad(found) == ["intel-sgx-webhook", "sgx-epc"]
    assert "DaemonSet kube-system/nri-sgx-epc" in [finding.where for finding in found.findings]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda: web.Response(status=403, text="{}"), "does not let this user read"),
        (lambda: web.Response(status=503, text="{}"), "daemonsets: 503"),
        (lambda: web.Response(text="{"), "not one that can be read"),
        (lambda: web.Response(body=b" " * (cluster.MAX_BYTES + 1)), "a body of more than"),
    ],
    ids=["may-not", "busy", "no-json", "huge"],
)
async def test_why_a_list_was_not_had_is_told_as_it_was(
    tmp_path: Path, answer: Callable[[], web.Response], why: str
) -> None:
    """Only a user who may not list is sent for an administrator's kubeconfig."""

    async def answered(request: web.Request) -> web.Response:
        return answer() if request.path == DAEMON_SETS else await by_path(NAMES)(request)

    found = await asked_of(answered, host(tmp_path))
    assert bad(found) == ["intel-sgx-webhook"]
    (finding,) = (one for one in found.findings if one.code == "cluster-not-looked-at")
    assert "DaemonSets" in finding.what
    assert why in finding.what
    assert ("administrator" in finding.remedy) == (why == "does not let this user read")


SHIPPED = Path(__file__).resolve().parents[3] / "deploy"
CONFIG_MAP = "/api/v1/namespaces/nodeward-system/configmaps/nodeward-policies"


def manifests(folder: str, kind: str) -> dict[str, object]:
    texts = (path.read_text() for path in sorted((SHIPPED / folder).glob("*.yaml")))
    objects = (one for text in texts for one in yaml.safe_load_all(text))
    return {"items": [one for one in objects if one and one.get("kind") == kind]}


@pytest.mark.parametrize(
    ("bundle", "config_map", "expected"),
    [
        ("eA==", 200, []),
        ("", 200, ["webhook-no-ca"]),
        (None, 200, ["webhook-no-ca"]),
        ("eA==", 404, ["policies-no-parameters"]),
        ("eA==", 403, []),
    ],
    ids=["whole", "empty-ca", "no-ca", "no-parameters", "may-not-read-them"],
)
async def test_what_is_shipped_for_the_cluster_and_is_there_by_half_is_told(
    tmp_path: Path, bundle: str | None, config_map: int, expected: list[str]
) -> None:
    """Given the webhook's configuration and the policies of `deploy` in an API server, when nobody has put the
    authority in, or the ConfigMap is not there, then no pod with EPC, or none at all, could be made, and it is said."""
    hooks = manifests("webhook", "MutatingWebhookConfiguration")
    if bundle is not None:
        hooks = json.loads(
            json.dumps(hooks).replace('"clientConfig": {', f'"clientConfig": {{"caBundle": "{bundle}", ')
        )
    bindings = manifests("policies", "ValidatingAdmissionPolicyBinding")
    answers = NAMES | {HOOKS: hooks, BINDINGS: bindings, DAEMON_SETS: {}, CONFIG_MAP: config_map}
    asked_for: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked_for.append(request.path)
        return await by_path(answers)(request)

    found = await asked_of(answer, host(tmp_path))
    assert bad(found) == expected
    assert ("webhook" in codes(found)) == ("webhook-no-ca" not in expected)
    assert asked_for.count(CONFIG_MAP) == 1
    unseen = [one.what for one in found.findings if one.code == "cluster-not-looked-at"]
    refused = "the API server does not let this user read the ConfigMap nodeward-system/nodeward-policies"
    assert [what.split(",")[0] for what in unseen] == [refused] * (config_map == 403)


CONTAINERD = """
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata-qemu]
runtime_type = "io.containerd.kata-qemu.v2"
pod_annotations = ["io.katacontainers.*"]
options = {ConfigPath = "/opt/kata/configuration.toml"}
"""
KATA = """
[hypervisor.qemu]
default_memory = 2048
[runtime]
sandbox_cgroup_only = true
"""


@pytest.mark.parametrize(
    ("fixed", "shipped", "expected"),
    [
        ({"memory": "320Mi"}, True, ["kata-overhead-small"]),
        ({"memory": "320Mi"}, False, ["kata-annotation-passes", "kata-overhead-small"]),
        ({"cpu": "250m"}, True, ["kata-no-overhead"]),
        ({"memory": "2Ti"}, True, []),
        ({"memory": "320MiB"}, True, []),
    ],
    ids=["too-small", "no-policy", "none", "enough", "no-quantity"],
)
async def test_the_configuration_of_kata_is_held_against_the_runtime_classes(
    tmp_path: Path, fixed: dict[str, str], shipped: bool, expected: list[str]
) -> None:
    bindings = manifests("policies", "ValidatingAdmissionPolicyBinding") if shipped else {"items": []}
    kata = {"metadata": {"name": "kata"}, "handler": "kata-qemu", "overhead": {"podFixed": fixed}}
    classes = {"items": [{"metadata": {"name": "runc"}, "handler": "runc"}, kata]}
    more = {BINDINGS: bindings, DAEMON_SETS: {}, "/apis/node.k8s.io/v1/runtimeclasses": classes, CONFIG_MAP: {}}
    files = {"etc/containerd/config.toml": CONTAINERD, "opt/kata/configuration.toml": KATA}
    found = await asked_of(by_path(NAMES | {HOOKS: {}} | more), host(tmp_path, **files))

    assert bad(found) == expected
    assert ("cluster-not-looked-at" in codes(found)) == (fixed == {"memory": "320MiB"})


@told_in(api)
async def test_an_api_server_that_is_too_old_for_policies_lacks_none(server: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("good")
    kube = KubeSection(url=server.url, token_file=str(tmp_path / "token"))
    found = await asyncio.to_thread(asked, host(tmp_path / "host"), kube)
    assert found.facts.api.no_parameters == ()
    assert "policies' bindings" not in [one.what for one in found.facts.api.unlisted]


@pytest.mark.parametrize(
    ("refused", "answers", "wanted", "expected"),
    [
        ((), "", True, ()),
        (("create", "patch"), "", True, ("create", "patch")),
        (("patch",), "", True, ("patch",)),
        (("create", "patch"), "", False, ()),
        ((), "{", True, None),
        ((), '{"status":{"allowed":"yes"}}', True, None),
        ((), " " * 70_000 + '{"status":{"allowed":true}}', True, None),
    ],
    ids=["may", "may-not", "no-patch", "not-wanted", "no-json", "no-boolean", "huge"],
)
async def test_the_right_to_make_events_is_asked_for_and_not_tried(
    tmp_path: Path, refused: tuple[str, ...], answers: str, wanted: bool, expected: tuple[str, ...] | None
) -> None:
    posted: list[tuple[str, str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        if request.method == "GET":
            return await by_path(NAMES)(request)
        assert request.path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        asked = (await request.json())["spec"]["resourceAttributes"]
        posted.append((asked["verb"], asked["group"], asked["resource"]))
        allowed = json.dumps({"status": {"allowed": asked["verb"] not in refused}})
        return web.Response(status=201, text=answers or allowed)

    found = await asked_of(answer, host(tmp_path), wanted)

    assert found.facts.api.no_events == expected
    assert ("events-denied" in bad(found)) == bool(expected)
    assert ("events-not-looked-at" in codes(found)) == (expected is None)
    assert all(one[1:] == ("events.k8s.io", "events") for one in posted)
    assert bool(posted) == wanted


def test_an_address_with_a_password_is_refused_without_showing_it(tmp_path: Path) -> None:
    found = asked(host(tmp_path), KubeSection(url="https://me:hunter2@api:6443"))

    assert bad(found) == ["api-config"]
    assert not any("hunter2" in finding.what for finding in found.findings)
