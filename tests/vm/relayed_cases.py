"""The cases of limits through the CRI relay, on a node without NRI: of pods that an API server does not know, then of
those that it knows, and while the daemon is away.

They run inside the guest, in this order, with containerd 1.7 as it comes. See test_relayed.py.
"""

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc
import pytest

from tests.peers.containerd import OLD, NriOptions, running_containerd
from tests.peers.cri import Cri, pods, remove_pod
from tests.peers.nriside import Record, objects, text
from tests.vm.chain_node import ANNOTATION, READS, Api, Node
from tests.vm.inside import EPC, KIB, RESOURCE, RUN_DIR, CriRelay, Daemon, limit, named, refused, until

_FOLDER: Final = Path("/dev/shm/relayed")
_SOCKET: Final = _FOLDER / "cri.sock"
_LIMITS: Final = f"limits: {{resources: {{{EPC}: {RESOURCE}}}}}\n"


@dataclass(slots=True)
class RelayedNode(Node):
    relay: CriRelay = field(kw_only=True)
    running: ExitStack = field(kw_only=True)

    def log(self) -> str:
        return f"{self.relay.log()}\n{self.containerd.log()}\n{self.daemon.log()}"

    def start_relay(self) -> None:
        """It is there when the daemon decides again."""
        listed = self.lists()
        self.relay.start()
        self.speak("v1")
        until(lambda: self.lists() > listed, "the daemon has asked what there is", 30)

    def lists(self) -> int:
        """How often the daemon has learnt what the runtime has."""
        return self.daemon.logged().count("relay=listed ")

    def speak(self, version: str) -> None:
        """Connects to the relay; calls are of this version of CRI from now on."""
        self.cri = self.running.enter_context(Cri(_SOCKET, self.containerd.peer / "proto" / "cri.proto", version))

    def run(
        self, name: str, container: str, annotations: Mapping[str, str], behind: bytes = b""
    ) -> tuple[Path, list[str]]:
        """A container that runs: its cgroup, and what its program found as its own limit before anything else."""
        pod = self.pods.get(name) or self.run_pod(name, (), annotations)
        return self.add_container(pod, container, READS, behind), self.read(name, container)


@contextmanager
def running_node() -> Iterator[RelayedNode]:
    (_FOLDER / "containerd").mkdir(parents=True)
    os.environ["NODEWARD_NRI__ENABLED"] = "false"
    with ExitStack() as running:
        nri = NriOptions(disable=True)
        containerd = running.enter_context(running_containerd(_FOLDER / "containerd", nri, OLD))
        config, api = _FOLDER / "nodeward.yaml", Api()
        relayed = f"relay: {{limits: true, listen: {_SOCKET}, runtime: {containerd.cri_socket}}}\n"
        config.write_text(f"run_dir: {RUN_DIR}\n{_LIMITS}{relayed}")
        relay = CriRelay(config, _FOLDER / "relay.log")
        relay.start()
        daemon = Daemon(Path("/run/no-nri"), f'{_LIMITS}{relayed}kube: {{url: "{api.url}"}}\n')
        daemon.start_beside_relay()
        with Cri(_SOCKET, containerd.peer / "proto" / "cri.proto") as cri:
            node = RelayedNode(containerd, cri, api, daemon, parent="/kubepods", relay=relay, running=running)
            try:
                yield node
            finally:
                relay.end(signal.SIGKILL)
                daemon.end(signal.SIGKILL)


_EPC: Final = 8 * KIB
_LINE: Final = f"{RESOURCE} {_EPC}"
_MORE: Final = f"{RESOURCE} {2 * _EPC}"
_NOTED: Final = {ANNOTATION: str(_EPC)}
_LARGE: Final = 17 * KIB * KIB
"""Bytes of a request that is not held."""
_FIELD: Final = b"\xfa\x7f" + b"\x80\x80\xc0\x08"
"""The head of so many bytes as a field that CRI does not have."""
_containers: dict[str, Path] = {}


def from_birth(node: RelayedNode) -> None:
    """A pod's annotation is its container's limit before the program runs; its neighbour has none."""
    app, born = node.run("noted", "app", _NOTED)
    other, others = node.run("noted", "other", _NOTED)
    assert node.containerd.told(app.name) == [_LINE]
    assert _LINE in born, born
    assert limit(app) == str(_EPC)
    assert (node.containerd.told(other.name), limit(other)) == ([], "max"), others
    _containers["app"] = app


def refused_charge(node: RelayedNode) -> None:
    app = _containers["app"]
    refused(app, _EPC + 1)
    events = (app / "misc.events.local").read_text().splitlines()
    assert f"{RESOURCE}.max 1" in events, events


def updates_keep_it(node: RelayedNode) -> None:
    """CPU changed by CRI; and a client that brings a limit of its own."""
    _updated(node, _containers["app"])


