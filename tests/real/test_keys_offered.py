"""Keys offered to a real kubelet 1.37 by `nodeward node` itself: the ledger decides, and pods show what came of it.

This machine has no keys. The daemon's cgroup tree is a folder with misc files that the test writes: what is in use is
what they say, and the pods' own cgroups are elsewhere, so a pod never takes the key that it was promised.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.peers.containerd import children, running_containerd
from tests.peers.daemon import until
from tests.peers.deviceplugin import running_plugin
from tests.peers.keynode import KeyNode
from tests.peers.kube import running_apiserver
from tests.real.test_kubelet import Node, running_node
from tests.told import tell

TDX = "devices.kubevirt.io/tdx"
ROW = f"{{resources: [{TDX}], publisher: device-plugin, publish: {TDX}}}"


class Offered:
    """The node with the daemon's ledger on, and what the kernel is to say."""

    def __init__(self, node: Node, name: str, home: Path) -> None:
        self.node = node
        self.pods = KeyNode(node.api, node.kubelet, node.containerd, name, home)
        self._root = node.nodeward.folder / "cgroup"

    def uses(self, capacity: int, used: int) -> None:
        """So many keys there are, and so many are in use by somebody: a digit each, since the files are held open."""
        for name, amount in (("misc.capacity", capacity), ("misc.current", used)):
            with (self._root / name).open("rb+" if (self._root / name).exists() else "wb") as file:
                file.write(f"tdx {amount}\n".encode())

    def shown(self) -> str:
        """What `nodeward keys` prints."""
        return self.node.nodeward.command("keys").stdout

    def end(self, how: signal.Signals) -> None:
        """Ends the daemon."""
        process = self.node.nodeward.process
        assert process is not None
        process.send_signal(how)
        process.wait(timeout=30)

    def has(self, capacity: int, allocatable: int) -> None:
        """Returns when the node's status does."""
        until(lambda: self.pods.capacity(TDX) == (capacity, allocatable), f"{capacity} and {allocatable}")

    def runs(self, pod: str) -> None:
        """A pod that asks for a key, once it runs."""
        self.pods.create(pod, TDX)
        until(lambda: self.pods.phase(pod) == "Running" or self.pods.failed(pod) != "", f"{pod} runs or fails")
        assert self.pods.failed(pod) == ""


@contextmanager
def offered(keys: int) -> Iterator[Offered]:
    """The node, with so many keys, none of them in use."""
    with (
        tempfile.TemporaryDirectory(prefix="kub") as control_plane,
        tempfile.TemporaryDirectory(prefix="ctd") as folder,
        running_apiserver(Path(control_plane)) as server,
        running_containerd(Path(folder)) as containerd,
        running_node(server, containerd) as node,
    ):
        home = Path("/proc", str(children(containerd.holder.pid)[0]), "root/var/lib/kubelet")
        found = Offered(node, server.node, home)
        found.end(signal.SIGTERM)
        found.uses(keys, 0)
        said = node.nodeward.config.read_text()
        ledger = f"ledger: {{mode: enforce, kubelet_dir: {home}, keys: {{tdx: {ROW}}}}}"
        node.nodeward.config.write_text(f"{said}{ledger}\n")
        node.nodeward.start()
        yield found


def test_keys_are_offered_given_and_withheld_as_the_kernel_has_them() -> None:
    """Given four keys, when pods come, somebody else takes some, daemon and kubelet die, then none is given twice."""
    with offered(4) as here:
        pods = here.pods
        here.has(4, 4)
        here.runs("vm-a")
        assert pods.held("vm-a", TDX) == ("tdx-key-0000",)
        for line in here.shown().splitlines():
            tell(line)

        here.uses(4, 2)
        here.has(4, 2)
        here.runs("vm-b")
        pods.create("vm-c", TDX)
        until(lambda: pods.failed("vm-c") != "", "vm-c fails")
        tell(pods.failed("vm-c"))

        here.end(signal.SIGKILL)
        here.node.nodeward.start()
        here.has(4, 2)
        pods.create("vm-d", TDX)
        until(lambda: pods.failed("vm-d") != "", "vm-d fails")

        pods.restart()
        here.has(4, 2)
        assert (pods.phase("vm-a"), pods.phase("vm-b")) == ("Running", "Running")
        here.uses(4, 1)
        here.has(4, 3)
        here.runs("vm-e")
        held = [pods.held(pod, TDX) for pod in ("vm-a", "vm-b", "vm-e")]
        assert len(dict.fromkeys(held)) == 3

        told = here.node.nodeward.command("decommission")
        assert (told.returncode, told.stdout) == (0, f"{TDX}: kubelet has none left\n")
        here.has(0, 0)
        assert pods.phase("vm-a") == "Running"


def test_a_rival_keeps_its_name_and_the_finding_says_so() -> None:
    """Given another plugin of the name, when the daemon starts, then it says so, and takes over when the other ends."""
    with offered(4) as here:
        here.has(4, 4)
        here.end(signal.SIGTERM)
        with running_plugin(here.pods.home / "device-plugins", TDX, ["tdx0", "tdx1"]):
            here.has(2, 2)
            here.node.nodeward.start()
            until(lambda: "plugin=rival" in here.node.nodeward.log(), "the rival is seen")
            for line in here.shown().splitlines():
                tell(line)
            assert here.pods.capacity(TDX) == (2, 2)
        here.has(4, 4)
