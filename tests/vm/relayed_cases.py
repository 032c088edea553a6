"""The cases of limits by the CRI relay, on a node without NRI: without our daemon and an API server, then with both.

They run inside the guest, in this order. See test_relayed.py.
"""

import json
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import grpc
import pytest

from tests.peers.cri import pods, remove_pod
from tests.peers.nriside import Record, text
from tests.vm.inside import EPC, KIB, RESOURCE, limit, refused, until
from tests.vm.relayed_node import RelayedNode

_EPC: Final = 8 * KIB
_LINE: Final = f"{RESOURCE} {_EPC}"
_MORE: Final = f"{RESOURCE} {2 * _EPC}"
_NOTED: Final = {"epc-limit.nri.io/container.app": str(_EPC)}
_LARGE: Final = 17 * KIB * KIB
"""Bytes of a request that is not held."""
_FIELD: Final = b"\xfa\x7f" + b"\x80\x80\xc0\x08"
"""The head of so many bytes as a field that CRI does not have."""
_containers: dict[str, Path] = {}


def from_birth(node: RelayedNode) -> list[str]:
    """A pod's annotation is its container's limit before the program runs; its neighbour has none."""
    app, born = node.run("noted", "app", _NOTED)
    other, others = node.run("noted", "other", _NOTED)
    assert node.told(app) == [_LINE]
    assert _LINE in born, born
    assert limit(app) == str(_EPC)
    assert (node.told(other), limit(other)) == ([], "max"), others
    _containers["app"] = app
    return [f"containerd {node.containerd.release.version}, NRI off: runc was told {_LINE}, the program found {_LINE}"]


def refused_charge(node: RelayedNode) -> list[str]:
    """The kernel refuses what is above it."""
    app = _containers["app"]
    refusal = refused(app, _EPC + 1)
    events = (app / "misc.events.local").read_text().splitlines()
    assert f"{RESOURCE}.max 1" in events, events
    return [f"a charge of {_EPC + 1}: {refusal}; misc.events.local {', '.join(events)}"]


def updates_keep_it(node: RelayedNode) -> list[str]:
    """CPU changed by CRI; and a client that brings a limit of its own."""
    return [_updated(node, _containers["app"])]


def by_the_older_cri(node: RelayedNode) -> list[str]:
    """A pod's whole life in v1alpha2: the limit from birth, kept by an update, and nothing left in the end."""
    node.speak("v1alpha2")
    app, born = node.run("older", "app", _NOTED)
    assert (node.told(app), limit(app)) == ([_LINE], str(_EPC))
    assert _LINE in born, born
    version, sandbox = text(node.cri.call("Version"), "runtime_api_version"), node.sandboxes.pop("older")
    assert version == "v1alpha2"
    refusal, kept = refused(app, _EPC + 1), _updated(node, app)
    node.cri.call("StopContainer", {"container_id": app.name})
    assert _states(node)[app.name] == "CONTAINER_EXITED"
    remove_pod(node.cri, sandbox)
    assert not app.exists()
    assert (app.name in _states(node), sandbox in pods(node.cri)) == (False, False)
    node.speak("v1")
    return [f"{version}: the program found {_LINE}; {_EPC + 1}: {refusal}; {kept}; stopped, removed, not listed"]


def after_kill(node: RelayedNode) -> list[str]:
    """The relay is killed and started again: limits stay, it asks the runtime what there is, and updates are decided as
    before, without a list that passes."""
    app = _containers["app"]
    node.end(signal.SIGKILL)
    assert limit(app) == str(_EPC)
    node.start()
    until(lambda: "limits know sandboxes=1 containers=2 by=v1" in node.log(), "the relay knows both containers")
    node.cri.call("UpdateContainerResources", {"container_id": app.name, "linux": {"cpu_shares": 256}})
    return [f"after kill -9: {_updated(node, app)}"]


def mended(node: RelayedNode) -> list[str]:
    """A create that is too large to be held goes on undecided; the relay then gives the container its limit by an
    update of its own, at the runtime and so in the kernel, and later updates keep it. Where the update is there before
    the start, the container is born with it."""
    large, before = node.run("large", "app", _NOTED, behind=_FIELD + bytes(_LARGE))
    until(lambda: f"limits=mended container={large.name}" in node.log(), "the relay's own update", 30)
    until(lambda: limit(large) == str(_EPC), "the limit in the kernel")
    at_birth = f"limits=mended container={large.name} phase=Phase.CREATED" in node.log()
    assert node.told(large) in ([], [_LINE] if at_birth else [])
    assert set(node.told(large)) <= set(before)
    refusal, kept = refused(large, _EPC + 1), _updated(node, large)
    return [f"a create of {_LARGE} bytes: born with {before}, limited later: {_EPC + 1}: {refusal}; {kept}"]


