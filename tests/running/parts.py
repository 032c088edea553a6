"""The parts of the tests: what each runs, needs, covers and may cost.

A part is one pytest over some files of a tier. It promises to name its peers (it begins when those are built), the
source it covers (`make gate` runs it when that changes) and its cap in processor seconds. This module is data; it
starts nothing.
"""

from dataclasses import dataclass
from pathlib import Path

from tests.peers.recipes import RECIPES

TIERS = ("unit", "component", "contract", "real", "vm")
CHECKS, PEERS = "checks", "peers"
"""The tiers of what is no test."""
MARKS = {"gate": "not deep and not matrix and not neighbour", "test": "not deep and not matrix"}
MARKS |= {"deep": "deep or fuzz", "matrix": "matrix"}
"""By depth. The parts that a change touches have those of `test` in the gate."""
CAPS_S = {"gate": 1200.0, "test": 3100.0}
"""Processor seconds of all parts together, without the building of peers; of the gate also without what the change
touches: ten minutes of two cores."""
DEEP_NUMBERS = {"NODEWARD_FUZZ_INPUTS": "1000000", "NODEWARD_LARGE_INPUTS": "40", "NODEWARD_HISTORIES": "10000"}
"""What raises the size of a seeded loop of the unit tier."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some files of a tier, or what no other part of it has."""

    tier: str
    files: tuple[str, ...] = ()
    cap_s: float = 60.0
    """Processor seconds: some 1.4 times what it takes on a warm machine."""
    load: float = 1.0
    """Cores that it keeps busy."""
    apart: bool = False
    """It has a machine or a node of its own, and begins wherever there is room."""
    after: tuple[str, ...] = ()
    """Names of parts that it comes after besides."""
    peers: tuple[str, ...] = ()
    covers: tuple[str, ...] = ()
    """Packages or modules of the source, or paths, for which `make gate` runs it."""

    @property
    def name(self) -> str:
        """For people, and for `after`."""
        return f"tests/{self.tier}{': ' if self.files else ''}{', '.join(self.files)}"


