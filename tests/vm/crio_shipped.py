"""CRI-O as it comes, with systemd's driver and its own folder of hooks, and what docs/relay.md puts on a node: a bundle
in /opt/nodeward, the shipped unit, the shipped file of `hooks.d`; at last with NRI in the place of the hook. One
function a case, in their order."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeward.core import cpuset
from nodeward.core.cpuset import CpuSet
from nodeward.core.modes import OnError
from nodeward.features.limits.settings import LimitsSettings, UnknownPod
from tests.vm.chain_node import ANNOTATION, Api
from tests.vm.crio import NEW, OLD, Crio, Made
from tests.vm.guest import REPOSITORY
from tests.vm.hook_node import rule_of
from tests.vm.inside import EPC, KIB, RESOURCE, charge, limit, limits, refused, until
from tests.vm.podman import installed_podman
from tests.vm.systemd import Systemd, place_bundle, unit

_DAEMON: Final = "nodeward"
_LEFT: Final = Path("/run/nodeward")
_FILE: Final = "50-nodeward.json"
_DEFAULT: Final = Path("/usr/share/containers/oci/hooks.d")
_OTHER: Final = Path("/etc/containers/oci/hooks.d")
_HELD: Final = 8 * KIB
_PODS: Final = ("by-old", "by-new", "by-file", "unread", "read", "before-nri", "by-nri")
_SETTINGS: Final = """
node_name: guest
nri: {{enabled: false}}
hook: {{enabled: true}}
kube: {{url: "{url}"}}
"""
_BY_NRI: Final = """
node_name: guest
kube: {{url: "{url}"}}
policy: {{Active: static, ReservedResources: {{CPU: 1}}}}
cpus: {{mode: enforce, driver: nri, on_late: start}}
"""


@dataclass(slots=True)
class Node(Systemd):
    api: Api
    crio: Crio

    def log(self) -> str:
        return Systemd.log(self) + self.crio.log()


@contextmanager
def running_node(bundle: str, *of_podman: str) -> Iterator[Node]:
    place_bundle(Path(bundle))
    node = Node(Api(), Crio(installed_podman(*of_podman).runc))
    Path("/etc/nodeward.yaml").write_text(_SETTINGS.format(url=node.api.url).lstrip())
    unit(_DAEMON, (REPOSITORY / f"deploy/systemd/{_DAEMON}.service").read_text())
    node.control("daemon-reload")
    try:
        yield node
    finally:
        node.crio.end()


def in_a_scope_of_systemd(node: Node) -> None:
    """The unit's daemon answers the hook, by both runcs; the limit is there when the program starts, and stays."""
    _DEFAULT.mkdir(parents=True, exist_ok=True)
    shutil.copy(REPOSITORY / "deploy/hooks.d" / _FILE, _DEFAULT)
    node.control("start", f"{_DAEMON}.service")
    for pod in _PODS:
        node.api.add(pod, {"app": {EPC: "8Ki"}})
    left = [_LEFT / f"pods/uid-{pod}.json" for pod in _PODS]
    until(lambda: all(file.exists() for file in left), "the daemon has left the pods' files", 30)
    node.crio.start()
    for pod, runtime in (("by-old", OLD), ("by-new", NEW)):
        made = node.crio.make(pod, runtime)
        assert made.first == f"{RESOURCE} {_HELD}", (made, node.log())
        scope = node.control("show", "--value", "--property", "Slice", made.cgroup.name).strip()
        assert scope == made.pod.name, scope
        node.control("daemon-reload")
        os.close(charge(made.cgroup, _HELD))
        refused(made.cgroup, _HELD + 1)
        _enforced(node, pod)
        assert limits(made.cgroup, made.pod) == [_HELD, _HELD], "container and pod"


def _enforced(node: Node, pod: str) -> None:
    until(lambda: (row := node.row(pod)) is not None and row.state == "enforced", f"{pod}/app is enforced", 30)


def by_the_file(node: Node) -> None:
    """The unit is stopped; the pod's file that it left holds."""
    node.control("stop", f"{_DAEMON}.service")
    assert not (_LEFT / "hook.sock").exists(), "a daemon that ends well takes its socket along"
    made = node.crio.make("by-file", NEW)
    assert made.first == f"{RESOURCE} {_HELD}", (made, node.log())


def without_a_file(node: Node) -> None:
    """Of a pod of which nothing was left the annotation counts, which CRI-O hands on. What the rule that the daemon
    left refuses is whole in the error of CreateContainer."""
    made = node.crio.make("noted", OLD, {ANNOTATION: str(4 * KIB)})
    assert made.first == f"{RESOURCE} {4 * KIB}", made
    with rule_of(LimitsSettings(unknown_pod=UnknownPod.REFUSE, on_error=OnError.REFUSE), _LEFT):
        made = node.crio.make("unknown", NEW)
    assert "nodeward: default/unknown, container app: nobody knows this pod" in made.error, made
    assert made.error.rstrip('\\n"').endswith("or set limits.unknown_pod to unlimited or zero."), made


def the_other_folder(node: Node) -> None:
    """A file in /etc counts where `hooks_dir` names its folder; by itself CRI-O does not look there."""
    _OTHER.mkdir(parents=True)
    (_DEFAULT / _FILE).rename(_OTHER / _FILE)
    node.crio.begin()
    unread = node.crio.make("unread", NEW)
    node.crio.begin(f'hooks_dir = ["{_DEFAULT}", "{_OTHER}"]')
    read = node.crio.make("read", NEW)
    assert [unread.first, read.first] == [f"{RESOURCE} max", f"{RESOURCE} {_HELD}"], (unread, read, node.log())


def by_nri(node: Node) -> None:
    """Without a file of `hooks.d`, when NRI is switched on, then the daemon learns of the container that runs, and
    limits it; a new one has its limit before its program begins, and CPUs of its own."""
    (_OTHER / _FILE).unlink()
    Path("/etc/nodeward.yaml").write_text(_BY_NRI.format(url=node.api.url).lstrip())
    node.api.add("by-nri", {"app": {EPC: "8Ki", "cpu": "2", "memory": "64Mi"}})
    node.control("stop", f"{_DAEMON}.service")
    node.crio.begin(nri=True)
    before = node.crio.make("before-nri", NEW)
    assert (before.first, limit(before.cgroup)) == (f"{RESOURCE} max", "max"), (before, node.log())
    node.control("start", f"{_DAEMON}.service")
    _enforced(node, "before-nri")
    assert limit(before.cgroup) == str(_HELD), "the runtime's list of what runs is enough"
    made = node.crio.make("by-nri", NEW, cpus=2)
    assert made.first == f"{RESOURCE} {_HELD}", (made, node.log())

    def uses(one: Made) -> CpuSet:
        return cpuset.parse((one.cgroup / "cpuset.cpus.effective").read_text())

    assert uses(made).bit_count() == 2, (cpuset.text(uses(made)), node.log())
    until(lambda: not uses(made) & uses(before), "the container that was there leaves those CPUs", 30)


CASES: Mapping[str, Callable[[Node], None]] = {
    "the unit's daemon answers the hook of a container in systemd's scope": in_a_scope_of_systemd,
    "with the unit stopped the pod's file counts": by_the_file,
    "without a file the annotation counts, and the rule's refusal is CRI-O's error": without_a_file,
    "the folder in /etc counts where hooks_dir names it": the_other_folder,
    "by NRI a container gets its limit and CPUs of its own": by_nri,
}
