"""The cases of several runtimes: which path two limits of one container take to the kernel, and that both get there.

They run inside the guest, in this order, on a node that nothing has touched. What a runtime was told is read from the
container's own OCI configuration. See test_runtimes.py.
"""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import grpc
import pytest

from tests.peers.containerd import IMAGE, NEWEST, OLD, NriOptions
from tests.peers.cri import container_config
from tests.peers.nriside import Record, text
from tests.vm.chain_node import Pod
from tests.vm.inside import CGROUPS, EPC, KIB, RESOURCE, SECOND_RESOURCE, limit, refused, until
from tests.vm.runtime_node import KEYS, NEW_RUNC, OLD_CRUN, OLD_RUNC, RuntimesNode

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


def old_crun_alone(node: RuntimesNode) -> list[str]:
    """No daemon, and no pod yet: a pod's cgroup of old crun's own making lacks the controller; so no `misc.max`."""
    said = _crun(node, [_FIRST])
    assert "the requested cgroup controller `misc` is not available" in said, said
    giving = [path.parent for path in CGROUPS.rglob("cgroup.subtree_control") if "misc" in path.read_text().split()]
    assert giving == []
    return [f"{OLD_CRUN} alone: misc is on nowhere; {said}"]


def daemon_switches_misc_on(node: RuntimesNode) -> list[str]:
    """The daemon starts, and hands the controller down to that pod: crun can write one line there, and not two."""
    _CONTAINER.mkdir(parents=True, exist_ok=True)
    took = node.daemon.start()
    assert node.daemon.runtime() == f"containerd {OLD.version}"
    until(lambda: limit(_CONTAINER) == "max", "misc is on in the pod that crun has made")
    _CONTAINER.rmdir()
    both = _crun(node, _BOTH)
    assert "nvalid argument" in both, both
    one = _crun(node, [_FIRST])
    assert (one, limit(_CONTAINER)) == ("", str(_EPC))
    refusal = refused(_CONTAINER, _EPC + 1)
    _crun_ends(node)
    _CONTAINER.parent.rmdir()
    return [
        f"daemon connected after {took}, misc is on: {OLD_CRUN} alone starts with {_FIRST}; above it {refusal}",
        f"{OLD_CRUN} alone, both limits in one misc.max: {both}",
    ]


def two_limits_with_old_crun(node: RuntimesNode) -> list[str]:
    """The first by crun, in a pod of crun's own making; the second by the daemon, before the program runs."""
    return _two_limits(node, "by-crun", OLD_CRUN, [_FIRST])


def two_limits_with_old_runc(node: RuntimesNode) -> list[str]:
    """The first by runc; the second by the daemon, before the program runs."""
    return _two_limits(node, "by-old-runc", OLD_RUNC, [_FIRST])


def two_limits_with_new_runc(node: RuntimesNode) -> list[str]:
    """The same with a runc that could do more: nobody has said that it can."""
    return _two_limits(node, "by-runc", NEW_RUNC, [_FIRST])


def changed_by_the_runtime(node: RuntimesNode) -> list[str]:
    """CRI changes a container's CPU, whichever OCI runtime it has: both limits stay."""
    return [_changed(node, ("by-crun", "by-old-runc", "by-runc"))]


def nri_switched_off(node: RuntimesNode) -> list[str]:
    """containerd 1.7 as it comes, with NRI off: the daemon finds containers by cgroup and status, and writes both.

    It waits half a minute for a runtime that was there (edges/cgroups/finder.py); then each search finds what is new.
    """
    node.containerd.stop()
    node.containerd.configure(NriOptions(disable=True))
    node.containerd.start()
    said = [_found_by_cgroup(node, name) for name in ("found", "found-next")]
    assert node.daemon.runtime() == ""
    refusals = _refusals(node.pods["found-next"].containers["app"])
    return [f"{_name(node)}, NRI off, by direct write: {'; '.join(said)}; {refusals}"]


