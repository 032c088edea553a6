"""What the shipped units do under a real systemd: order, readiness, limits, restarts, the watchdog, the end."""

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Final

import msgspec

from nodeward.features.keys.rows import KeyRow
from nodeward.features.keys.settings import KeysSettings
from nodeward.host.clock import SystemClock
from nodeward.host.hostfs import OsFiles
from nodeward.people import client
from nodeward.people.rows import NodeView
from nodeward_sim.doubles.kubelet import SimKubelet
from nodeward_sim.doubles.qgs import Qgs
from tests.pages import of_page
from tests.vm.chains import CAPACITY
from tests.vm.inside import CGROUPS, SECOND_RESOURCE, limit, refused, until, without
from tests.vm.systemd import BUNDLED, UNITS
from tests.vm.units_node import (
    DAEMON,
    DUMP,
    KUBELET,
    KUBELET_CONFIG,
    LISTEN,
    OFFERED,
    QUOTES,
    RELAY,
    RUNTIME,
    SPEC,
    Node,
)

CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER = 0, 1, 3
POD = "web"


def order(node: Node) -> None:
    node.control("start", "multi-user.target")
    until(lambda: all(node.active(unit) for unit in (RUNTIME, RELAY, DAEMON, KUBELET)), "all units are started", 60)
    ready = {unit: int(node.shown(unit, "ActiveEnterTimestampMonotonic")) for unit in (RELAY, DAEMON)}
    began = int(node.shown(KUBELET, "ExecMainStartTimestampMonotonic"))
    restarts = {unit: node.shown(unit, "NRestarts") for unit in (RUNTIME, RELAY, DAEMON)}
    assert set(restarts.values()) == {"0"}, (restarts, node.log())
    assert ready[RELAY] <= ready[DAEMON] <= began, (ready, began, node.log())


def relayed(node: Node) -> None:
    """The runtime answers at a socket that looks like its own."""
    node.answers()
    ours, theirs = LISTEN.stat(), node.containerd.cri_socket.stat()
    assert (ours.st_mode, ours.st_uid, ours.st_gid) == (theirs.st_mode, theirs.st_uid, theirs.st_gid)


def limited(node: Node) -> None:
    """A pod made through the relay gets its limit by NRI from the daemon in its cage, in a scope that systemd made."""
    until(lambda: "containerd" in node.nodeward("status"), "the daemon is connected", 30)
    cgroup = node.run(POD, 8192)
    until(lambda: limit(cgroup) == "8192", "the limit is there", 30)
    until(lambda: _shown(node) == ("enforced", ""), "shown as enforced", 30)
    row = node.row(POD)
    assert row is not None
    assert row.source == "annotation epc-limit.nri.io/container.app"
    slice_ = node.control("show", "--value", "--property", "Slice", cgroup.name).strip()
    assert slice_ == cgroup.parent.name, slice_
    node.control("daemon-reload")
    assert limit(cgroup) == "8192", "systemd left it there"
    refused(cgroup, 8193)
    (cgroup / "misc.max").write_text("sgx_epc max")
    until(lambda: limit(cgroup) == "8192", "the limit is mended", 30)


def budgeted(node: Node) -> None:
    """The slice of a pod, which systemd has made, holds the pod's budget: its container's limit and its overhead."""
    cgroup = node.run(SPEC.name, None)
    slice_, budget = cgroup.parent, "12288"
    until(lambda: (limit(cgroup), limit(slice_)) == ("8192", budget), "both limits are there", 30)
    until(lambda: _state(node, SPEC.name, "") == "enforced", "the budget is shown as enforced", 30)
    assert slice_.name == "kubepods-burstable-poduid_sliced.slice", slice_
    assert node.control("show", "--value", "--property", "ActiveState", slice_.name).strip() == "active"
    node.control("daemon-reload")
    node.control("set-property", "--runtime", slice_.name, "TasksMax=500")  # as a kubelet changes a pod
    assert (limit(cgroup), limit(slice_)) == ("8192", budget), "systemd left them there"
    refused(slice_, 12289)
    (slice_ / "misc.max").write_text("sgx_epc max")
    until(lambda: limit(slice_) == budget, "the budget is mended", 30)


