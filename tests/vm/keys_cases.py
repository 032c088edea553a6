"""VMs of all sorts take keys from a real misc controller; `nodeward keys` tells who has them. One function a case, in
their order; after each, what the command says is what the kernel's own files say.

No runtime runs: the cgroups are made here as kubelet makes them, and a VM is a process that opens the charging device.
The API server is the double.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from nodeward.features.keys.rows import KeyRow
from tests.vm.chain_node import Api
from tests.vm.forked import NODEWARD
from tests.vm.inside import CGROUPS, amount, cgroup, charge, named, played, until, without

TDX, CAPACITY = "tdx", 16
SEV, SEV_CAPACITY = "sev_es", 4
"""Of this kind nobody takes one."""
_FOLDER: Final = Path("/run/keys")
_SOCKET: Final = f"{_FOLDER}/run/nodeward.sock"
_ROUNDS: Final = 8
_SETTINGS: Final = """
node_name: guest
state_dir: {folder}/state
run_dir: {folder}/run
nri: {{enabled: false}}
limits: {{mode: observe}}
kube: {{url: "{url}"}}
keys: {{mode: observe{keys}}}
"""
_NODE: Final = CGROUPS / "node.scope"
_SAID: Final = f", kinds: {{{TDX}: {{resources: [devices.kubevirt.io/tdx, tdx.intel.com/keys], capacity: {CAPACITY}}}}}"
_WITHIN: Final = """
echo $$ > /sys/fs/cgroup/node.scope/cgroup.procs
exec unshare --cgroup --mount sh -ec '
    umount /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    mkdir /sys/fs/cgroup/init.scope
    echo $$ > /sys/fs/cgroup/init.scope/cgroup.procs
    exec "$@"
' sh "$@"
"""
"""Runs a program as kind does a node's: that cgroup is the root of all that it sees."""


@dataclass(slots=True)
class KeysNode:
    """The daemon, the places where VMs are, and the open files that hold their keys."""

    api: Api
    launchers: Mapping[str, Path]
    """Of pods."""
    outside: Path
    running: ExitStack
    """The daemon that runs."""
    held: dict[str, int] = field(default_factory=dict)

    def log(self) -> str:
        return (_FOLDER / "log").read_text()[-4000:]

    def begin(self, name: str, place: Path, keys: int = 1, *, moves_to: Path = CGROUPS) -> None:
        """A VM of this cgroup takes keys; its process then goes to another, and its charge does not."""
        self.held[name] = charge(place, keys, moves_to)
        (CGROUPS / "cgroup.procs").write_text(str(os.getpid()))

    def end(self, *names: str) -> None:
        for name in names:
            os.close(self.held.pop(name))

    def row(self, key: str = TDX) -> KeyRow | None:
        status, said, _ = played(["keys", "-o", "json"], _SOCKET)
        rows = [] if status else msgspec.json.decode(said, type=list[KeyRow])
        return next((row for row in rows if row.key == key), None)

    def shows(self, holds: Callable[[KeyRow], bool]) -> KeyRow:
        """The row of `tdx` that holds, once there is one."""
        seen: list[KeyRow] = []

        def shown() -> bool:
            seen[:] = [row for row in [self.row()] if row is not None and holds(row)]
            return bool(seen)

        until(shown, f"what is shown of {TDX}", 20.0)
        return seen[0]

    def agrees(self, holds: Callable[[KeyRow], bool]) -> KeyRow:
        """As `shows`; its figures are the kernel's, and all keys of the other kind are free."""
        row = self.shows(holds)
        pods = {place.name: _held(place) for place in (CGROUPS / "kubepods").glob("pod*")}
        assert (row.capacity, row.used, row.charged) == (CAPACITY, _held(CGROUPS), sum(pods.values()))
        assert {one.pod: one.charged for one in row.holders} == {
            name: pods.get(f"poduid-{name}", 0) for name in ("kata", "vm-a", "vm-b")
        }
        other = self.row(SEV)
        assert other is not None
        assert (other.capacity, other.used, other.free, other.holders) == (SEV_CAPACITY, 0, SEV_CAPACITY, ())
        return row


def _held(place: Path) -> int:
    return amount(place / "misc.current", TDX)


def promised(node: KeysNode) -> None:
    """Three pods are promised a key each, and none is taken."""
    node.agrees(lambda row: (row.entitled, row.free) == (3, 13))


def taken_late(node: KeysNode) -> None:
    """Two are taken; the process of one has moved away since."""
    node.begin("a", node.launchers["vm-a"])
    node.begin("kata", node.launchers["kata"], moves_to=node.outside)
    node.agrees(lambda row: (row.charged, row.free) == (2, 13))


