"""A node with a real kubelet 1.37 to which `nodeward node` itself offers keys, for the tests of that.

This machine has no keys. The daemon's cgroup tree is a folder with misc files that the test writes: what is in use is
what they say, and the pods' own cgroups are elsewhere, so a pod never takes the key that it was promised.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from nodeward.app.host.boot import BOOT_ID
from nodeward.app.node.grants import decode
from tests.peers.daemon import NODEWARD, WITHIN_S, until
from tests.peers.podnode import Node, running_node
from tests.told import tell

TDX = "devices.kubevirt.io/tdx"
KEYS = 8
LATE, MADE_AGAIN = "the answer was not found in time; the pod can be made again", 5
ROW = f"{{resources: [{TDX}], publisher: device-plugin, publish: {TDX}}}"


class Offered:
    """The node with the daemon's ledger on, and what the kernel is to say."""

    def __init__(self, node: Node) -> None:
        self.node, self.pods = node, node.keys
        self._root, self._said = node.nodeward.folder / "cgroup", node.nodeward.config.read_text()

    def uses(self, capacity: int, used: int) -> None:
        """So many keys there are, and so many are in use by somebody: a digit, since that file is held open."""
        (self._root / "misc.next").write_text(f"tdx {capacity}\n")
        (self._root / "misc.next").rename(self._root / "misc.capacity")
        current = self._root / "misc.current"
        with current.open("rb+" if current.exists() else "wb") as file:
            file.write(f"tdx {used}\n".encode())

    def offers(self, row: str) -> None:
        """The settings' row of the keys, from the daemon's next start on. This kubelet's --root-dir is not its usual
        one."""
        kubelet = f"kubelet_dir: {self.pods.home}, kubelet_root: {self.pods.root}"
        ledger = f"{{mode: enforce, {kubelet}, keys: {{tdx: {row}}}}}"
        self.node.nodeward.config.write_text(f"{self._said}ledger: {ledger}\n")

    def on_record(self) -> int:
        """How many grants the daemon has on record; those of pods that have ended for as long as kubelet names them."""
        return sum(self.granted(Path(BOOT_ID).read_text().strip()).values())

    def granted(self, boot: str) -> Mapping[str, int]:
        """The ids that the daemon has on record as granted in that boot, with how many times."""
        return (decode((self.node.nodeward.folder / "run" / "grants.journal").read_bytes(), boot) or {}).get(TDX, {})

    def shown(self) -> str:
        """What `nodeward keys` prints."""
        return self.node.nodeward.command("keys").stdout

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The daemon's."""
        assert self.node.nodeward.process is not None
        return self.node.nodeward.process

    def start(self, healthy: int, program: Sequence[str] = (NODEWARD,)) -> subprocess.Popen[bytes]:
        """Starts the daemon, and returns when kubelet has a list of this one with so many healthy ids."""
        with self.pods.relisted(TDX, (KEYS, healthy)):
            return self.node.nodeward.start(program)

    def replaced(self, healthy: int, end: Callable[[], None]) -> subprocess.Popen[bytes]:
        """Starts another daemon beside the one that runs, which is ended once the other waits for it."""
        process = self.node.nodeward.start()
        lock = str(self.node.nodeward.folder / "run" / "node.lock")
        until(lambda: _has_open(process.pid, lock), "the second daemon waits")
        with self.pods.relisted(TDX, (KEYS, healthy)):
            end()
        return process

    def end(self, how: signal.Signals) -> None:
        """Ends the daemon."""
        self.process.send_signal(how)
        self.process.wait(timeout=WITHIN_S)

    def says(self, words: str) -> None:
        """Returns when `nodeward keys` does."""
        try:
            until(lambda: words in self.shown(), "keys")
        except AssertionError:
            assert words in self.shown()

    def has(self, capacity: int, allocatable: int) -> None:
        """Returns when kubelet and the node's status do."""
        try:
            self.pods.has(TDX, (capacity, allocatable))
        except AssertionError as error:
            told = f"{self.pods.healthy(TDX)} of {self.pods.capacity(TDX)}\n{self.shown()}"
            raise AssertionError(f"{error}: {told}\n{self.node.nodeward.log()[-3000:]}") from error

    def runs(self, pod: str) -> None:
        """A pod that asks for a key, once it runs."""
        self.makes(pod, lambda: self.pods.runs(pod))

    def makes(self, pod: str, is_so: Callable[[], bool], init: Sequence[int] = ()) -> None:
        """A pod that asks for a key, once this is so; made again where this machine was too slow to answer kubelet."""
        for late in range(MADE_AGAIN + 1):
            self.pods.create(pod, TDX, init=init)
            until(lambda: is_so() or self.pods.failed(pod) != "", f"{pod} is there or fails")
            why = self.pods.failed(pod)
            if LATE not in why or late == MADE_AGAIN:
                break
            tell(f"{pod} is made again: {why}")
            self.pods.delete(pod)
        assert why == "", f"{why}\n{self.shown()}"

    def is_left_by(self, *pods: str) -> None:
        """Deletes the pods, and returns when every key is free and offered again."""
        for pod in pods:
            self.pods.delete(pod)
        self.uses(KEYS, 0)
        until(lambda: self.shown().startswith(f"tdx ({TDX}): {KEYS} free"), "every key is free again")
        self.has(KEYS, KEYS)


def _has_open(pid: int, path: str) -> bool:
    """Whether the process has this file open."""
    try:
        return path in [os.readlink(one) for one in Path("/proc", str(pid), "fd").iterdir()]
    except FileNotFoundError:  # closed meanwhile
        return False


@contextmanager
def offered() -> Iterator[Offered]:
    """The node, with KEYS keys, none of them in use."""
    with running_node() as node:
        found = Offered(node)
        found.end(signal.SIGTERM)
        found.uses(KEYS, 0)
        found.offers(ROW)
        found.start(KEYS)
        yield found
