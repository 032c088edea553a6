"""A node inside the guest that systemd runs: the shipped units with the bundle, containerd as a unit, an idle kubelet.

Containerd is the peer's and in no namespaces of its own, since it has runc ask systemd for every container's scope
(SystemdCgroup), by the process's id. Kubelet is a process that does nothing: when it is started, and what its
configuration says, is all that is asked of it.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nodeward.core.workload import ContainerSpec, PodSpec, PodUid
from nodeward.features.pods.effects import last_known
from tests.peers.containerd import IMAGE, Containerd, running_containerd
from tests.peers.cri import Cri, container_config, pod_config, start
from tests.peers.nriside import Record, text
from tests.vm.guest import REPOSITORY
from tests.vm.inside import CGROUPS, EPC, RESOURCE, until
from tests.vm.systemd import UNITS, Systemd, place_bundle, service_of, unit

LISTEN: Final = Path("/run/nodeward/cri.sock")
DUMP: Final = Path("/var/log/nodeward/cri.dump")
QUOTES: Final = Path("/run/tdx-qgs/qgs.socket")
OFFERED: Final = "devices.kubevirt.io/sev-esids"
KUBELET_CONFIG: Final = Path("/var/lib/kubelet/config.yaml")
RELAY, DAEMON, KUBELET, RUNTIME = "nodeward-relay", "nodeward", "kubelet", "containerd"
_FOLDER: Final = Path("/dev/shm/containerd")
_SETTINGS: Final = """
node_name: guest
limits: {{resources: {{{epc}: {resource}}}}}
nri: {{socket: {nri}}}
kube: {{enabled: false}}
keys:
  kinds:
    sev_es:
      resources: [{offered}]
      publish: {offered}
      publisher: device-plugin
      attestation: observe
      attestation_socket: {quotes}
relay: {{runtime: {runtime}}}
dump: {{file: {dump}}}
"""

SPEC: Final = PodSpec(
    PodUid("uid-sliced"),
    "default",
    "sliced",
    (ContainerSpec("app", declared={RESOURCE: 8192}),),
    overhead={RESOURCE: 4096},
)
"""A pod as last known, from disk: there is no API server. Its budget is 12288."""


@dataclass(slots=True)
class Node(Systemd):
    containerd: Containerd
    bundle: Path
    cgroups: dict[str, Path] = field(default_factory=dict)
    """Of the container of each pod that was made."""

    def version(self) -> str:
        """What the runtime calls itself, asked through the relay; empty where nothing answers."""
        try:
            with Cri(LISTEN, self.containerd.peer / "proto" / "cri.proto") as cri:
                return text(cri.call("Version"), "runtime_name")
        except Exception:
            return ""

    def answers(self) -> None:
        until(lambda: self.version() == "containerd", "the runtime answers through the relay", 30)

    def run(self, name: str, epc: int | None) -> Path:
        """The cgroup of a container that runs, made through the relay; its limit is in the pod's annotation, if there
        is one, and the pod's slice is named as a kubelet with the systemd driver names it."""
        slices = "/kubepods.slice/kubepods-burstable.slice"
        parent = f"{slices}/kubepods-burstable-poduid_{name}.slice"
        config: Record = pod_config(name, "", _FOLDER / "logs")
        config["annotations"] = {} if epc is None else {"epc-limit.nri.io/container.app": str(epc)}
        config["linux"] = {"cgroup_parent": parent, "security_context": {"namespace_options": {"network": "NODE"}}}
        with Cri(LISTEN, self.containerd.peer / "proto" / "cri.proto") as cri:
            _, created = start(cri, config, container_config("app", IMAGE))
        cgroup = self.cgroups[name] = CGROUPS / parent.lstrip("/") / f"cri-containerd-{created}.scope"
        return cgroup

    def inside(self, unit: str, *command: str) -> subprocess.CompletedProcess[str]:
        """A command that sees the mounts as the unit's process does."""
        entered = ["nsenter", "-t", self.shown(unit, "MainPID"), "-m", "--", *command]
        return subprocess.run(entered, capture_output=True, text=True, timeout=300, check=False)

    def log(self) -> str:
        return Systemd.log(self) + self.containerd.log()


@contextmanager
def running_node(folder: str) -> Iterator[Node]:
    bundle = Path(folder)
    _FOLDER.mkdir()
    place_bundle(bundle)
    with suppress(FileNotFoundError):  # as one on this machine may have left it
        shutil.rmtree(KUBELET_CONFIG.parent)
    KUBELET_CONFIG.parent.mkdir(parents=True)
    with running_containerd(_FOLDER) as containerd:
        containerd.stop()
        settings = _SETTINGS.format(
            epc=EPC,
            resource=RESOURCE,
            nri=containerd.nri_socket,
            offered=OFFERED,
            quotes=QUOTES,
            runtime=containerd.cri_socket,
            dump=DUMP,
        )
        Path("/etc/nodeward.yaml").write_text(settings.lstrip())
        state = Path("/var/lib/nodeward")
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        Path(last_known.FILE.path_in(str(state))).write_bytes(
            last_known.FILE.encode(last_known.Remembered((SPEC,), 1_700_000_000 * 10**9))
        )
        KUBELET_CONFIG.write_text(
            f"kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix://{containerd.cri_socket}\n"
        )
        for name in (RELAY, DAEMON):
            unit(name, (REPOSITORY / "deploy/systemd" / f"{name}.service").read_text())
        configured = (_FOLDER / "config.toml").read_text()
        assert configured.count("SystemdCgroup = false") == 1, configured
        (_FOLDER / "config.toml").write_text(configured.replace("SystemdCgroup = false", "SystemdCgroup = true"))
        unit(RUNTIME, service_of(containerd))
        unit(KUBELET, "[Service]\nExecStart=/bin/sleep infinity\n")
        wanted = " ".join(f"{name}.service" for name in (KUBELET, DAEMON, RELAY, RUNTIME))
        (UNITS / "multi-user.target").write_text(f"[Unit]\nDefaultDependencies=no\nWants={wanted}\n")
        node = Node(containerd, bundle)
        node.control("daemon-reload")
        yield node
