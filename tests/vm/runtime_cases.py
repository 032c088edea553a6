"""The cases of several runtimes: which path two limits of one container take to the kernel, and that both get there.

They run inside the guest, in this order, on a node that nothing has touched and with no daemon yet. What a
runtime was told is read from the container's own OCI configuration. See test_runtimes.py.
"""

import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import grpc
import pytest

from tests.peers.containerd import NEWEST, OLD, Containerd, NriOptions, Release, running_containerd
from tests.peers.cri import Cri
from tests.vm.chain_node import READS, Api, Node
from tests.vm.inside import CGROUPS, EPC, KIB, RESOURCE, SECOND_RESOURCE, Daemon, limit, refused, until

KEYS: Final = "amd.com/sev-es"
NEW_RUNC: Final = "runc"
OLD_RUNC: Final = "runc-old"
OLD_CRUN: Final = "crun-old"
_FOLDER: Final = Path("/dev/shm")
_NRI: Final = Path("/run/nri.sock")
_SETTINGS: Final = """
limits: {{resources: {{{epc}: {resource}, {keys}: {second}}}}}
kube: {{url: "{url}"}}
"""


@dataclass(slots=True)
class RuntimesNode(Node):
    handlers: Mapping[str, Path] = field(default_factory=dict)
    running: ExitStack = field(default_factory=ExitStack)

    def log(self) -> str:
        return f"{self.daemon.log()}\n{self.containerd.log()}"

    def replace(self, release: Release) -> None:
        self.pods.clear()
        self.running.close()
        self.containerd, self.cri = _containerd(self.running, self.handlers, release)


def _containerd(running: ExitStack, handlers: Mapping[str, Path], release: Release) -> tuple[Containerd, Cri]:
    folder = _FOLDER / release.peer
    folder.mkdir()
    containerd = running.enter_context(running_containerd(folder, release=release, handlers=handlers))
    _NRI.unlink(missing_ok=True)
    _NRI.symlink_to(containerd.nri_socket)
    return containerd, running.enter_context(containerd.cri())


@contextmanager
def running_node(runc: str, crun: str) -> Iterator[RuntimesNode]:
    Path("/dev/stdin").symlink_to("/proc/self/fd/0")  # crun reads it when it updates a container
    with ExitStack() as running:
        handlers = {OLD_RUNC: Path(runc), OLD_CRUN: Path(crun)}
        containerd, cri = _containerd(running, handlers, OLD)
        api = Api()
        settings = _SETTINGS.format(epc=EPC, resource=RESOURCE, keys=KEYS, second=SECOND_RESOURCE, url=api.url)
        daemon = Daemon(_NRI, settings.lstrip())
        try:
            yield RuntimesNode(containerd, cri, api, daemon, handlers=handlers, running=running)
        finally:
            daemon.end(signal.SIGKILL)


_EPC: Final = 8 * KIB
_KEYS: Final = 2
_FIRST: Final = f"{RESOURCE} {_EPC}"
_BOTH: Final = [_FIRST, f"{SECOND_RESOURCE} {_KEYS}"]
_CONTAINER: Final = CGROUPS / "kubepods" / "poduid-bare" / ("a" * 64)
"""Where crun alone is to put a container."""
_AWAY_S: Final = 40.0
_NEW_PLACE: Final = Path("/usr/local/bin/runc")
"""Where the daemon and doctor would see the new runc."""
_LINES: Final = ("--set", "nri.multi_line=true")


def old_crun_alone(node: RuntimesNode) -> None:
    """No daemon, and no pod yet: a pod's cgroup of old crun's own making lacks the controller; so no `misc.max`."""
    said = _crun(node, [_FIRST])
    assert "the requested cgroup controller `misc` is not available" in said, said
    giving = [path.parent for path in CGROUPS.rglob("cgroup.subtree_control") if "misc" in path.read_text().split()]
    assert giving == []


def daemon_switches_misc_on(node: RuntimesNode) -> None:
    """The daemon starts, and hands the controller down to that pod: crun can write one line there, and not two."""
    _CONTAINER.mkdir(parents=True, exist_ok=True)
    node.daemon.start()
    assert node.daemon.runtime() == f"containerd {OLD.version}"
    until(lambda: limit(_CONTAINER) == "max", "misc is on in the pod that crun has made")
    _CONTAINER.rmdir()
    both = _crun(node, _BOTH)
    assert "nvalid argument" in both, both
    one = _crun(node, [_FIRST])
    assert (one, limit(_CONTAINER)) == ("", str(_EPC))
    refused(_CONTAINER, _EPC + 1)
    _crun_ends(node)
    _CONTAINER.parent.rmdir()