def newer_containerd(node: RuntimesNode) -> list[str]:
    """containerd 2.4 takes its place: the first limit by either runc, the second by the daemon."""
    node.replace(NEWEST)
    node.daemon.end(signal.SIGTERM)
    node.daemon.start()
    said = [*_two_limits(node, "new-by-runc", NEW_RUNC, [_FIRST]), *_two_limits(node, "new-by-old", OLD_RUNC, [_FIRST])]
    return [*said, _changed(node, ("new-by-runc", "new-by-old"))]


def newer_containerd_and_old_crun(node: RuntimesNode) -> list[str]:
    """The two do not fit together, whoever sets limits."""
    with pytest.raises(grpc.RpcError, match="unknown version specified") as failed:
        node.run_pod("misfit", (), handler=OLD_CRUN)
    return [f"{_name(node)}, {OLD_CRUN}: {_details(failed.value)}"]


def lines_beside_old_runtimes(node: RuntimesNode) -> list[str]:
    """With `nri.multi_line`, beside the old ones in the usual folders, neither runc is given two lines: with both a
    container starts, and has both limits before its program runs."""
    told = _told_of_lines(node)
    assert told.startswith("held: runc 1.1"), told
    assert "crun 1.8" in told, told
    by_old = _two_limits(node, "lines-by-old", OLD_RUNC, [_FIRST])
    return [f"nri.multi_line true, {told}", *by_old, *_two_limits(node, "lines-by-new", NEW_RUNC, [_FIRST])]


def doctor_names_the_wrong_setting(node: RuntimesNode) -> list[str]:
    """`nodeward doctor` finds the old runtimes in the usual folders, and says which setting is wrong for them."""
    return _doctored(node, "multi-line-held")


def both_from_birth_with_new_runc(node: RuntimesNode) -> list[str]:
    """With `nri.multi_line` and no old one to be seen, a new runc writes both."""
    for program in (OLD_RUNC, OLD_CRUN):
        place = node.handlers[program]
        place.rename(place.with_name(f"{place.name}-hidden"))
    _NEW_PLACE.symlink_to(node.containerd.peer / "bin" / "runc")
    told = _told_of_lines(node)
    assert told.startswith("on: runc 1.5"), told
    return [f"nri.multi_line true, {told}", *_two_limits(node, "lines-by-runc", NEW_RUNC, _BOTH)]


def two_lines_are_refused_by_an_old_runc_that_was_not_seen(node: RuntimesNode) -> list[str]:
    """Where the daemon saw none that is too old, and one comes while it runs: a container of two limits does not start,
    and doctor says why."""
    _NEW_PLACE.unlink()
    for program in (OLD_RUNC, OLD_CRUN):
        place = node.handlers[program]
        place.with_name(f"{place.name}-hidden").rename(place)
    node.api.add("lines-unseen", {"app": {EPC: "8Ki", KEYS: "2"}})
    said = _start_fails(node, node.run_pod("lines-unseen", (), handler=OLD_RUNC))
    assert "nvalid argument" in said, said
    return [f"{_name(node)}, {OLD_RUNC}, given both: {said}", *_doctored(node, "multi-line-refused")]


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


def _doctored(node: RuntimesNode, code: str) -> list[str]:
    found = node.daemon.findings("--set", "kube.enabled=false", *_LINES)
    told = [f"{code} {one.severity}: {one.what}. {one.remedy}" for one in found if one.code == code]
    assert any("runc 1.1" in line for line in told), found
    assert any("crun 1.8" in line for line in told), found
    return [f"doctor: {line}" for line in told]


