"""The chart and the kustomizations, by Helm and kustomize themselves, on a real kube-apiserver.

tests/vm/chart_cases.py has the chart's pods start and enforce. Here: every switch renders, to what deploy ships and the
API server takes; a second release, unknown values, an upgrade and a rollback.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest
import yaml

from tests.pages import ROOT, of_page
from tests.patience import scaled
from tests.peers.find import require
from tests.peers.kube import running_apiserver
from tests.peers.kubeclient import MERGE, KubeClient
from tests.peers.kubelet import Api, kubeconfig
from tests.peers.nriside import Record, member

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "chart" / "nodeward"
OURS = ("app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "helm.sh/chart")
PARTS = {
    "node": "node.enabled=true",
    "exporter": "node.enabled=false,exporter.enabled=true",
    "webhook": "node.enabled=false,webhook.enabled=true",
    "policies": "node.enabled=false,policies.enabled=true",
    "agent": "node.enabled=false,agent.enabled=true",
}
SWITCHES = (
    *(
        "node.keys",
        "node.sandboxes",
        "node.quotes",
        "node.nfd",
        "node.claims",
        "node.nodeEpc",
        "node.policyObjects",
        "node.topologyObjects",
    ),
    *("node.hostNetwork", "policies.enabled", "policies.kata", "agent.enabled", "webhook.enabled"),
    *("webhook.intelResources", "webhook.noderesources"),
)
WITHIN_S = scaled(60.0)


@dataclass(frozen=True, slots=True)
class Helm:
    folder: Path

    def run(self, *words: str) -> tuple[int, str, str]:
        """Helm's words; or one text, a command as a page has it."""
        places = {f"HELM_{name}_HOME": str(self.folder) for name in ("CACHE", "CONFIG", "DATA")}
        path = f"{require('helm') / 'bin'}:{os.environ['PATH']}"
        environment = {**os.environ, **places, "PATH": path, "KUBECONFIG": str(self.folder / "kubeconfig")}
        command = ["helm", *words] if len(words) != 1 else ["bash", "-c", *words]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=WITHIN_S)
        return done.returncode, done.stdout, done.stderr

    def said(self, *words: str) -> str:
        code, said, why = self.run(*words)
        assert code == 0, f"{words}: {said}{why}"
        return said

    def rendered(self, *sets: str) -> dict[tuple[str, str], Record]:
        flags = [word for one in sets for word in ("--set", one)]
        text = self.said("template", "nw", str(CHART), "--namespace", "nw", "--kube-version", "1.37.0", *flags)
        return named(yaml.safe_load_all(text))


def named(objects: Iterator[object]) -> dict[tuple[str, str], Record]:
    found: dict[tuple[str, str], Record] = {}
    for one in objects:
        if isinstance(one, dict):
            found[
                str(one["kind"]), f"{member(one, 'metadata', 'namespace') or ''}/{member(one, 'metadata', 'name')}"
            ] = one
    return found


def kustomized(part: str) -> dict[tuple[str, str], Record]:
    command = [str(require("helm") / "bin/kustomize"), "build", str(DEPLOY / part)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S)
    assert done.returncode == 0, done.stderr
    return named(yaml.safe_load_all(done.stdout))


def plain(one: Record) -> object:
    text = yaml.safe_dump(one)
    bare = yaml.safe_load(text.replace("nodeward-system", "nw").replace("namespace: nodeward\n", "namespace: nw\n"))
    labels = bare["metadata"].get("labels") or {}
    bare["metadata"]["labels"] = {name: said for name, said in labels.items() if name not in OURS}
    if bare["kind"] == "ConfigMap" and "nodeward.yaml" in bare["data"]:
        bare["data"] = yaml.safe_load(bare["data"]["nodeward.yaml"])
    if "template" in bare.get("spec", {}):
        bare["spec"]["template"]["metadata"].pop("annotations", None)
        for container in bare["spec"]["template"]["spec"]["containers"]:
            container.pop("imagePullPolicy", None)
    return bare


