"""A claim of enclave memory, from POST to the kernel's limit: the scheduler allocates, the daemon prepares, and what
it consumes is the container's `misc.max` from birth, without any annotation."""

import os
import signal
from pathlib import Path
from typing import Final

from tests.peers.containerd import children
from tests.peers.nriside import Json, Record, member, objects
from tests.rigs.cluster import allow, claim_template, make, manifests
from tests.vm.inside import KIB, RESOURCE, charge, limit, limits, refused, until
from tests.vm.joined_node import PODS, Node, container, manifest

_RESOURCES: Final = "/apis/resource.k8s.io/v1"
_AMOUNT: Final = 64 * KIB
_WITHIN_S: Final = 30.0


def claim_to_misc_max(node: Node) -> None:
    allow(node.api, node.cluster.daemon_user, "node/claims.yaml")
    asked: Record = {"deviceClassName": "sgx-epc", "capacity": {"requests": {"epc": "64Ki"}}}
    template = claim_template("epc", [{"name": "memory", "exactly": asked}])
    make(node.api, *manifests("node/device-classes.yaml"), template)
    assert node.daemon.end(signal.SIGTERM) == 0
    cdi = Path("/proc", str(children(node.containerd.holder.pid)[0]), "root/run/cdi")
    cdi.mkdir(exist_ok=True)
    root = node.kubelet.plan.folder / "root"
    said = "limits.dra.mode=enforce", f"limits.dra.cdi_dir={cdi}", "limits.dra.devices=[/dev/null]"
    flags = [word for one in (*said, f"keys.kubelet_root={root}") for word in ("--set", one)]
    node.daemon.start("answers", *flags)
    until(lambda: _published(node) != "", "the node's enclave memory is published", _WITHIN_S)
    before = _published(node)

    claims: Json = [{"name": "memory", "resourceClaimTemplateName": "epc"}]
    uses: Json = {"claims": [{"name": "memory"}]}
    pod = manifest("claimed", [container("app", resources=uses), container("side")], resourceClaims=claims)
    node.api.call("POST", f"{PODS}?fieldValidation=Strict", pod)
    until(lambda: node.container_ids("claimed").keys() >= {"app", "side"}, "the pod runs", _WITHIN_S)
    runs = node.running("claimed", ["app", "side"])
    app, side = runs.containers["app"], runs.containers["side"]
    assert (node.born_with(app), node.born_with(side)) == (f"{RESOURCE} {_AMOUNT}", f"{RESOURCE} 0")
    until(lambda: limit(runs.cgroup) == str(_AMOUNT), "the pod's budget in the kernel")
    assert limits(app, side) == [_AMOUNT, 0]
    node.daemon.enforced("claimed", "", "app", "side")
    row = node.daemon.row("claimed", "app")
    assert row is not None
    assert row.source.startswith("claim default/claimed-memory-"), row.source
    held = charge(app, _AMOUNT)
    refused(app, 1)
    os.close(held)

    node.api.call("DELETE", f"{PODS}/claimed")
    until(lambda: node.api.find(f"{PODS}/claimed") is None, "the pod is gone", _WITHIN_S)
    until(lambda: not list(cdi.glob("sgx.nodeward.io-*")), "the claim is taken back", _WITHIN_S)
    assert _published(node) == before
    assert node.daemon.end(signal.SIGTERM) == 0
    node.daemon.start()


def _published(node: Node) -> str:
    slices = objects(node.api.call("GET", f"{_RESOURCES}/resourceslices").get("items"))
    found = [device for one in slices for device in objects(member(one, "spec", "devices")) if not device.get("taints")]
    return str(member(found[0], "capacity", "epc", "value")) if found else ""
