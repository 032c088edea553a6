"""`sgx.intel.com/epc` in the status of a real node, with the shipped rights: beside another writer, and after kubelet's
reset. This machine has no EPC: the daemon's cgroup tree is a folder with misc files that the test writes.
"""

from __future__ import annotations

import time

from tests.peers.daemon import until
from tests.peers.nriside import member, objects
from tests.peers.podnode import EPC, Node, running_node
from tests.rigs.cluster import allow
from tests.told import tell

SIZE = 64 << 20


def said(node: Node) -> str:
    """How the daemon says that the number stands."""
    every = objects(node.view().get("components"))
    return next((str(one["detail"]) for one in every if member(one, "name") == "node-epc"), "")


def has(node: Node, wanted: tuple[int, int] | None) -> None:
    try:
        until(lambda: node.keys.capacity(EPC) == wanted, f"{wanted} of {EPC}")
    except AssertionError as error:
        raise AssertionError(
            f"{error}: {node.keys.capacity(EPC)}, {said(node)}\n{node.nodeward.log()[-2000:]}"
        ) from error


def test_the_node_has_what_there_is_also_after_kubelets_reset_and_never_against_another_writer() -> None:
    with running_node() as node:
        allow(node.api, "nodeward", "node/node-epc.yaml")
        (node.nodeward.folder / "cgroup" / "cgroup.controllers").write_text("misc\n")
        (node.nodeward.folder / "cgroup" / "misc.capacity").write_text(f"sgx_epc {SIZE}\n")
        node.nodeward.end()
        config = node.nodeward.config
        config.write_text(f"{config.read_text()}limits: {{mode: observe, node_epc: true}}\n")
        node.nodeward.start()
        until(lambda: "let one alone write it" in said(node), "somebody else has written it before")
        assert f"is {1 << 30} by " in said(node)
        assert member(node.api.find("/api/v1/nodes/node-1") or {}, "status", "capacity", EPC) == "1Gi"

        node.keys.says(EPC, None)
        has(node, (SIZE, SIZE))
        began = time.monotonic()
        node.keys.says(EPC, "0", by="kubelet")  # it does so only where it registers before its device manager begins
        has(node, (SIZE, SIZE))
        tell(f"right {time.monotonic() - began:.1f} s after kubelet's reset")
        node.keys.says(EPC, "4096", by="nfd-master")
        until(lambda: "is 4096 by nfd-master" in said(node), "it is told who writes it too")
        node.keys.says(EPC, None)
        has(node, (SIZE, SIZE))

        node.nodeward.end()
        has(node, (SIZE, SIZE))
        told = node.nodeward.command("uninstall", "--config", str(config))
        assert f"would take {EPC} out of the status of the node node-1" in told.stdout
        told = node.nodeward.command("uninstall", "--config", str(config), "--yes")
        assert f"{EPC} of the node node-1: taken out" in told.stdout, told.stderr
        has(node, None)
