"""Runs inside the guest: VMs of all sorts take keys from a real misc controller; `nodeward keys` tells who has them.

No runtime runs: the cgroups are made here as kubelet makes them, and a VM is a process that opens the charging device.
The API server is the double. Each stage prints what the command said, then what the kernel's own files said.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from nodeward.cli import client
from tests.patience import patience
from tests.vm.chain_node import Api
from tests.vm.forked import NODEWARD
from tests.vm.inside import CGROUPS, DEVICE, played, until

TDX, CAPACITY = "tdx", 16
SEV, SEV_CAPACITY = "sev_es", 4
"""Of this kind nobody takes one."""
FOLDER: Final = Path("/run/keys")
SOCKET: Final = f"{FOLDER}/run/nodeward.sock"
STAGE: Final = "keys: stage "
NOTICED: Final = "keys: noticed "
ROUNDS: Final = 8
SETTINGS: Final = """
node_name: guest
state_dir: {folder}/state
run_dir: {folder}/run
nri: {{enabled: false}}
limits: {{mode: observe}}
kube: {{url: "{url}"}}
ledger: {{mode: observe{keys}}}
"""
HIDDEN: Final = "the real root is hidden"
_NODE: Final = CGROUPS / "node.scope"
_SAID: Final = f", keys: {{{TDX}: {{resources: [devices.kubevirt.io/tdx, tdx.intel.com/keys], capacity: {CAPACITY}}}}}"
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
Shown = dict[str, object]


class Vms:
    """Processes' places, and the open files that hold their keys."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}

    def begin(self, name: str, cgroup: Path, keys: int = 1, *, moves_to: Path | None = None) -> None:
        """A VM of this cgroup takes keys; with `moves_to` its process then goes to another, and its charge does not."""
        fd = os.open(DEVICE, os.O_WRONLY | os.O_CLOEXEC)
        (cgroup / "cgroup.procs").write_text(str(os.getpid()))
        os.write(fd, f"take 0 {keys}".encode())
        ((moves_to or CGROUPS) / "cgroup.procs").write_text(str(os.getpid()))
        (CGROUPS / "cgroup.procs").write_text(str(os.getpid()))
        self.held[name] = fd

    def end(self, name: str) -> None:
        """The VM ends and gives back what it has."""
        os.close(self.held.pop(name))


def cgroup(path: str) -> Path:
    """A cgroup, with the misc controller handed down to it."""
    place = CGROUPS
    for name in path.strip("/").split("/"):
        (place / "cgroup.subtree_control").write_text("+misc")
        place /= name
        place.mkdir(exist_ok=True)
    return place


def counter(place: Path) -> int:
    """What the kernel says that a cgroup holds."""
    lines = (place / "misc.current").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{TDX} ")), 0)


def asked() -> dict[str, Shown]:
    """`nodeward keys -o json`, by kind."""
    status, said, _ = played(["keys", "-o", "json"], SOCKET)
    return {row["key"]: row for row in json.loads(said)} if not status else {}


def stage(name: str, holds: Callable[[Shown], bool]) -> None:
    """Waits until the command shows it of `tdx`, and prints what it shows and what the kernel holds."""
    begin = time.monotonic()
    seen: list[dict[str, Shown]] = [{}]

    def shown() -> bool:
        seen[0] = asked()
        return holds(seen[0].get(TDX, {}))

    try:
        until(shown, name, 20.0)
    finally:
        kernel = {str(path.parent): counter(path.parent) for path in sorted(CGROUPS.rglob("misc.current"))}
        held = {place: count for place, count in kernel.items() if count}
        took_s = round(time.monotonic() - begin, 1)
        print(f"\n{STAGE}{json.dumps([name, took_s, seen[0], held])}", flush=True)


def notices(foreign: int) -> int:
    """After how many milliseconds the daemon counts so much foreign use. It withholds ids in the same decision."""
    begin = time.monotonic()

    def counts() -> bool:
        rows = json.loads(client.get("/v1/status", SOCKET))["keys"]
        return any(row["key"] == TDX and row["foreign"] == foreign for row in rows)

    until(counts, f"{foreign} in foreign use", 20.0)
    return round((time.monotonic() - begin) * 1000)


