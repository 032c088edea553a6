"""The chart and the kustomizations, by Helm and kustomize themselves, on a real kube-apiserver.

tests/vm/chart_cases.py has the chart's pods start and enforce. Here: every switch renders, to what deploy ships and the
API server takes; a second release, unknown values, an upgrade and a rollback.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeward.core.modes import Mode
from nodeward.features.settings import Settings
from nodeward.settings import load
from tests.pages import ROOT, of_page, typed
from tests.patience import scaled
from tests.peers.daemon import until
from tests.peers.find import require
from tests.peers.kube import running_apiserver
from tests.peers.kubeclient import MERGE, KubeClient
from tests.peers.kubelet import Api, kubeconfig
from tests.peers.nriside import Record, member
from tests.rigs.cluster import define

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
        f"features.{name}=enforce"
        for name in ("limits", "cpus", "keys", "keyClaims", "epcClaims", "cpuClaims", "quotes")
    ),
    *(f"features.{name}=enforce" for name in ("sandboxes", "sizing", "gate")),
    *(f"features.{name}=true" for name in ("podApi", "policyObjects", "podResources")),
    *(f"features.{name}=true" for name in ("topologyObjects", "kubevirtLabel")),
    *("features.devices=plugin", "node.quotesGroup=77"),
    *(f"{name}=true" for name in ("node.hostNetwork", "policies.enabled", "policies.kata", "agent.enabled")),
    *(f"webhook.{name}=true" for name in ("enabled", "intelResources", "noderesources")),
    "webhook.certManager=false",
)
"""Everything on, but nodeEpc, which cannot be with epcClaims."""
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

    def rendered(self, *sets: str, file: Path = CHART / "values.yaml") -> dict[tuple[str, str], Record]:
        flags = ["-f", str(file), *(word for one in sets for word in ("--set", one))]
        text = self.said("template", "nw", str(CHART), "--namespace", "nw", "--kube-version", "1.37.0", *flags)
        return named(yaml.safe_load_all(text))

    def by_file(self, text: str) -> dict[tuple[str, str], Record]:
        (self.folder / "values.yaml").write_text(text)
        return self.rendered(file=self.folder / "values.yaml")


def named(objects: Iterator[object]) -> dict[tuple[str, str], Record]:
    found: dict[tuple[str, str], Record] = {}
    for one in objects:
        if isinstance(one, dict):
            found[
                str(one["kind"]), f"{member(one, 'metadata', 'namespace') or ''}/{member(one, 'metadata', 'name')}"
            ] = one
    return found


def kustomized(part: str | Path) -> dict[tuple[str, str], Record]:
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
    made = {key: one for key, one in helm.rendered(PARTS[part]).items() if key[0] != "Pod"}  # helm test's
    ours = {key: plain(one) for key, one in made.items()}
    shipped = {key: plain(one) for key, one in kustomized(part).items() if key[0] != "Namespace"}
    moved = {
        (kind, "/".join(("nw" if space.startswith("nodeward") else space, name))): one
        for (kind, whole), one in shipped.items()
        for space, name in [whole.split("/")]
    }
    assert ours == moved


def test_each_feature_of_the_plain_manifests_is_chosen_by_taking_its_mark_away(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(DEPLOY / "node", tmp_path / "node"))
    page = (folder / "kustomization.yaml").read_text()
    offered = re.findall(r"^#  - (?:path: )?(\S+)", page, re.MULTILINE)
    assert {"kustomization.yaml", *offered, *re.findall(r"^  - (\S+)", page, re.MULTILINE)} == set(os.listdir(folder))
    before = kustomized("node")
    for name in offered:
        (folder / "kustomization.yaml").write_text(re.sub(rf"(?m)^#(  - (?:path: )?{name})", r"\1", page))
        assert kustomized(folder) != before, name
    (folder / "kustomization.yaml").write_text(re.sub(r"(?m)^#  - ", "  - ", page))
    assert len(kustomized(folder)) > len(before)


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
    made: Any = helm.by_file(PLACED)["DaemonSet", "nw/nodeward-node"]
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


GROUPS = """
features: {limits: off, sandboxes: observe}
nodeGroups:
  - name: sgx
    nodeSelector: {sgx: "true"}
    features: {limits: enforce, sandboxes: off}
  - name: tdx
    nodeSelector: {tdx: "true"}
    features: {keys: enforce, topologyObjects: on}
    settings: {sandboxes: {tight_percent: 10}}
    pod: {resources: {limits: {memory: 1Gi}}}
    kubeletRoot: /data/kubelet