KUBELETS = (
    *("test_keys_offered.py", "test_kubelet.py", "test_kubelet_root.py", "test_pods_api.py", "test_relay_kubelet.py"),
    "test_gate.py",
    "test_kubectl.py",
    "test_relay_resize.py",
)
"""They change the machine and put back what they found, so they are one part; and mostly they wait."""
CLUSTER = (
    *("test_admission.py", "test_agent.py", "test_doctor.py", "test_nfd.py", "test_nfd_daemon.py"),
    *("test_node_manifests.py", "test_operator_manifests.py", "test_podapi_apiserver.py", "test_policies.py"),
    *("test_policy_objects.py", "test_policy_rules.py", "test_service_account.py", "test_webhook.py"),
    *("test_own_objects.py", "test_topology_objects.py", "test_webhook_shipped.py"),
)
RELAYS = ("test_cri_resmgr.py", "test_relay.py", "test_relay_streams.py")
RUNTIMES = (
    *("test_late_plugin.py", "test_launched_plugin.py", "test_quick_pods.py", "test_required_plugins.py"),
    "test_runtime_nri.py",
    "test_two_transports.py",
)
NRISIDES = tuple(name for name in RECIPES if name.startswith("nriside"))
CONTAINERDS = ("containerd", "containerd-1.7")
CLUSTERED = ("containerd", "kubernetes")
KATA = ("katahost", "containerd")
PEOPLE = ("containerd", "kubernetes", "helm", "grpcurl")
OTHERS = (*NRISIDES, "nristub", "cribench", "kubernetes")
SUITE, VIEWS = "tests/real: test_cri_suite.py", "tests/contract: apiserver, kubelet"
GUEST = 0.75
"""A guest's load. It keeps one core busy, and two of them have room beside kubelets, which mostly wait."""
NRI = ("nodeward.edges.nri", "nodeward.proto.nri_pb2", "nodeward.wire.nri_mux", "nodeward.wire.ttrpc")
RELAY = ("nodeward.edges.cri", "nodeward.transport.relay_session", "nodeward.app.relay", "nodeward.cli.cri_resmgr")
VMS = ("nodeward.edges.sandboxes", "nodeward.edges.cri.sizer", "nodeward.app.relay.sizing")
GATES = ("nodeward.engine.gate", "nodeward.app.node.gate", "nodeward.app.relay.gate", "nodeward.edges.cri.gatekeeper")
CGROUPS = ("nodeward.edges.cgroups", "nodeward.engine.limits")
KUBELET = ("nodeward.edges.kubelet", "nodeward.engine.ledger", "nodeward.app.node.grants")
DEVICES = ("nodeward.edges.kubelet.cold_plug", "nodeward.edges.kubelet.device_files", "nodeward.engine.podapi")
KUBE = (
    *("nodeward.edges.kube", "nodeward.edges.nfd", "nodeward.edges.webhook", "nodeward.engine.admission", "deploy"),
    *("nodeward.app.node.policy_objects", "nodeward.cli.cri_resmgr_webhook"),
    *("nodeward.edges.resmgr", "nodeward.app.agent", "nodeward.cli.agent", "nodeward.app.node.topology_object"),
)
WHOLE_WAY = ("nodeward.edges.resmgr", "nodeward.app.agent", "nodeward.app.node.policy_objects", "nodeward.engine.cpus")
HOOK = ("nodeward.shims", "nodeward.edges.hook", "nodeward.wire.hook_line", "deploy/hooks.d")
ALL_TOGETHER = ("nodeward.app.node.assemble", "nodeward.app.node.wiring")
PLACING = ("nodeward.engine.sandboxes", "nodeward.app.tools.sandbox_cgroup", "nodeward.cli.sandbox_cgroup")
PLACERS = ("cgroupsrs", "katahost")
HUBS = (*ALL_TOGETHER, "tests.vm.chain_runner")
"""They import everything, so a change of what they import says nothing of them."""


def _guest(name: str, cap_s: float, covers: tuple[str, ...], peers: tuple[str, ...] = ("containerd",)) -> Part:
    files = (f"test_{name}.py",) if name else ()
    after = () if name.startswith("joined") else ("tests/component: relay",)
    return Part("vm", files, cap_s, GUEST, True, after, peers, covers)


