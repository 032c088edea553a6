"""What a real kubelet 1.37 has handed out of a device plugin's ids, read from its own checkpoint and shown by `nodeward
keys`.

The plugin is ours and its ids stand for nothing: this machine has no keys, so the kernel's side is unknown here.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nodeward.wire import kubelet_checkpoint
from tests.peers.daemon import WITHIN_S, until
from tests.peers.deviceplugin import DevicePlugin, running_plugin
from tests.peers.keynode import PODS
from tests.peers.nriside import Record, member
from tests.peers.podnode import Node, container, running_node
from tests.told import tell

TDX = "devices.kubevirt.io/tdx"
IDS = tuple(f"tdx{number}" for number in range(12))
ONE: Record = {"limits": {TDX: "1"}}


@contextmanager
def node_with_plugin() -> Iterator[tuple[Node, DevicePlugin, Path]]:
    """The node, the plugin, and kubelet's folder as it is seen from here."""
    with running_node() as node, running_plugin(node.keys.home / "device-plugins", TDX, IDS) as plugin:
        count_keys(node, node.keys.home)
        yield node, plugin, node.keys.home


def count_keys(node: Node, home: Path) -> None:
    """The daemon, started anew with the ledger on."""
    process = node.nodeward.process
    assert process is not None
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=WITHIN_S)
    said = node.nodeward.config.read_text()
    node.nodeward.config.write_text(f"{said}ledger: {{mode: observe, kubelet_dir: {home}}}\n")
    node.nodeward.start()


def keys(node: Node) -> str:
    """What `nodeward keys` prints."""
    return node.nodeward.command("keys").stdout


def runs(node: Node, pod: str) -> None:
    """Returns when the pod does."""
    until(lambda: node.phase(pod) == "Running", f"{pod} runs")


def uid_of(node: Node, pod: str) -> str:
    """The UID by which kubelet's checkpoint names the pod."""
    return str(member(node.api.find(f"{PODS}/{pod}") or {}, "metadata", "uid"))


def test_the_ids_that_kubelet_gave_to_pods_are_read_from_its_checkpoint_and_shown() -> None:
    """Given two pods that ask for a key each, when they run and one is deleted, then the ids are shown with them."""
    with node_with_plugin() as (node, plugin, home):
        until(lambda: f"{TDX}: 12 healthy ids registered with kubelet: tdx0 to tdx11" in keys(node), "registered ids")
        for pod in ("vm-a", "vm-b"):
            node.create(pod, [container("app", resources=ONE)])
            runs(node, pod)
        (first,), (second,) = plugin.allocated
        assert first != second

        data = (home / kubelet_checkpoint.PLACE).read_bytes()
        found = kubelet_checkpoint.decode(data, [TDX])
        assert found.pods == {
            uid_of(node, "vm-a"): {TDX: (first,)},
            uid_of(node, "vm-b"): {TDX: (second,)},
        }
        assert found.registered == {TDX: IDS}

        until(lambda: f"default/vm-a: promised 1, holds nothing that is known, id {first}" in keys(node), "vm-a's id")
        until(lambda: f"default/vm-b: promised 1, holds nothing that is known, id {second}" in keys(node), "vm-b's id")
        assert "finding" not in keys(node)
        for line in keys(node).splitlines():
            tell(line)

        node.delete("vm-a")
        until(lambda: f"which has ended: kubelet has not taken back id {first} yet" in keys(node), "the end of vm-a")
        node.create("vm-c", [container("app", resources=ONE)])
        runs(node, "vm-c")
        (third,) = plugin.allocated[-1]
        until(lambda: f"default/vm-c: promised 1, holds nothing that is known, id {third}" in keys(node), "vm-c's id")
        assert "which has ended" not in keys(node)
        for pod in ("vm-b", "vm-c"):
            node.delete(pod)