def changed_by_the_runtime(node: RuntimesNode) -> None:
    """CRI changes a container's CPU, whichever OCI runtime it has: both limits stay."""
    for name in ("by-crun", "by-old-runc", "by-runc"):
        app = node.pods[name].containers["app"]
        before = (app / "cpu.weight").read_text()
        node.cri.call("UpdateContainerResources", {"container_id": app.name, "linux": {"cpu_shares": 512}})
        assert (app / "cpu.weight").read_text() != before
        assert _limits(app) == _BOTH


def nri_switched_off(node: RuntimesNode) -> None:
    """containerd 1.7 as it comes, with NRI off: the daemon finds containers by cgroup and status, and writes both.

    It waits half a minute for a runtime that was there (neighbours/cgroups/finder.py); then each search finds what is
    new.
    """
    node.containerd.stop()
    node.containerd.configure(NriOptions(disable=True))
    node.containerd.start()
    for name in ("found", "found-next"):
        pod = node.run_pod(name, ("app",))
        app = pod.containers["app"]
        assert node.containerd.told(app.name) == []
        node.api.add(name, {"app": {EPC: "8Ki", KEYS: "2"}}, ids={"app": app.name})
        until(partial(_hold_both, app, pod.cgroup), f"both limits of {name}", _AWAY_S)
        node.daemon.enforced(name, "", "app")
    assert node.daemon.runtime() == ""
    _refuses(node.pods["found-next"].containers["app"])


def newer_containerd(node: RuntimesNode) -> None:
    """containerd 2.4 takes its place: the first limit by either runc, the second by the daemon. Old crun does not fit
    to it, whoever sets limits."""
    node.replace(NEWEST)
    node.daemon.end(signal.SIGTERM)
    node.daemon.start()
    _two_limits(node, "new-by-runc", NEW_RUNC)
    _two_limits(node, "new-by-old", OLD_RUNC)
    with pytest.raises(grpc.RpcError, match="unknown version specified"):
        node.run_pod("misfit", (), handler=OLD_CRUN)


def lines_beside_old_runtimes(node: RuntimesNode) -> None:
    """With `nri.multi_line`, beside the old ones in the usual folders, neither runc is given two lines: with both a
    container starts, and has both limits before its program runs. doctor says which setting is wrong for them."""
    told = _told_of_lines(node)
    assert told.startswith("held: runc 1.1"), told
    assert "crun 1.8" in told, told
    _two_limits(node, "lines-by-old", OLD_RUNC)
    _two_limits(node, "lines-by-new", NEW_RUNC)
    _doctored(node, "multi-line-held")


def both_from_birth_with_new_runc(node: RuntimesNode) -> None:
    """With `nri.multi_line` and no old one to be seen, a new runc writes both."""
    for program in (OLD_RUNC, OLD_CRUN):
        place = node.handlers[program]
        place.rename(place.with_name(f"{place.name}-hidden"))
    _NEW_PLACE.symlink_to(node.containerd.peer / "bin" / "runc")
    told = _told_of_lines(node)
    assert told.startswith("on: runc 1.5"), told
    _two_limits(node, "lines-by-runc", NEW_RUNC, _BOTH)


def two_lines_are_refused_by_an_old_runc_that_was_not_seen(node: RuntimesNode) -> None:
    """Where the daemon saw none that is too old, and one comes while it runs: a container of two limits does not start,
    and doctor says why."""
    _NEW_PLACE.unlink()
    for program in (OLD_RUNC, OLD_CRUN):
        place = node.handlers[program]
        place.with_name(f"{place.name}-hidden").rename(place)
    node.api.add("lines-unseen", {"app": {EPC: "8Ki", KEYS: "2"}})
    pod = node.run_pod("lines-unseen", (), handler=OLD_RUNC)
    with pytest.raises(grpc.RpcError, match="nvalid argument"):
        node.add_container(pod, "app")
    _doctored(node, "multi-line-refused")