PARTS = (
    _guest("joined_keys", 220, (*KUBELET, *ALL_TOGETHER), CLUSTERED),
    _guest("joined_limits", 350, (*ALL_TOGETHER, "deploy/chart", "deploy/bundle"), (*CLUSTERED, "helm")),
    _guest("joined_restarts", 300, (), CLUSTERED),
    *(Part("unit", cap_s=110), Part("unit", ("wire",), 30)),
    *(Part("component", (f"test_sim{name}.py",), 50, 0.0, True) for name in ("", "_mutants")),
    *(Part("component", cap_s=150, covers=("nodeward.edges.podapi",)), Part("component", ("relay",), 95)),
    Part("component", ("page",), 80, covers=("nodeward.edges.page", "nodeward.app.page")),
    Part("contract", ("nri",), 40, peers=(*NRISIDES, *CONTAINERDS), covers=NRI),
    Part("contract", ("cri",), 30, peers=CONTAINERDS, covers=("nodeward.doubles.cri_runtime", *RELAY)),
    Part("contract", ("apiserver", "kubelet"), 100, peers=CLUSTERED, covers=(*KUBE, "nodeward.edges.kubelet")),
    Part("contract", ("cpus",), 25, peers=("kubernetes",), covers=("nodeward.engine.cpus", "nodeward.edges.sysfs")),
    Part(
        "contract",
        ("sandboxes",),
        25,
        peers=PLACERS,
        covers=("nodeward.edges.sandboxes", "nodeward.edges.kata", *PLACING),
    ),
    Part("contract", ("podapi",), 10, peers=("grpcurl",), covers=("nodeward.edges.podapi", "nodeward.wire.podapi")),
    Part("contract", cap_s=30, peers=("quantities", *NRISIDES, *CLUSTERED), covers=("nodeward.proto",)),
    # containerd's own suite, whose waits are a few seconds: two run at once, and of this tier nothing else
    Part("real", ("test_cri_suite.py",), 80, 1.0, peers=("containerd", "cri-suite"), covers=RELAY),
    Part(
        "real",
        KUBELETS,
        320,
        0.5,
        after=(SUITE, VIEWS),
        peers=(*CLUSTERED, "helm"),
        covers=(*KUBELET, *GATES, "nodeward.cli.kubectl", "nodeward.cli.kubectl_nodes", "nodeward.cli.kubectl_answers"),
    ),
    Part("real", ("test_cold_plug.py",), 50, 0.5, after=(SUITE,), peers=(*CLUSTERED, "podresources"), covers=DEVICES),
    Part("real", CLUSTER, 185, 0.5, after=(SUITE,), peers=CLUSTERED, covers=KUBE),
    Part(
        "real",
        ("test_chart.py", "test_doc_commands.py", "test_doc_host.py", "test_make_run.py", "test_release.py"),
        230,
        0.5,
        after=(SUITE,),
        peers=PEOPLE,
        covers=("Makefile", "constraints", "deploy", "docs", "scripts/build-release", "scripts/wheel_commit.py"),
    ),
    Part(
        "real",
        ("test_whole_way.py",),
        25,
        0.5,
        after=(SUITE,),
        peers=(*CONTAINERDS, "kubernetes"),
        covers=WHOLE_WAY,
    ),
    Part("real", RELAYS, 30, 0.5, after=(SUITE,), peers=CONTAINERDS, covers=RELAY),
    Part("real", RUNTIMES, 120, 0.5, after=(SUITE,), peers=CONTAINERDS, covers=(*NRI, *ALL_TOGETHER)),
    Part("real", ("test_kata_host.py",), 12, 0.5, after=(SUITE,), peers=KATA, covers=VMS),
    Part("real", (), 80, 0.5, after=(SUITE,), peers=OTHERS, covers=("deploy", "bench", "pyproject.toml")),
    _guest("", 210, (*CGROUPS, *RELAY, "nodeward.app.doctor"), CONTAINERDS),
    _guest("hook", 150, HOOK, (*CONTAINERDS, "crio")),
    _guest("crio", 450, (), ("containerd", "crio")),
    _guest("runtimes", 300, (), CONTAINERDS),
    _guest("units", 270, ("deploy/systemd", "scripts/build-bundle", "nodeward.app.node.readiness")),
    _guest("sandboxes", 135, VMS, (*KATA, "cgroupsrs")),
    _guest(
        "cpus",
        400,
        (*NRI, *WHOLE_WAY, "nodeward.app.host.start_gate"),
        (*CONTAINERDS, "kubernetes"),
    ),
    _guest("chart", 450, ("deploy/chart",), (*CLUSTERED, "helm")),
    _guest("kata_host", 100, (), KATA),
    _guest("sandbox_cells", 75, PLACING, PLACERS),
    _guest("chain", 100, (*CGROUPS, *NRI, *ALL_TOGETHER)),
    Part("contract", ("kernel",), 40, GUEST, True, ("tests/component: relay",), (), CGROUPS),
)
"""What begins first comes first: of the guests those that take longest, and before all those with a kubelet, since at
the end nothing would be left to run beside them. The simulated node lives in real time, and mostly waits."""


def paths(root: Path, part: Part) -> list[str]:
    """What its pytest is given; nothing where none of its files are there."""
    of = [one for one in PARTS if one.tier == part.tier and one.files]
    there = {one: [path for file in one.files if (root / (path := f"tests/{one.tier}/{file}")).exists()] for one in of}
    if part.files:
        return there[part]
    whole = f"tests/{part.tier}"
    left = [f"--ignore={path}" for paths_of in there.values() for path in paths_of]
    return [whole, *left] if any((root / whole).rglob("*test*.py")) else []