def _state(node: Node, pod: str, container: str) -> str:
    row = node.row(pod, container)
    return row.state if row is not None else ""


def sealed(node: Node) -> None:
    """The cgroup tree becomes read-only where the daemon sees it: it says so, goes on, and mends all when it can."""
    cgroup, pid = node.cgroups[POD], node.shown(DAEMON, "MainPID")
    _remount(node, "ro")
    (cgroup / "misc.max").write_text("sgx_epc max")
    until(lambda: _shown(node)[0] == "drift" and _shown(node)[1] != "", "shown as drift with an error", 30)
    error = _shown(node)[1]
    assert "Read-only file system" in error, error
    told = _explained(node, "drift")
    assert f"  The last write failed: {error}." in told, told
    doctor = node.inside(DAEMON, "/opt/nodeward/bin/nodeward", "doctor", "--config", "/etc/nodeward.yaml")
    found = next((line for line in doctor.stdout.splitlines() if "cgroups-read-only" in line), "")
    assert (found != "", doctor.returncode) == (True, 1), doctor
    later = node.run("later", 4096)
    assert limit(later) == "4096", "containerd writes it, and sees the tree writable"
    assert limit(cgroup) == "max"
    _remount(node, "rw")
    until(lambda: limit(cgroup) == "8192", "the limit is mended", 30)
    until(lambda: _shown(node) == ("enforced", ""), "shown as enforced", 30)
    assert (node.shown(DAEMON, "MainPID"), node.shown(DAEMON, "NRestarts")) == (pid, "0"), (
        "it was the same all the time"
    )


def _remount(node: Node, how: str) -> None:
    done = node.inside(DAEMON, "mount", "-o", f"remount,bind,{how}", str(CGROUPS))
    assert done.returncode == 0, done


def _shown(node: Node) -> tuple[str, str]:
    row = node.row(POD)
    return (row.state, row.last_error) if row is not None else ("", "")


def _explained(node: Node, state: str) -> list[str]:
    lines: list[str] = []

    def stands() -> bool:
        lines[:] = node.nodeward("explain", f"default/{POD}/app").splitlines()
        return lines[0] == f"container default/{POD}/app: {state}"

    until(stands, f"explained as {state}", 30)
    return lines