def foreign(node: KeysNode) -> None:
    """A VM outside of any pod, Kata's outside of their pods, and a removed cgroup with a live charge: all have their
    places."""
    node.begin("outside", node.outside, 2)
    node.agrees(lambda row: (row.foreign, row.free) == (2, 11))
    for path in ("system.slice/containerd.service", f"kata_overhead/{'d' * 64}"):
        node.begin(path, cgroup(path))
    node.agrees(lambda row: (row.foreign, row.free) == (4, 9))
    gone = cgroup("kubepods/podgone/leaf")
    node.begin("gone", gone)
    for place in (gone, gone.parent):
        place.rmdir()
    row = node.agrees(lambda row: (row.foreign, row.free) == (5, 8))
    assert sorted((one.cgroup, one.amount, one.about) for one in row.elsewhere) == [
        (f"/kata_overhead/{'d' * 64}", 1, "Kata, outside of its pod"),
        ("/kubepods", 1, "orphan: its cgroup was removed"),
        ("/machine.slice/vm.scope", 2, "a machine outside of Kubernetes"),
        ("/system.slice/containerd.service", 1, "a service of the host"),
    ]


def more_than_promised(node: KeysNode) -> None:
    """A pod takes one more than it was promised; in the end all give back what they have."""
    node.begin("b", node.launchers["vm-b"], 2)
    node.agrees(lambda row: (row.charged, row.free) == (4, 7))
    node.end(*node.held)
    node.agrees(lambda row: (row.used, row.free) == (0, 13))


def foreign_at_any_moment(node: KeysNode) -> None:
    """Foreign VMs that come by themselves, and such that come as a pod's VM ends, which leaves the root as it was, are
    counted each time. Each round meets the poll at another moment."""
    for swaps in (False, True):
        for number in range(_ROUNDS):
            node.begin("pod", node.launchers["vm-a"])
            time.sleep(2.1 + number * 0.27)
            node.begin("foreign", node.outside)
            if swaps:
                node.end("pod")
            node.shows(lambda row: row.foreign == 1)
            node.end(*node.held)
            node.shows(lambda row: row.foreign == 0)


def real_root_is_hidden(node: KeysNode) -> None:
    """Given a daemon in a cgroup namespace of its own, as in kind, when a pod and a machine take keys in the cgroups
    that it sees, and another machine elsewhere: what it sees is counted, by the settings' number, and what it does not
    see is warned of."""
    _NODE.mkdir()
    node.running.close()
    node.running.enter_context(_daemon(node.api.url, "sh", "-ec", _WITHIN, "sh", keys=_SAID))
    procs = _NODE / "init.scope" / "cgroup.procs"
    until(lambda: procs.exists() and procs.read_text() != "", "the daemon is in its node")
    node.begin("pod", cgroup(f"node.scope/kubepods/poduid-vm-a/{'a' * 64}"))
    node.begin("machine", cgroup("node.scope/machine.slice/vm.scope"), 2)
    node.begin("outside", node.outside, 3)
    row = node.shows(lambda row: (row.charged, row.foreign) == (1, 2))
    assert (_held(CGROUPS), _held(_NODE)) == (6, 3)
    assert (row.capacity, row.used, row.entitled, row.free) == (CAPACITY, 3, 3, 11)
    assert row.findings == (
        f"misc.capacity does not show how many keys there are, so the settings' {CAPACITY} is taken for true; what is "
        "used outside of the cgroups that are seen here is not counted.",
    )


@contextmanager
def _daemon(url: str, *within: str, keys: str = "") -> Iterator[None]:
    settings = _FOLDER / "nodeward.yaml"
    settings.write_text(_SETTINGS.format(folder=_FOLDER, url=url, keys=keys).lstrip())
    with (_FOLDER / "log").open("ab") as file:
        process = subprocess.Popen([*within, NODEWARD, "node", "--config", str(settings)], stdout=file, stderr=file)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@contextmanager
def running_node() -> Iterator[KeysNode]:
    _FOLDER.mkdir()
    api = Api()
    ids = {"vm-a": "a", "vm-b": "b", "kata": "c"}
    launchers = {name: cgroup(f"kubepods/poduid-{name}/{id_ * 64}") for name, id_ in ids.items()}
    for name in ("vm-a", "vm-b"):
        api.add(name, {"compute": {"devices.kubevirt.io/tdx": "1"}})
    api.add("kata", {"app": {}}, overhead={"tdx.intel.com/keys": "1"})
    with ExitStack() as running:
        running.enter_context(_daemon(api.url))
        yield KeysNode(api, launchers, cgroup("machine.slice/vm.scope"), running)


MORE: Final = named(promised, taken_late, foreign, more_than_promised, foreign_at_any_moment, real_root_is_hidden)
CASES: Final = without(MORE, foreign_at_any_moment)