@pytest.fixture(name="helm", scope="module")
def _helm() -> Iterator[Helm]:
    with tempfile.TemporaryDirectory(prefix="nwh") as folder:
        yield Helm(Path(folder))


@pytest.mark.parametrize("part", PARTS)
def test_the_chart_is_the_shipped_manifests(helm: Helm, part: str) -> None:
    ours = {key: plain(one) for key, one in helm.rendered(PARTS[part]).items()}
    shipped = {key: plain(one) for key, one in kustomized(part).items() if key[0] != "Namespace"}
    moved = {
        (kind, "/".join(("nw" if space.startswith("nodeward") else space, name))): one
        for (kind, whole), one in shipped.items()
        for space, name in [whole.split("/")]
    }
    assert ours == moved


@pytest.mark.parametrize(
    ("value", "port", "probe"),
    [
        ("node.settings.metrics.listen=:9800", 9800, "httpGet"),
        ("node.settings.metrics.listen=127.0.0.1:9743", 9743, "exec"),
        ("node.settings.metrics.enabled=false", 9743, "exec"),
    ],
)
def test_the_probe_goes_where_metrics_are_else_it_runs_the_command(
    helm: Helm, value: str, port: int, probe: str
) -> None:
    made = helm.rendered(value)["DaemonSet", "nw/nodeward-node"]
    containers = member(made, "spec", "template", "spec", "containers")
    assert isinstance(containers, list)
    (node,) = containers
    assert isinstance(node, dict)
    assert member(node, "readinessProbe", probe) is not None
    assert node["ports"] == [{"name": "metrics", "containerPort": port}]


PLACED = """
node:
  settings: {metrics: {enabled: false}}
  pod:
    nodeSelector: {feature.node.kubernetes.io/cpu-security.sgx.enabled: "true"}
    affinity: {nodeAffinity: {}}
    tolerations: []
    resources: {limits: {memory: 1Gi}}
    imagePullSecrets: [{name: registry}]
    priorityClassName: mine
    updateStrategy: {type: OnDelete}
    annotations: {a: b}
    labels: {team: nodes, app.kubernetes.io/name: other}
"""


def test_pods_run_where_the_values_say(helm: Helm) -> None:
    (helm.folder / "placed.yaml").write_text(PLACED)
    whole = helm.said("template", "nw", str(CHART), "--kube-version", "1.37.0", "-f", str(helm.folder / "placed.yaml"))
    (made,) = [one for one in yaml.safe_load_all(whole) if one and one["kind"] == "DaemonSet"]
    template, spec = made["spec"]["template"], made["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {
        "feature.node.kubernetes.io/cpu-security.sgx.enabled": "true",
        "kubernetes.io/os": "linux",
    }
    assert (spec["affinity"], spec["tolerations"], spec["priorityClassName"]) == ({"nodeAffinity": {}}, [], "mine")
    assert (spec["imagePullSecrets"], made["spec"]["updateStrategy"]) == ([{"name": "registry"}], {"type": "OnDelete"})
    assert spec["containers"][0]["resources"] == {"limits": {"memory": "1Gi"}}
    assert template["metadata"]["annotations"].keys() == {"a", "nodeward.io/settings"}
    labels = template["metadata"]["labels"]
    assert labels == {**made["spec"]["selector"]["matchLabels"], "team": "nodes"}, "the selector finds its pods"


def test_an_older_api_server_is_sent_no_policy(helm: Helm) -> None:
    switches = [word for one in ("claims", "nodeEpc", "nfd") for word in ("--set", f"node.{one}=true")]
    for version, there in (("1.29.0", False), ("1.30.0", True)):
        whole = helm.said("template", "nw", str(CHART), "--kube-version", version, *switches)
        assert ("ValidatingAdmissionPolicy" in whole) is there


