"""Keys offered to a real kubelet 1.37 by `nodeward node` itself: the ledger decides, and pods show what came of it.

This machine has no keys. The daemon's cgroup tree is a folder with misc files that the test writes: what is in use is
what they say, and the pods' own cgroups are elsewhere, so a pod never takes the key that it was promised.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeward.app.grants import BOOT_ID, decode
from nodeward.wire import kubelet_checkpoint
from tests.peers.containerd import children, running_containerd
from tests.peers.daemon import NODEWARD, until
from tests.peers.deviceplugin import running_plugin
from tests.peers.dying_daemon import STEPS
from tests.peers.keynode import KeyNode, timeline
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

    def on_record(self) -> int:
        """How many grants the daemon has on record; those of pods that have ended for as long as kubelet names them."""
        granted = decode(
            (self.node.nodeward.folder / "run" / "grants.journal").read_bytes(), Path(BOOT_ID).read_text().strip()
        )
        return sum(granted.get(TDX, {}).values())

    def shown(self) -> str:
        """What `nodeward keys` prints."""
        return self.node.nodeward.command("keys").stdout

    def start(self, healthy: int, program: Sequence[str] = (NODEWARD,)) -> subprocess.Popen[bytes]:
        """Starts the daemon, and returns when kubelet has a list of this one with so many healthy ids."""
        checkpoint = self.pods.home / kubelet_checkpoint.PLACE

        def written() -> int:
            return checkpoint.stat().st_ctime_ns if checkpoint.exists() else 0

        def healthy_now() -> int:
            return len(kubelet_checkpoint.decode(checkpoint.read_bytes(), [TDX]).registered.get(TDX, ()))

        before = written()
        process = self.node.nodeward.start(program)
        until(lambda: written() != before and healthy_now() == healthy, f"{healthy} healthy ids")
        return process

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
        found.start(keys)
        yield found


@pytest.fixture(name="here", scope="module")
def _here() -> Iterator[Offered]:
    with offered(8) as found:
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

        with timeline(pods, TDX) as seen:
            here.end(signal.SIGKILL)
            here.start(2)
            here.has(4, 2)
            tell(f"capacity and allocatable after the daemon's kill -9: {seen()}")
            assert {found[0] for _, found in seen() if found is not None} == {4}
        pods.create("vm-d", TDX)
        until(lambda: pods.failed("vm-d") != "", "vm-d fails")

        with timeline(pods, TDX) as seen:
            served = here.node.nodeward.log().count("plugin=serving")
            pods.restart()
            until(lambda: here.node.nodeward.log().count("plugin=serving") > served, "it is registered again")
            here.has(4, 2)
            tell(f"capacity and allocatable after kubelet's kill -9: {seen()}")
        assert (pods.phase("vm-a"), pods.phase("vm-b")) == ("Running", "Running")
        here.uses(4, 1)
        here.has(4, 3)
        with timeline(pods, TDX) as seen:
            here.end(signal.SIGTERM)
            here.start(3)
            here.has(4, 3)
            tell(f"capacity and allocatable over an upgrade of the daemon: {seen()}")
            assert {found[0] for _, found in seen() if found is not None} == {4}
        here.runs("vm-e")
        held = [pods.held(pod, TDX) for pod in ("vm-a", "vm-b", "vm-e")]
        assert len(dict.fromkeys(held)) == 3

        told = here.node.nodeward.command("decommission")
        assert (told.returncode, told.stdout) == (0, f"{TDX}: kubelet has none left\n")
        here.has(0, 0)
        assert pods.phase("vm-a") == "Running"


@pytest.mark.parametrize("step", STEPS)
def test_a_daemon_that_dies_within_an_allocation_has_forgotten_nothing_that_kubelet_heard(
    step: str, here: Offered
) -> None:
    """Given a daemon that is killed at this step, when the next one lives, then it knows of each id that a pod has."""
    pods, dies, lives = here.pods, f"dies-{step}", f"lives-{step}"
    here.end(signal.SIGTERM)
    process = here.start(8, [sys.executable, "-m", "tests.peers.dying_daemon", step])
    before = here.on_record()
    pods.create(dies, TDX)
    assert process.wait(timeout=60) == -signal.SIGKILL
    until(lambda: pods.phase(dies) == "Running" or pods.failed(dies) != "", "kubelet has seen it")
    tell(f"{step}: {pods.failed(dies) or 'the pod runs'}")
    assert (pods.failed(dies) == "") is (step == "sent")
    assert here.on_record() - before == (step in ("recorded", "answered", "sent"))

    here.start(8)
    here.runs(lives)
    held = dict.fromkeys((*pods.held(dies, TDX), *pods.held(lives, TDX)))
    assert len(held) == 1 + (step == "sent")
    until(lambda: all(f"id {name}" in here.shown() for name in held), "each id is shown with its pod")
    for pod in (dies, lives):
        pods.delete(pod)
    until(lambda: here.shown().startswith(f"tdx ({TDX}): 8 free"), "every key is free again")


def test_a_rival_keeps_its_name_and_the_finding_says_so() -> None:
    """Given another plugin of the name, when the daemon starts, then it says so, and takes over when the other ends."""
    with offered(4) as here:
        here.has(4, 4)
        here.end(signal.SIGTERM)
        with running_plugin(here.pods.home / "device-plugins", TDX, ["tdx0", "tdx1"]):
            here.has(2, 2)
            here.node.nodeward.start()
            until(lambda: f"finding: {TDX} is offered by somebody else" in here.shown(), "the finding")
            for line in here.shown().splitlines():
                tell(line)
            assert here.pods.capacity(TDX) == (2, 2)
        here.has(4, 4)