def by_the_older_cri(node: RelayedNode) -> None:
    """A pod's whole life in v1alpha2: the limit from birth, kept by an update, and nothing left in the end."""
    node.speak("v1alpha2")
    app, born = node.run("older", "app", _NOTED)
    assert (node.containerd.told(app.name), limit(app)) == ([_LINE], str(_EPC))
    assert _LINE in born, born
    assert text(node.cri.call("Version"), "runtime_api_version") == "v1alpha2"
    sandbox = node.pods.pop("older").sandbox.name
    refused(app, _EPC + 1)
    _updated(node, app)
    node.cri.call("StopContainer", {"container_id": app.name})
    assert _states(node)[app.name] == "CONTAINER_EXITED"
    remove_pod(node.cri, sandbox)
    assert not app.exists()
    assert (app.name in _states(node), sandbox in pods(node.cri)) == (False, False)
    node.speak("v1")


def after_kill(node: RelayedNode) -> None:
    """The relay is killed and started again: limits stay, the runtime is asked what there is, and updates are decided
    as before, without a list that passes."""
    app = _containers["app"]
    node.relay.end(signal.SIGKILL)
    assert limit(app) == str(_EPC)
    node.start_relay()
    node.cri.call("UpdateContainerResources", {"container_id": app.name, "linux": {"cpu_shares": 256}})
    _updated(node, app)


def mended(node: RelayedNode) -> None:
    """A create that is too large to be held goes on undecided; the container then has its limit of the daemon, and
    later updates keep it."""
    large, _ = node.run("large", "app", _NOTED, behind=_FIELD + bytes(_LARGE))
    until(lambda: limit(large) == str(_EPC), "the limit in the kernel", 30)
    refused(large, _EPC + 1)
    _updated(node, large)


def refused_by_setting(node: RelayedNode) -> None:
    """`limits.unsupported: refuse`: a container that asks for what this kernel has not is not created, and kubelet
    hears which and why."""
    node.daemon.end(signal.SIGTERM)
    node.daemon.start_beside_relay("answers", "--set", "limits.unsupported=refuse")
    pod = node.run_pod("wants-tdx", (), {"nodeward.io/limits": json.dumps({"app": {"tdx": "1"}})})
    with pytest.raises(grpc.RpcError) as failed:
        node.add_container(pod, "app")
    assert isinstance(failed.value, grpc.Call)
    said = str(failed.value.details())
    assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, said
    assert said.startswith("default/wants-tdx, container app: declares 1 of tdx"), said
    app, _ = node.run("noted-again", "app", _NOTED)
    assert limit(app) == str(_EPC)


def by_spec(node: RelayedNode) -> None:
    """A pod of the API server's, without any annotation, has its containers' limits from birth and its budget, and the
    kernel refuses at both levels."""
    declared = {"app": {EPC: "8Ki"}, "other": {EPC: "4Ki"}}  # 8 Ki is _EPC
    node.api.add("spec", declared)
    app, born = node.run("spec", "app", {})
    other, others = node.run("spec", "other", {})
    node.api.add("spec", declared, {"app": app.name, "other": other.name})  # kubelet's word of the pod's status
    assert _LINE in born, born
    assert f"{RESOURCE} {4 * KIB}" in others, others
    node.daemon.enforced("spec", "app", "other", "")
    assert (limit(app), limit(app.parent)) == (str(8 * KIB), str(12 * KIB))
    _containers["spec"] = app
    refused(app, 8 * KIB + 1)
    refused(node.pods["spec"].sandbox, 12 * KIB + 1)


def mended_by_the_daemon(node: RelayedNode) -> None:
    """Somebody takes the limit away: the daemon writes it again, and the next update that passes the relay brings the
    runtime the same value, not another."""
    app = _containers["spec"]
    (app / "misc.max").write_text(f"{RESOURCE} max")
    until(lambda: limit(app) == str(_EPC), "the daemon's repair", 30)
    _updated(node, app)


def daemon_killed(node: RelayedNode) -> None:
    """Without the daemon what was written stays, and a new container begins as it was sent; it has its limit once the
    daemon is back, and the kernel refuses what is more."""
    node.daemon.end(signal.SIGKILL)
    noted, born = node.run("noted-alone", "app", _NOTED)
    assert _LINE not in born, born
    assert (limit(noted), limit(noted.parent.parent / "poduid-spec")) == ("max", str(12 * KIB))
    node.daemon.start_beside_relay()
    until(lambda: limit(noted) == str(_EPC), "the limit in the kernel", 30)
    refused(noted, _EPC + 1)
    _updated(node, noted)


def _states(node: RelayedNode) -> Mapping[str, str]:
    return {text(one, "id"): text(one, "state") for one in objects(node.cri.call("ListContainers").get("containers"))}


def _updated(node: RelayedNode, app: Path) -> None:
    before = (app / "cpu.weight").read_text()
    shares = 4096 if before.strip() == "20" else 512
    resources: Record = {"cpu_shares": shares, "unified": {"misc.max": _MORE}}
    node.cri.call("UpdateContainerResources", {"container_id": app.name, "linux": resources})
    assert (app / "cpu.weight").read_text() != before
    assert limit(app) == str(_EPC)


CASES: Final = named(
    from_birth,
    refused_charge,
    updates_keep_it,
    by_the_older_cri,
    after_kill,
    mended,
    refused_by_setting,
    by_spec,
    mended_by_the_daemon,
    daemon_killed,
)