podMonitor: {enabled: true, labels: {release: prometheus}}
node: {nriDir: /run/k3s/nri}
"""


def test_each_node_group_has_its_daemon_settings_mounts_and_test(helm: Helm) -> None:
    made: Any = helm.by_file(GROUPS)
    sets = {name: made["DaemonSet", f"nw/nodeward-node-{name}"]["spec"] for name in ("sgx", "tdx")}
    files = {
        name: yaml.safe_load(made["ConfigMap", f"nw/nodeward-node-{name}"]["data"]["nodeward.yaml"]) for name in sets
    }
    assert ("DaemonSet", "nw/nodeward-node") not in made, "no daemon where no group is"
    assert (files["sgx"]["limits"], "sandboxes" in files["sgx"]) == ({"mode": "enforce"}, False)
    assert files["tdx"]["limits"] == {"mode": "off"}, "YAML's plain off is a word here"
    assert files["tdx"]["sandboxes"] == {"mode": "observe", "tight_percent": 10}
    assert files["tdx"]["keys"] == {"mode": "enforce", "kubelet_root": "/data/kubelet"}
    for name, one in sets.items():
        spec = one["template"]["spec"]
        assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", name: "true"}
        assert one["selector"]["matchLabels"]["nodeward.io/node-group"] == name
        assert one["selector"]["matchLabels"].items() <= one["template"]["metadata"]["labels"].items()
        assert spec["volumes"][0]["configMap"]["name"] == f"nodeward-node-{name}"
        assert made["Pod", f"nw/nodeward-ready-{name}"]["spec"]["nodeSelector"] == spec["nodeSelector"]
    folders = {
        name: {one.get("hostPath", {}).get("path") for one in sets[name]["template"]["spec"]["volumes"]}
        for name in sets
    }
    assert {"/run/k3s/nri", "/var/lib/nodeward"} <= folders["sgx"]
    assert not {"/data/kubelet/pod-resources", "/run/vc"} & folders["sgx"]
    assert {"/data/kubelet/pod-resources", "/var/lib/kubelet/device-plugins", "/run/vc"} <= folders["tdx"]
    assert (sets["tdx"]["template"]["spec"]["hostPID"], "hostPID" in sets["sgx"]["template"]["spec"]) == (True, False)
    assert sets["tdx"]["template"]["spec"]["containers"][0]["resources"] == {"limits": {"memory": "1Gi"}}
    assert {name for kind, name in made if kind == "ClusterRole"} == {
        f"/nodeward-{name}" for name in ("node", "nfd", "topology-objects")
    }, "rights once, of all groups together"
    assert made["PodMonitor", "nw/nodeward"]["metadata"]["labels"]["release"] == "prometheus"


def settings_in(config_map: Any) -> Any:
    return yaml.safe_load(config_map["data"]["nodeward.yaml"])


def modes(whole: Settings) -> set[Mode]:
    every = whole.limits, whole.limits.dra, whole.cpus, whole.keys, whole.keys.dra
    return {one.mode for one in (*every, whole.sandboxes, whole.sizing, whole.gate)}


def test_every_switch_makes_settings_that_the_daemon_accepts(helm: Helm) -> None:
    made = helm.rendered(*SWITCHES)
    containers: Any = member(made["DaemonSet", "nw/nodeward-node"], "spec", "template", "spec", "containers")
    flags = dict(one.split("=") for one in containers[0]["args"] if "=" in one)
    whole = load.from_tree(settings_in(made["ConfigMap", "nw/nodeward-node"]), {}, flags)
    assert modes(whole) == {Mode.ENFORCE}
    assert (whole.podapi.enabled, whole.policy_objects.enabled, whole.topology_objects.enabled) == (True, True, True)
    assert whole.cpus.kubevirt_label
    assert (whole.limits.devices.value, whole.keys.kinds["tdx"].attestation.value) == ("plugin", "enforce")
    assert whole.keys.kinds["tdx"].resources, "the rest of the table is as shipped"


@pytest.mark.parametrize(("mode", "most"), [("observe", Mode.OBSERVE), ("off", Mode.OFF)])
def test_the_mode_of_the_chart_caps_every_feature(helm: Helm, mode: str, most: Mode) -> None:
    (helm.folder / "mode.yaml").write_text(f"mode: {mode}\n")  # a plain off is false in YAML
    made = helm.rendered(*SWITCHES, file=helm.folder / "mode.yaml")
    whole = load.from_tree(settings_in(made["ConfigMap", "nw/nodeward-node"]), {})
    assert modes(whole) == {most}
    assert (whole.limits.devices.value, whole.topology_objects.enabled) == ("off", False)
    assert not whole.cpus.kubevirt_label
    assert made.keys() == helm.rendered(*SWITCHES).keys(), "the rights stay, to take back what was written"


def test_a_feature_that_is_removed_keeps_its_right_to_take_back_what_it_wrote(helm: Helm) -> None:
    made = helm.rendered("features.nodeEpc=remove", "features.topologyObjects=remove", "features.keys=observe")
    assert settings_in(made["ConfigMap", "nw/nodeward-node"]).keys() == {"cgroups", "cpus", "keys", "limits", "metrics"}
    assert {f"/nodeward-{name}" for name in ("node-epc", "topology-objects", "nfd")} <= {name for _, name in made}


def test_the_webhook_knows_that_devices_are_given_by_nri(helm: Helm) -> None:
    on = ("webhook.enabled=true", "webhook.certManager=false")
    for devices in ("nri", "plugin"):
        made = helm.rendered(f"features.devices={devices}", *on)["ConfigMap", "nw/nodeward-webhook"]
        assert (settings_in(made)["limits"].get("devices") == "nri") is (devices == "nri")


def test_an_older_api_server_is_sent_no_policy(helm: Helm) -> None:
    switches = ["--set", "features.nodeEpc=on", "--set", "features.keys=enforce"]
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
    assert (CHART / "README.md").read_text() == script.readme(), "run scripts/generate-chart-schema"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("nod.enabled=true", "additional properties 'nod' not allowed"),
        ("node.settings.limts.mode=x", "additional properties 'limts' not allowed"),
        ("features.limits=enforced", "value must be one of 'off', 'observe', 'enforce'"),
        ("node.settings.limits.mode=observe", "value must be 'set features.limits, not this setting'"),
        ("node.settings.keys.kinds.tdx.attestation=off", "value must be 'set features.quotes, not this setting'"),
        ("node.settings.podapi.enabled=true", "value must be 'set features.podApi, not this setting'"),
        ("features.keyClaims=observe", "values: features.keyClaims is observe and features.keys is off: set keys"),
        ("features.sizing=observe", "features.sandboxes is off: set sandboxes to observe"),
        ("features.keys=observe,features.quotes=observe", "set node.quotesGroup to the number of the group"),
        ("features.cpus=null", "at '/features': missing property 'cpus'"),
        ("node.settings.keys.kubelet_root=/data", "value must be 'set node.kubeletRoot, not this setting'"),
        ("node.pod.updateStrategy.rollingUpdate.maxSurge=1", "two daemons of a node cannot run; use maxUnavailable"),
        ("node.enabled=false,nodeGroups[0].name=a,nodeGroups[0].nodeSelector.a=b", "node.enabled is false, and"),
        ("features.nodeEpc=on,features.epcClaims=enforce,features.limits=enforce", "EPC would be offered twice"),
        ("nodeGroups[0].name=a", "missing property 'nodeSelector'"),
        ("nodeGroups[0].name=A.b,nodeGroups[0].nodeSelector.a=b", "does not match pattern"),
        (f"nodeGroups[0].name={'a' * 41},nodeGroups[0].nodeSelector.a=b", "maxLength"),
        (
            "nodeGroups[0].name=a,nodeGroups[0].nodeSelector.a=b,nodeGroups[1].name=a,nodeGroups[1].nodeSelector.a=c",
            "nodeGroups: two groups are named a",
        ),
        ("nodeGroups[0].name=a,nodeGroups[0].nodeSelector.a=b,nodeGroups[0].features.keys=on", "value must be one of"),
        ("node.enabled=maybe", "want boolean"),
        ("node.pod.nodeSelectr.a=b", "additional properties 'nodeSelectr' not allowed"),
        ("node.pod.tolerations=all", "want array"),
        ("exporter.enabled=true", "node.enabled and exporter.enabled are both true"),
    ],
)
def test_a_value_that_cannot_be_is_named(helm: Helm, value: str, why: str) -> None:
    code, _, said = helm.run("template", "nw", str(CHART), "--kube-version", "1.37.0", "--set", value)
    assert (code, why in said) == (1, True), said


def test_policies_are_refused_where_the_cluster_has_no_such_kind(helm: Helm) -> None:
    flags = ("--kube-version", "1.29.0", "--set", "policies.enabled=true")
    code, _, said = helm.run("template", "nw", str(CHART), *flags)
    assert (code, "admission policies need Kubernetes 1.30" in said) == (1, True), said


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
    switches = [word for one in SWITCHES for word in ("--set", one)]
    there = ("--namespace", "nw", "--create-namespace", "--set", "mode=observe")
    notes = helm.said("install", "one", str(CHART), *there, *switches)
    assert "kubectl rollout status -n nw daemonset/nodeward-node" in notes
    assert "nodeward-node: cpuClaims observe, cpus observe, epcClaims observe, gate observe" in notes
    code, _, why = helm.run("install", "two", str(CHART), "--namespace", "other", "--create-namespace")
    assert (code, "Nodeward is installed already, as release one in namespace nw" in why) == (1, True), why
    before = settings_of(cluster)
    more = ("--reuse-values", "--set", "mode=enforce", "--set", "features.epcClaims=off,features.devices=off")
    assert "limits enforce" in helm.said("upgrade", "one", str(CHART), "--namespace", "nw", *more)
    assert settings_of(cluster)["limits"] == {"mode": "enforce"}
    helm.said("rollback", "one", "1", "--namespace", "nw")
    assert settings_of(cluster) == before
    helm.said("uninstall", "one", "--namespace", "nw")
    assert cluster.find("/apis/apps/v1/namespaces/nw/daemonsets/nodeward-node") is None


def test_the_api_server_takes_two_node_groups_in_place_of_one_daemon(helm: Helm, cluster: KubeClient) -> None:
    define(cluster, "operator_crds.yaml")
    helm.said("install", "one", str(CHART), "--namespace", "nw", "--create-namespace")
    (helm.folder / "groups.yaml").write_text(GROUPS)
    helm.said("upgrade", "one", str(CHART), "--namespace", "nw", "-f", str(helm.folder / "groups.yaml"))
    found: Any = cluster.call("GET", "/apis/apps/v1/namespaces/nw/daemonsets")
    assert sorted(one["metadata"]["name"] for one in found["items"]) == ["nodeward-node-sgx", "nodeward-node-tdx"]
    helm.said("uninstall", "one", "--namespace", "nw")


def test_the_commands_of_the_page_in_their_order(helm: Helm, cluster: KubeClient) -> None:
    """No kubelet runs here: the test tells the API server that the DaemonSet's pods are ready."""
    where = "/apis/apps/v1/namespaces/nodeward/daemonsets/nodeward-node"
    helm.said(of_page("chart.md", "kubectl create namespace"))
    helm.said(of_page("chart.md", "kubectl label namespace"))
    helm.said(of_page("chart.md", "helm install"))
    ready: Record = dict.fromkeys(("desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable"), 1)
    counts: Record = {"currentNumberScheduled": 1, "numberMisscheduled": 0, "numberReady": 1, "observedGeneration": 1}
    cluster.call("PATCH", f"{where}/status", {"status": ready | counts}, MERGE)
    assert "successfully rolled out" in helm.said(of_page("chart.md", "kubectl rollout status"))
    helm.said(of_page("chart.md", "helm upgrade nodeward deploy/chart/nodeward -n nodeward --reuse-values"))
    helm.said(
        of_page(
            "chart.md", "helm upgrade nodeward deploy/chart/nodeward -n nodeward --reuse-values --set features.keys"
        )
    )
    upgrade = of_page("chart.md", "helm upgrade nodeward deploy/chart/nodeward -n nodeward --reset-then-reuse-values")
    helm.said(upgrade.replace("REGISTRY", "registry.example").replace("VERSION", "0.2.0"))
    found = cluster.call("GET", where)
    assert "image: registry.example/nodeward:0.2.0\n" in yaml.safe_dump(found)
    helm.said(of_page("chart.md", "helm rollback"))
    helm.said(of_page("chart.md", "helm uninstall"))
    assert cluster.find(where) is None