def refused_by_setting(node: RelayedNode) -> list[str]:
    """`limits.unsupported: refuse`: a container that asks for what this kernel has not is not created, and kubelet
    hears which and why."""
    node.end(signal.SIGTERM)
    node.start("--set", "limits.unsupported=refuse")
    with pytest.raises(grpc.RpcError) as failed:
        node.create("wants-tdx", "app", {"nodeward.io/limits": json.dumps({"app": {"tdx": "1"}})})
    assert isinstance(failed.value, grpc.Call)
    said = str(failed.value.details())
    assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, said
    assert said.startswith("default/wants-tdx, container app: declares 1 of tdx"), said
    app, _ = node.run("noted-again", "app", _NOTED)
    assert limit(app) == str(_EPC)
    return [f"RESOURCE_EXHAUSTED: {said}"]


def by_spec(node: RelayedNode) -> list[str]:
    """Beside the daemon: a pod of the API server's, without any annotation, has its containers' limits from birth and
    its budget, and the kernel refuses at both levels."""
    api, daemon = node.with_daemon()
    until(lambda: "facts=daemon" in node.log(), "the relay has the daemon's facts", 20)
    declared = {"app": {EPC: "8Ki"}, "other": {EPC: "4Ki"}}  # 8 Ki is _EPC
    api.add("spec", declared)
    app, born = node.run("spec", "app", {})
    other, others = node.run("spec", "other", {})
    api.add("spec", declared, {"app": app.name, "other": other.name})  # kubelet's word of the pod's status
    assert _LINE in born, born
    assert f"{RESOURCE} {4 * KIB}" in others, others
    daemon.enforced("spec", "app", "other", "")
    assert (limit(app), limit(app.parent)) == (str(8 * KIB), str(12 * KIB))
    _containers["spec"] = app
    of_container = refused(app, 8 * KIB + 1)
    of_pod = refused(app.parent / node.sandboxes["spec"], 12 * KIB + 1)
    return [
        f"relay and daemon, no annotation: the program found {_LINE}, the daemon wrote the pod's {limit(app.parent)}",
        f"refused: {8 * KIB + 1} in the container {of_container}, {12 * KIB + 1} in the sandbox, by the pod, {of_pod}",
    ]


def mended_by_the_daemon(node: RelayedNode) -> list[str]:
    """Somebody takes the limit away: the daemon writes it again, the relay tells the runtime nothing, and the next
    update that passes it brings the runtime the same value, not another."""
    app = _containers["spec"]
    (app / "misc.max").write_text(f"{RESOURCE} max")
    until(lambda: limit(app) == str(_EPC), "the daemon's repair", 30)
    assert f"limits=mended container={app.name}" not in node.log()
    return [f"taken away and written again by the daemon: {limit(app)}; {_updated(node, app)}"]


def daemon_killed(node: RelayedNode) -> list[str]:
    """Without the daemon again: what was written stays; new containers have what their annotations say, and pods no
    budget."""
    assert node.daemon is not None
    node.daemon.end(signal.SIGKILL)
    until(lambda: "WARNING nodeward.app.relay.facts" in node.log(), "the relay knows it", 20)
    bare, _ = node.run("bare", "app", {})
    noted, born = node.run("noted-alone", "app", _NOTED)
    assert _LINE in born, born
    pods = bare.parent.parent
    assert (limit(bare), limit(noted)) == ("max", str(_EPC))
    assert (limit(pods / "poduid-noted-alone"), limit(pods / "poduid-spec")) == ("max", str(12 * KIB))
    return [
        f"daemon killed: by annotation {_LINE}, without one {limit(bare)}, no pod budget; the one from before stays"
    ]


def _states(node: RelayedNode) -> Mapping[str, str]:
    """The state of each container that is listed."""
    listed = node.cri.call("ListContainers").get("containers")
    found = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return {text(one, "id"): text(one, "state") for one in found}


def _updated(node: RelayedNode, app: Path) -> str:
    before = (app / "cpu.weight").read_text()
    shares = 4096 if before.strip() == "20" else 512
    resources: Record = {"cpu_shares": shares, "unified": {"misc.max": _MORE}}
    node.cri.call("UpdateContainerResources", {"container_id": app.name, "linux": resources})
    after = (app / "cpu.weight").read_text()
    assert after != before
    assert limit(app) == str(_EPC)
    return f"cpu.weight {before.strip()} to {after.strip()}, the client's own misc.max '{_MORE}': {_LINE} stays"


CASES: Final[Mapping[str, Callable[[RelayedNode], list[str]]]] = {
    case.__name__: case
    for case in (
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
}