def stages(vms: Vms, launchers: Mapping[str, Path], outside: Path) -> None:
    """Keys are promised and taken, by everybody who can."""
    kata, gone = cgroup(f"kubepods/poduid-kata/{'c' * 64}"), cgroup("kubepods/podgone/leaf")
    katas = [cgroup("system.slice/containerd.service"), cgroup(f"kata_overhead/{'d' * 64}")]
    stage("promised, not taken", lambda row: row.get("entitled") == 3 and row.get("free") == 13)
    vms.begin("a", launchers["vm-a"])
    vms.begin("kata", kata, moves_to=outside)
    stage("taken late, one process moved away", lambda row: row.get("charged") == 2 and row.get("free") == 13)
    vms.begin("outside", outside, 2)
    stage("a VM outside of any pod", lambda row: row.get("foreign") == 2 and row.get("free") == 11)
    for place in katas:
        vms.begin(place.name, place)
    stage("Kata's VMs outside of their pods", lambda row: row.get("foreign") == 4 and row.get("free") == 9)
    vms.begin("gone", gone, 1)
    for place in (gone, gone.parent):
        place.rmdir()
    stage("a removed cgroup with a live charge", lambda row: row.get("foreign") == 5 and row.get("free") == 8)
    vms.begin("b", launchers["vm-b"], 2)
    stage("more taken than promised", lambda row: row.get("charged") == 4 and row.get("free") == 7)
    for name in list(vms.held):
        vms.end(name)
    stage("all ended", lambda row: (row.get("used"), row.get("free")) == (0, 13))


def foreign_rounds(vms: Vms, pod: Path, outside: Path) -> None:
    """Foreign VMs that come by themselves, and such that come as a pod's VM ends, which leaves the root as it was. Each
    round meets the poll at another moment."""
    for name, swaps in (("the root moves", False), ("the root stands", True)):
        took_ms = []
        for number in range(ROUNDS):
            vms.begin("pod", pod)
            time.sleep(2.1 + number * 0.27)
            if swaps:
                vms.begin("foreign", outside)
                vms.end("pod")
            else:
                vms.begin("foreign", outside)
            took_ms.append(notices(1))
            for one in list(vms.held):
                vms.end(one)
            notices(0)
        print(f"\n{NOTICED}{json.dumps([name, took_ms])}", flush=True)


def hidden(vms: Vms, outside: Path) -> None:
    """A pod and a machine take keys in the cgroups that the daemon sees, and another machine elsewhere."""
    procs = _NODE / "init.scope" / "cgroup.procs"
    until(lambda: procs.exists() and procs.read_text() != "", "the daemon is in its node")
    vms.begin("pod", cgroup(f"node.scope/kubepods/poduid-vm-a/{'a' * 64}"))
    vms.begin("machine", cgroup("node.scope/machine.slice/vm.scope"), 2)
    vms.begin("outside", outside, 3)
    stage(HIDDEN, lambda row: (row.get("charged"), row.get("foreign")) == (1, 2))


@contextmanager
def daemon(url: str, *within: str, keys: str = "") -> Iterator[None]:
    """Runs for as long as the block; what it logged is printed where that fails."""
    settings, log = FOLDER / "nodeward.yaml", FOLDER / "log"
    settings.write_text(SETTINGS.format(folder=FOLDER, url=url, keys=keys).lstrip())
    with log.open("wb") as file:
        process = subprocess.Popen([*within, NODEWARD, "node", "--config", str(settings)], stdout=file, stderr=file)
    try:
        yield
    except AssertionError as error:
        print(f"{error}\n{log.read_text()[-4000:]}", flush=True)
        raise
    finally:
        process.terminate()
        process.wait(60)


def main() -> int:
    os.environ["NODEWARD_PATIENCE"] = str(patience())
    FOLDER.mkdir()
    api, vms = Api(), Vms()
    launchers = {
        name: cgroup(f"kubepods/poduid-{name}/{number * 64}") for name, number in (("vm-a", "a"), ("vm-b", "b"))
    }
    outside = cgroup("machine.slice/vm.scope")
    for name in launchers:
        api.add(name, {"compute": {"devices.kubevirt.io/tdx": "1"}})
    api.add("kata", {"app": {}}, overhead={"tdx.intel.com/keys": "1"})
    try:
        with daemon(api.url):
            stages(vms, launchers, outside)
            foreign_rounds(vms, launchers["vm-a"], outside)
        _NODE.mkdir()
        with daemon(api.url, "sh", "-ec", _WITHIN, "sh", keys=_SAID):
            hidden(vms, outside)
    except AssertionError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