def test_the_pod_of_the_tutorial_is_refused_in_the_words_of_the_page(helm: Helm, cluster: KubeClient) -> None:
    """A policy takes effect some time after it is there: the pod is tried without a change until then."""
    page = (ROOT / "docs/tutorial.md").read_text()
    helm.said("upgrade", "--install", "nodeward", str(CHART), "--namespace", "nodeward", "--create-namespace")
    helm.said(
        of_page("tutorial.md", "helm upgrade nodeward deploy/chart/nodeward -n nodeward --reuse-values --set pol")
    )
    enclave = helm.folder / "enclave.yaml"
    enclave.write_text(typed("tutorial.md", "A pod, and its refusal"))
    apply = of_page("tutorial.md", "kubectl apply -f enclave.yaml").replace("enclave.yaml", str(enclave))

    until(lambda: "denied request" in helm.run(f"{apply} --dry-run=server")[2], "the policy is in force")
    code, _, refused = helm.run(apply)
    assert code == 1
    (shown,) = [one for one in page.split("\n\n") if one.startswith("    Error from server")]
    assert refused.replace(str(enclave), "enclave.yaml").split() == shown.split()
    enclave.write_text(enclave.read_text().replace("256Mi", "8Mi"))
    assert "pod/enclave created" in helm.said(apply)
    helm.said("uninstall", "nodeward", "--namespace", "nodeward")