def caged(node: Node) -> None:
    """What the units take from the processes."""
    of_relay = sum(1 << one for one in (CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER))
    for unit, capabilities in ((RELAY, of_relay), (DAEMON, 0)):
        pid = node.shown(unit, "MainPID")
        lines = (line.partition(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        status = {name: value.strip() for name, _, value in lines}
        assert int(status["CapEff"], 16) == capabilities, status["CapEff"]
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert Path(f"/proc/{node.shown(RELAY, 'MainPID')}/oom_score_adj").read_text() == "-999\n"


def pointed(node: Node) -> None:
    """The bundle's command changes kubelet's configuration, and changes it back."""
    before = KUBELET_CONFIG.read_text()
    dry = of_page("relay.md", "nodeward setup relay --config /etc/nodeward.yaml --dry-run")
    flags = ("--config", "/etc/nodeward.yaml", "--kubelet-config", str(KUBELET_CONFIG))
    assert "nothing was changed" in node.typed(dry, *flags[2:])
    assert KUBELET_CONFIG.read_text() == before
    node.typed(of_page("relay.md", "nodeward setup relay --config /etc/nodeward.yaml"), *flags[2:])
    assert f"containerRuntimeEndpoint: unix://{LISTEN}\n" in KUBELET_CONFIG.read_text()
    node.nodeward("setup", "relay", "--undo", *flags)
    assert KUBELET_CONFIG.read_text() == before


def dumped(node: Node) -> None:
    """The dump's writer runs when nothing else wants to; one whose disk hangs outlives its relay, and marks the loss.

    It is stopped, as a hung disk would stop it."""
    relay = node.shown(RELAY, "MainPID")
    (writer,) = map(int, Path(f"/proc/{relay}/task/{relay}/children").read_text().split())
    assert os.getpriority(os.PRIO_PROCESS, writer) == 10
    until(lambda: os.sched_getscheduler(writer) == os.SCHED_IDLE, "it gets what others leave", 60)
    os.kill(writer, signal.SIGSTOP)
    node.answers()
    node.control("restart", f"{RELAY}.service")
    node.answers()
    kept = Path(f"{DUMP}.1")
    until(kept.exists, "the next writer begins a file of its own", 60)
    os.kill(writer, signal.SIGCONT)
    until(lambda: not Path(f"/proc/{writer}").exists(), "the writer ends", 30)
    last = kept.read_text().splitlines()[-1]
    assert "messages are missing here" in last, last


def killed(node: Node) -> None:
    for unit in (RELAY, DAEMON):
        node.control("kill", "--signal", "KILL", f"{unit}.service")
        _again(node, unit, "1")
    node.answers()


def stands(node: Node) -> None:
    node.control("kill", "--signal", "STOP", f"{RELAY}.service")
    _again(node, RELAY, "2")
    node.answers()


def decides(node: Node) -> None:
    """By drop-ins, limits are decided through the relay and not by NRI: in its cage the relay reaches the daemon. That
    one is to offer keys from now on."""
    for unit, keys in ((RELAY, ""), (DAEMON, " NODEWARD_KEYS__MODE=enforce")):
        limits = "NODEWARD_RELAY__LIMITS=true NODEWARD_NRI__ENABLED=false"
        node.drop_in(unit, "limits", f"[Service]\nEnvironment={limits}{keys}\n")
    node.control("daemon-reload")
    node.control("stop", f"{DAEMON}.service")
    for unit in (RELAY, DAEMON):
        node.control("restart", f"{unit}.service")
    log = Path(f"/run/{RELAY}.log")
    until(lambda: "daemon=answers socket=/run/nodeward/relay-door.sock" in log.read_text(), "the daemon decides", 30)
    node.answers()
    cgroup = node.run("relayed", 12288)
    assert limit(cgroup) == "12288"
    pid = node.shown(DAEMON, "MainPID")
    said = [" ".join(line.split()) for line in node.nodeward("status").splitlines()]
    assert f"calls are held for containers, and decided by the node daemon (process {pid})" in said, said
    assert "CreateContainer 1 0 1 1 0" in said, said


def ended(node: Node) -> None:
    pid = node.shown(DAEMON, "MainPID")
    node.control("reload", f"{DAEMON}.service")
    assert node.shown(DAEMON, "MainPID") == pid
    for unit in (RELAY, DAEMON):
        node.control("stop", f"{unit}.service")
        assert (node.shown(unit, "Result"), node.shown(unit, "ExecMainStatus")) == ("success", "0")
    assert not LISTEN.exists()
    assert not [*PLUGINS.glob("nodeward-*")]


def installed(node: Node) -> None:
    """As docs/install.md and docs/relay.md have it, in the place of what was there."""
    for unit in (RELAY, DAEMON):
        (UNITS / f"{unit}.service").unlink()
        shutil.rmtree(UNITS / f"{unit}.service.d")
    subprocess.run(["umount", str(BUNDLED)], check=True, timeout=60)
    place = Path("/etc/systemd/system")  # the guest's systemd looks in UNITS alone
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "--bind", str(UNITS), str(place)], check=True, timeout=60)
    copy = of_page("install.md", "rm -rf /opt/nodeward && cp -r")
    node.typed(copy.replace("dist/nodeward-VERSION-MACHINE-HASH", str(node.bundle)))
    node.typed(of_page("install.md", "cp deploy/systemd/nodeward.service"))
    node.typed(of_page("install.md", "systemctl daemon-reload"))
    node.typed(of_page("install.md", "systemctl enable --now nodeward"))
    until(lambda: "containerd" in node.nodeward("status"), "the daemon is connected", 30)
    node.typed(of_page("install.md", "systemctl reload nodeward"))
    node.typed(of_page("relay.md", "cp deploy/systemd/nodeward-relay.service"))
    node.typed(of_page("relay.md", "systemctl daemon-reload && systemctl enable --now nodeward-relay"))
    node.typed(of_page("relay.md", "systemctl restart kubelet"))
    node.answers()
    assert [node.active(unit) for unit in (RELAY, DAEMON, KUBELET)] == [True] * 3
    node.typed(of_page("install.md", "systemctl disable --now nodeward"))
    assert not node.active(DAEMON)


