"""A node that moves from one front to the other while three VMs hold their keys in the kernel, though its daemon is
killed at each step of it."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from nodeward.features.keys.rows import KeyClaims, KeyRow
from tests.peers.containerd import children
from tests.peers.nriside import Json, Record, member
from tests.vm.inside import CGROUPS, SECOND_RESOURCE, amount, charge, until
from tests.vm.joined_node import NAME, PODS, Node, container, manifest

_IDS: Final = "devices.kubevirt.io/sev-esids"
_KEYS: Final = 5
_WITHIN_S: Final = 30.0
_SETTINGS: Final = """
keys:
  mode: enforce
  kubelet_dir: {home}
  kubelet_root: {root}
  kinds: {{{key}: {{resources: [{ids}], publisher: device-plugin, publish: {ids}}}}}
  dra: {{mode: enforce, share: none, cdi_dir: {cdi}}}
"""


def keys_move_there_and_back(node: Node) -> None:
    plain = node.daemon.config.read_text()
    inside = Path("/proc", str(children(node.containerd.holder.pid)[0]), "root")
    (inside / "run/cdi").mkdir(exist_ok=True)
    where = {"home": inside / "var/lib/kubelet", "root": node.kubelet.plan.folder / "root", "cdi": inside / "run/cdi"}
    assert node.daemon.end(signal.SIGTERM) == 0
    node.daemon.configure(_SETTINGS.format(key=SECOND_RESOURCE, ids=_IDS, **where))
    node.daemon.start()
    node.api.call("POST", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates", _template())
    until(lambda: _allocatable(node) == _KEYS, "kubelet has the ids", _WITHIN_S)
    held = {name: _by_id(node, name) for name in ("vm-a", "vm-b")}

    _moves(node, "dra", (0.0, 1.5))
    until(lambda: _allocatable(node) == 2, "kubelet has the ids alone that are out", _WITHIN_S)
    held["vm-c"] = _by_claim(node, "vm-c")

    _moves(node, "plugin", (1.0,))
    until(lambda: _allocatable(node) == 4, "kubelet has what is free", _WITHIN_S)
    held["vm-d"] = _by_id(node, "vm-d")

    assert amount(CGROUPS / "misc.current", SECOND_RESOURCE) == len(held)
    until(lambda: _sums(node) == (4, 4, 4, 1), "each key is counted once", _WITHIN_S)
    for name, (app, _) in held.items():
        assert node.container_ids(name) == {"app": app.name}, f"the container of {name} began anew"
    for _, key in held.values():
        os.close(key)
    for name in held:
        node.api.call("DELETE", f"{PODS}/{name}")
    until(lambda: all(node.api.find(f"{PODS}/{name}") is None for name in held), "the pods have ended", _WITHIN_S)
    node.daemon.ask("keys", "move", "--to", "settings", "--yes")
    assert node.daemon.end(signal.SIGTERM) == 0
    node.daemon.config.write_text(plain)
    node.daemon.start()


def _moves(node: Node, to: str, deaths_s: tuple[float, ...]) -> None:
    """Asks once for the move; the daemon is killed so long after each of its starts, and gets there all the same."""
    with suppress(AssertionError):  # status 1: it is not there yet
        node.daemon.ask("keys", "move", "--to", to, "--yes", "--within", "0")
    for seconds in deaths_s:
        time.sleep(seconds)
        assert node.daemon.end(signal.SIGKILL) == -signal.SIGKILL
        node.daemon.start()
        until(lambda: _claims(node).front == to, "the daemon knows the front that was chosen")
    said = node.daemon.ask("keys", "move", "--to", to, "--yes")
    assert f"{SECOND_RESOURCE}: keys go by {'claim' if to == 'dra' else 'id'}: claims may be given" in said, said


def _by_id(node: Node, name: str) -> tuple[Path, int]:
    limits: Json = {"limits": {_IDS: "1"}}
    return _taken(node, name, [container("app", resources=limits)])


def _by_claim(node: Node, name: str) -> tuple[Path, int]:
    uses: Json = {"claims": [{"name": "key"}]}
    claims: Json = [{"name": "key", "resourceClaimTemplateName": "sev-key"}]
    return _taken(node, name, [container("app", resources=uses)], resourceClaims=claims)


def _taken(node: Node, name: str, containers: list[Record], **spec: Json) -> tuple[Path, int]:
    """A pod that the scheduler has placed and whose VM has its key; its container's cgroup and who holds the key."""
    node.api.call("POST", PODS, manifest(name, containers, **spec))
    until(lambda: bool(node.container_ids(name)), f"{name} runs", _WITHIN_S)
    app = node.running(name, ["app"]).containers["app"]
    return app, charge(app, 1, resource=SECOND_RESOURCE)


def _row(node: Node) -> KeyRow:
    view = node.daemon.view()
    assert view is not None
    (row,) = view.keys
    return row


def _sums(node: Node) -> tuple[int | None, ...]:
    row = _row(node)
    return row.used, row.entitled, row.charged, row.free


def _claims(node: Node) -> KeyClaims:
    found = _row(node).claims
    assert found is not None
    return found


def _allocatable(node: Node) -> int:
    status = node.api.call("GET", f"/api/v1/nodes/{NAME}")
    return int(str(member(status, "status", "allocatable", _IDS) or 0))


def _template() -> Record:
    request: Record = {"name": "key", "exactly": {"deviceClassName": "sev-es"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "sev-key", "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