def test_lint_and_the_schema_of_today(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm.said("lint", str(CHART), "--kube-version", "1.37.0")
    loader = SourceFileLoader("generate_chart_schema", str(ROOT / "scripts/generate-chart-schema"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    script = module_from_spec(spec)
    loader.exec_module(script)
    assert (CHART / "values.schema.json").read_text() == script.made(), "run scripts/generate-chart-schema"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("nod.enabled=true", "additional properties 'nod' not allowed"),
        ("node.settings.limts.mode=x", "additional properties 'limts' not allowed"),
        ("node.settings.limits.mode=enforced", "value must be one of"),
        ("node.enabled=maybe", "want boolean"),
        ("node.pod.nodeSelectr.a=b", "additional properties 'nodeSelectr' not allowed"),
        ("node.pod.tolerations=all", "want array"),
        ("exporter.enabled=true", "node.enabled and exporter.enabled are both true"),
    ],
)
def test_a_value_that_cannot_be_is_named(helm: Helm, value: str, why: str) -> None:
    code, _, said = helm.run("template", "nw", str(CHART), "--kube-version", "1.37.0", "--set", value)
    assert (code, why in said) == (1, True), said


@pytest.fixture(name="cluster", scope="module")
def _cluster(helm: Helm) -> Iterator[KubeClient]:
    with tempfile.TemporaryDirectory(prefix="nwk") as folder, running_apiserver(Path(folder)) as server:
        (helm.folder / "kubeconfig").write_text(kubeconfig(Api(server.base_url, server.ca_file, server.token)))
        yield KubeClient(server.base_url, server.ca_file, server.token)


def settings_of(client: KubeClient) -> Mapping[str, object]:
    found = client.call("GET", "/api/v1/namespaces/nw/configmaps/nodeward-node")
    return dict(yaml.safe_load(str(member(found, "data", "nodeward.yaml"))))


def test_install_a_second_one_upgrade_rollback_and_uninstall(helm: Helm, cluster: KubeClient) -> None:
    """With every switch on; the API server takes each object."""
    switches = [word for one in SWITCHES for word in ("--set", f"{one}=true")]
    there = ("--namespace", "nw", "--create-namespace", "--set", "webhook.certManager=false")
    notes = helm.said("install", "one", str(CHART), *there, *switches)
    assert "kubectl rollout status -n nw daemonset/nodeward-node" in notes
    assert "Limits are observed." in notes
    code, _, why = helm.run("install", "two", str(CHART), "--namespace", "other", "--create-namespace")
    assert (code, "Nodeward is installed already, as release one in namespace nw" in why) == (1, True), why
    before = settings_of(cluster)
    more = ("--reuse-values", "--set", "node.settings.limits.mode=enforce")
    assert "Limits are enforced." in helm.said("upgrade", "one", str(CHART), "--namespace", "nw", *more)
    assert settings_of(cluster) == {**before, "limits": {"mode": "enforce"}}
    helm.said("rollback", "one", "1", "--namespace", "nw")
    assert settings_of(cluster) == before
    helm.said("uninstall", "one", "--namespace", "nw")
    assert cluster.find("/apis/apps/v1/namespaces/nw/daemonsets/nodeward-node") is None


def test_the_commands_of_the_page_in_their_order(helm: Helm, cluster: KubeClient) -> None:
    """No kubelet runs here: the test tells the API server that the DaemonSet's pods are ready."""
    where = "/apis/apps/v1/namespaces/nodeward/daemonsets/nodeward-node"
    helm.said(of_page("chart.md", "helm install"))
    helm.said(of_page("chart.md", "kubectl label namespace"))
    ready: Record = dict.fromkeys(("desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable"), 1)
    counts: Record = {"currentNumberScheduled": 1, "numberMisscheduled": 0, "numberReady": 1, "observedGeneration": 1}
    cluster.call("PATCH", f"{where}/status", {"status": ready | counts}, MERGE)
    assert "successfully rolled out" in helm.said(of_page("chart.md", "kubectl rollout status"))
    helm.said(of_page("chart.md", "helm upgrade nodeward deploy/chart/nodeward -n nodeward --reuse-values"))
    helm.said(
        of_page("chart.md", "helm upgrade nodeward deploy/chart/nodeward -n nodeward --reuse-values --set node.k")
    )
    helm.said(of_page("chart.md", "helm rollback"))
    helm.said(of_page("chart.md", "helm uninstall"))
    assert cluster.find(where) is None