def _again(node: Node, unit: str, times: str) -> None:
    until(lambda: node.shown(unit, "NRestarts") == times and node.active(unit), f"another {unit}", 90)


PLUGINS: Final = Path(KeysSettings().kubelet_dir, "device-plugins")
_GROUP: Final = "daemon"
"""Of the service's socket, as every distribution has one; systemd takes none that is not there."""
_ALL: Final = (CAPACITY[SECOND_RESOURCE], CAPACITY[SECOND_RESOURCE])


class Neighbours:
    """The doubles of kubelet's device manager and of the service, in a thread with a loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._kubelet = SimKubelet(str(PLUGINS.parent), OsFiles(), SystemClock())
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def kubelet_starts(self) -> None:
        self._run(self._kubelet.start())

    def kubelet_stops(self) -> None:
        self._run(self._kubelet.stop())

    def quotes(self) -> None:
        QUOTES.parent.mkdir(mode=0o755)
        self._run(Qgs(QUOTES).start())
        shutil.chown(QUOTES, _GROUP, _GROUP)
        QUOTES.chmod(0o660)

    def sells(self) -> tuple[int, int] | None:
        """The node's capacity and what of it is allocatable, as kubelet has them."""

        async def looked() -> tuple[int, int] | None:
            return self._kubelet.capacity(OFFERED)

        return asyncio.run_coroutine_threadsafe(looked(), self._loop).result(60)

    def _run(self, what: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(60)


def offered(node: Node) -> None:
    """Given a machine on which no kubelet has run yet, then the keys are registered once it does; also after its folder
    was made anew and the unit restarted. The service for quotes is heard once the unit has its group."""
    found = PLUGINS.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid, list(PLUGINS.iterdir())) == (0o750, 0, []), "the unit made it"
    neighbours = Neighbours()
    neighbours.quotes()
    neighbours.kubelet_starts()
    until(lambda: neighbours.sells() == _ALL, "kubelet has all ids, and all are healthy", 30)
    (ours,) = PLUGINS.glob("nodeward-*.sock")
    assert stat.S_IMODE(ours.stat().st_mode) == 0o600
    until(lambda: "not in the group" in _quotes(), "the service is out of reach", 30)

    neighbours.kubelet_stops()
    shutil.rmtree(PLUGINS, ignore_errors=True)  # as `kubeadm reset` does, while the daemon removes its sockets
    neighbours.kubelet_starts()
    until(lambda: "Read-only file system" in _row().plugin, "the new folder is said to be read-only", 30)
    assert "restart the daemon if kubelet's folder was made after its start" in _row().plugin
    node.drop_in(DAEMON, "quotes", f"[Service]\nSupplementaryGroups={_GROUP}\n")
    node.control("daemon-reload")
    node.control("restart", f"{DAEMON}.service")
    until(lambda: neighbours.sells() == _ALL, "kubelet has them again", 30)
    until(lambda: _quotes() == "answers", "the service is heard", 30)


def _row() -> KeyRow:
    (only,) = msgspec.json.decode(client.get("/v1/status", None), type=NodeView).keys
    return only


def _quotes() -> str:
    sharing = _row().sharing
    return sharing.quotes if sharing is not None else ""


MORE: Final[Mapping[str, Callable[[Node], None]]] = {
    "the runtime, the relay and the daemon come before kubelet": order,
    "the runtime answers through the relay": relayed,
    "a pod gets its limit in systemd's scope and keeps it": limited,
    "the slice of a pod has its budget and keeps it": budgeted,
    "a cgroup tree that becomes read-only is said, and mended when it is writable": sealed,
    "they run without what they do not need": caged,
    "kubelet is pointed at the relay and back": pointed,
    "a dump whose disk hangs is marked when it is back": dumped,
    "killed, they come back": killed,
    "one that stands is ended by the watchdog": stands,
    "the relay decides limits from its cage": decides,
    "keys are offered from the cage, and quotes asked for": offered,
    "they reload and end cleanly": ended,
    "the pages' commands install them": installed,
}
CASES: Final = without(MORE, sealed, dumped, stands, installed)