def _two_limits(node: RuntimesNode, name: str, handler: str, by_runtime: list[str]) -> list[str]:
    """A container with two limits: what its runtime was told, what its program finds before it does anything else, and
    both in the kernel, refusing what is above them."""
    node.api.add(name, {"app": {EPC: "8Ki", KEYS: "2"}})
    pod = node.run_pod(name, ("app",), handler=handler, first="/busybox cat /sys/fs/cgroup/misc.max; echo read")
    app = pod.containers["app"]
    assert _limits(app) == _BOTH
    until(lambda: node.said(name, "app")[-1:] == ["read"], f"{name} has read its limits")
    born = node.said(name, "app")
    assert set(_BOTH) <= set(born), born
    until(lambda: _limits(pod.cgroup) == _BOTH, f"both limits of the pod {name}")
    assert node.told(app) == by_runtime
    node.daemon.enforced(name, "", "app")
    rest = [line for line in _BOTH if line not in by_runtime]
    besides = f"; by direct write before its program runs: {', '.join(rest)}" if rest else ""
    return [f"{_name(node)}, {handler}: by the runtime: {', '.join(by_runtime)}{besides}; {_refusals(app)}"]


def _found_by_cgroup(node: RuntimesNode, name: str) -> str:
    """A container with two limits of which no runtime tells; its status is known once it runs."""
    pod = node.run_pod(name, ("app",))
    app = pod.containers["app"]
    assert node.told(app) == []
    node.api.add(name, {"app": {EPC: "8Ki", KEYS: "2"}}, ids={"app": app.name})
    begin = time.monotonic()
    until(lambda: _limits(app) == _BOTH and _limits(pod.cgroup) == _BOTH, f"both limits of {name}", _AWAY_S)
    took_s = time.monotonic() - begin
    node.daemon.enforced(name, "", "app")
    return f"{name}/app {', '.join(_limits(app))} {took_s:.1f} s after its status named it"


def _refusals(app: Path) -> str:
    """Above each limit the kernel refuses, and says at which cgroup."""
    for resource, amount in ((RESOURCE, _EPC), (SECOND_RESOURCE, _KEYS)):
        refused(app, amount + 1, resource)
    events = (app / "misc.events.local").read_text().splitlines()
    assert events == [f"{RESOURCE}.max 1", f"{SECOND_RESOURCE}.max 1"], events
    return f"misc.events.local after one charge above each: {', '.join(events)}"


def _limits(cgroup: Path) -> list[str]:
    return [f"{resource} {limit(cgroup, resource)}" for resource in (RESOURCE, SECOND_RESOURCE)]


def _name(node: RuntimesNode) -> str:
    return f"containerd {node.containerd.release.version}"


def _changed(node: RuntimesNode, names: Sequence[str]) -> str:
    for name in names:
        app = node.pods[name].containers["app"]
        before = (app / "cpu.weight").read_text()
        node.cri.call("UpdateContainerResources", {"container_id": app.name, "linux": {"cpu_shares": 512}})
        assert (app / "cpu.weight").read_text() != before
        assert _limits(app) == _BOTH
    return f"{_name(node)}, CPU changed by CRI, both limits as they were: {', '.join(names)}"


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


def _start_fails(node: RuntimesNode, pod: Pod) -> str:
    """What CRI says of the start of a container in this pod."""
    request: Record = {
        "pod_sandbox_id": pod.sandbox.name,
        "config": container_config("app", IMAGE),
        "sandbox_config": node.config(pod.name),
    }
    created = text(node.cri.call("CreateContainer", request), "container_id")
    with pytest.raises(grpc.RpcError) as failed:
        node.cri.call("StartContainer", {"container_id": created})
    return _details(failed.value)


def _details(error: grpc.RpcError) -> str:
    assert isinstance(error, grpc.Call)
    return str(error.details())


CASES: Final[Mapping[str, Callable[[RuntimesNode], list[str]]]] = {
    case.__name__: case
    for case in (
        old_crun_alone,
        daemon_switches_misc_on,
        two_limits_with_old_crun,
        two_limits_with_old_runc,
        two_limits_with_new_runc,
        changed_by_the_runtime,
        nri_switched_off,
        newer_containerd,
        newer_containerd_and_old_crun,
        lines_beside_old_runtimes,
        doctor_names_the_wrong_setting,
        both_from_birth_with_new_runc,
        two_lines_are_refused_by_an_old_runc_that_was_not_seen,
    )
}