def _told_of_lines(node: RuntimesNode) -> str:
    """What the daemon says of `nri.multi_line` after a start with it; on a machine where programs take longer to tell
    their versions than it waits, after another one."""
    told = ""
    for _ in range(3):
        node.daemon.end(signal.SIGTERM)
        node.daemon.start("answers", *_LINES)
        told = node.daemon.lines()
        if "not tell" not in told:
            break
    return told


def _doctored(node: RuntimesNode, code: str) -> None:
    found = node.daemon.findings("--set", "kube.enabled=false", *_LINES)
    told = [one.what for one in found if one.code == code]
    for program in ("runc 1.1", "crun 1.8"):
        assert any(program in line for line in told), found


def _two_limits(node: RuntimesNode, name: str, handler: str, by_runtime: Sequence[str] = (_FIRST,)) -> None:
    """A container with two limits: what its runtime was told, what its program finds before it does anything else, and
    both in the kernel, refusing what is above them. What the runtime was not told the daemon writes."""
    node.api.add(name, {"app": {EPC: "8Ki", KEYS: "2"}})
    pod = node.run_pod(name, ("app",), handler=handler, first=READS)
    app = pod.containers["app"]
    assert _limits(app) == _BOTH
    born = node.read(name, "app")
    assert set(_BOTH) <= set(born), born
    until(lambda: _limits(pod.cgroup) == _BOTH, f"both limits of the pod {name}")
    assert node.containerd.told(app.name) == [*by_runtime]
    node.daemon.enforced(name, "", "app")
    _refuses(app)


def _refuses(app: Path) -> None:
    """Above each limit the kernel refuses, and says at which cgroup."""
    for resource, amount in ((RESOURCE, _EPC), (SECOND_RESOURCE, _KEYS)):
        refused(app, amount + 1, resource)
    events = (app / "misc.events.local").read_text().splitlines()
    assert events == [f"{RESOURCE}.max 1", f"{SECOND_RESOURCE}.max 1"], events


def _limits(cgroup: Path) -> list[str]:
    return [f"{resource} {limit(cgroup, resource)}" for resource in (RESOURCE, SECOND_RESOURCE)]


def _hold_both(*cgroups: Path) -> bool:
    return all(_limits(cgroup) == _BOTH for cgroup in cgroups)


def _crun(node: RuntimesNode, misc_max: Sequence[str]) -> str:
    """What crun by itself says of a container with this `misc.max`; empty if it runs."""
    _crun_ends(node)
    bundle = Path("/dev/shm/bundle")
    (bundle / "rootfs").mkdir(parents=True, exist_ok=True)
    shutil.copy(node.containerd.peer / "bin" / "pause", bundle / "rootfs")
    (bundle / "config.json").unlink(missing_ok=True)
    program = str(node.handlers[OLD_CRUN])
    subprocess.run([program, "spec"], cwd=bundle, check=True, timeout=60)
    config = json.loads((bundle / "config.json").read_text())
    config["process"] |= {"args": ["/pause"], "terminal": False}
    config["linux"]["cgroupsPath"] = f"/{_CONTAINER.relative_to(CGROUPS)}"
    config["linux"]["resources"] = {"unified": {"misc.max": "\n".join(misc_max)}}
    (bundle / "config.json").write_text(json.dumps(config))
    with (bundle / "said").open("w+") as said:
        subprocess.run([program, "run", "--detach", "alone"], cwd=bundle, stdout=said, stderr=said, timeout=60)
        said.seek(0)
        return said.read().strip()


def _crun_ends(node: RuntimesNode) -> None:
    subprocess.run([str(node.handlers[OLD_CRUN]), "delete", "--force", "alone"], capture_output=True, timeout=60)


CASES: Final[Mapping[str, Callable[[RuntimesNode], None]]] = {
    "old_crun_alone": old_crun_alone,
    "daemon_switches_misc_on": daemon_switches_misc_on,
    "two_limits_with_old_crun": lambda node: _two_limits(node, "by-crun", OLD_CRUN),
    "two_limits_with_old_runc": lambda node: _two_limits(node, "by-old-runc", OLD_RUNC),
    "two_limits_with_new_runc": lambda node: _two_limits(node, "by-runc", NEW_RUNC),
    **{
        case.__name__: case
        for case in (
            changed_by_the_runtime,
            nri_switched_off,
            newer_containerd,
            lines_beside_old_runtimes,
            both_from_birth_with_new_runc,
            two_lines_are_refused_by_an_old_runc_that_was_not_seen,
        )
    },
}
