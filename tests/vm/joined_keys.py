"""Keys offered to a real kubelet while a real kernel counts them, `keys` in `enforce`; one function a case, in the
order in which they run.

The kernel's `sev_es` is the key. Pods ask for ids of it by the API, and take their keys late, as VMs do; a process
outside of every pod takes keys too, and kubelet and the daemon are killed. What is said of it must be what the kernel's
own files say, and no pod may be admitted, nor started, that the kernel could not serve. At the end kubelet's runtime is
the relay.
"""

import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Final

import yaml

from nodeward.features.keys.rows import KeyRow
from nodeward.neighbours.kubelet import pods_api
from tests.peers.containerd import children
from tests.peers.nriside import Json, member, objects
from tests.vm.device_cases import devices_by_nri, devices_by_plugin
from tests.vm.inside import (
    CGROUPS,
    KIB,
    RESOURCE,
    SECOND_RESOURCE,
    CriRelay,
    amount,
    cgroup,
    charge,
    limits,
    named,
    refused,
    until,
)
from tests.vm.joined_node import BOX, CONTAINERD_FOLDER, NAME, PODS, UNTIL_TERM, Node, container

IDS: Final = "devices.kubevirt.io/sev-esids"
OUTSIDE: Final = CGROUPS / "machine.slice" / "vm.scope"
_SETTLES_S: Final = 20.0
"""Kubelet's status, and two samples that agree; on a quiet machine."""
_TRIED_AGAIN_S: Final = 40.0
"""Kubelet tries a start that was refused again after up to 15 seconds."""
_PIDFD_GETFD: Final = 438
_FREED_S: Final = 60.0
_TRIES: Final = 5
_LATE: Final = ("was not decided within", "could not be read in time", "was not found in time")
_SETTINGS: Final = """
keys:
  mode: enforce
  kubelet_dir: {home}
  kinds: {{{key}: {{resources: [{ids}], publisher: device-plugin, publish: {ids}}}}}
"""


def keys_are_offered(node: Node) -> None:
    """Given `keys` in enforce, and the Pods API where the daemon looks, the node has an id for each of the kernel's
    keys."""
    home = Path("/proc", str(children(node.containerd.holder.pid)[0]), "root/var/lib/kubelet")
    (home / Path(pods_api.PLACE).parent).symlink_to(node.kubelet.plan.folder / "root" / Path(pods_api.PLACE).parent)
    node.daemon.configure(_SETTINGS.format(home=home, key=SECOND_RESOURCE, ids=IDS))
    node.daemon.start()
    size = _amount(CGROUPS / "misc.capacity")
    _has(node, size, size)


def keys_are_taken_late(node: Node) -> None:
    """Given two pods with an id each, of which one has taken its key, both are counted once."""
    for name in ("vm-a", "vm-b"):
        _admitted(node, name)
        node.running(name, ["app"])
    _counts(node, lambda row: (row.entitled, row.charged) == (2, 0))
    node.keys["vm-a"] = charge(node.pods["vm-a"].containers["app"], 1, resource=SECOND_RESOURCE)
    _pictured(node, lambda row: (row.entitled, row.charged) == (2, 1))
    assert _capacity(node) == (5, 5)


def foreign_keys_are_withheld(node: Node) -> None:
    """Given a process outside of every pod that takes keys, then as many ids of nobody's are healthy no more."""
    cgroup("machine.slice/vm.scope")
    node.keys["foreign"] = charge(OUTSIDE, 2, resource=SECOND_RESOURCE)
    _follows(node, published=1, allocatable=3)
    _pictured(node, lambda row: row.foreign == 2)


def killed_with_keys_granted(node: Node) -> None:
    """Given a pod whose VM has its key, and one whose VM has not yet, when kubelet and daemon are killed at once, then
    both run on with their ids, and no key of theirs or of the foreigners is offered or given afterwards."""
    pods = {name: node.pods[name].containers["app"] for name in ("vm-a", "vm-b")}
    node.kubelet.kill()
    assert node.daemon.end(signal.SIGKILL) == -signal.SIGKILL
    at_once = _amount(CGROUPS / "misc.current")
    node.kubelet.start_again()
    node.daemon.start()
    node.kubelet.wait_healthy()
    _pictured(node, lambda row: (row.entitled, row.charged, row.foreign, row.published) == (2, 1, 2, 1))
    _has(node, 5, 3)
    node.create("vm-x", [_vm(2)])
    until(lambda: _failed(node, "vm-x") != "", "a pod that asks for one more than is free fails", _SETTLES_S)
    _counts(node, lambda row: (row.used, row.entitled, row.free) == (at_once, 2, 1))
    row = _row(node)
    assert row is not None
    for name, app in pods.items():
        assert node.container_ids(name)["app"] == app.name, f"the container of {name} began anew"
    granted = {one.pod: one.ids for one in row.holders if one.ids}
    assert sorted(granted) == ["vm-a", "vm-b"], granted


def refused_at_allocate(node: Node) -> None:
    """Given a key that is taken after kubelet was told that it is free, the pod that kubelet admits for it fails with
    our words; and the key that a pod was promised is left."""
    before, why = _refused(node)
    assert why.startswith("UnexpectedAdmissionError: "), why
    assert "Allocate failed due to rpc error: code = ResourceExhausted" in why, why
    assert f"Nodeward gives out no {IDS} for " in why, why
    assert "1 asked, 0 free of 5" in why, why
    _has(node, 5, 2)
    _pictured(node, lambda row: (row.used, row.free) == (4, 0))
    assert _refusals(node) == {**before, "foreign": before.get("foreign", 0) + 1}


def start_waits_for_the_kernel(node: Node) -> None:
    """Given a pod that was granted the last key, and one that was let start before the daemon was killed and has not
    taken its key yet, when somebody else takes one before the container of the first starts, then that start is put off
    with our words: the other finds its key there, and the pod runs and takes its own once one is given back."""
    os.close(node.keys.pop("more"))
    _follows(node, published=1, allocatable=3)
    setup = container("setup", image=BOX, command=["/busybox", "sh", "-c", UNTIL_TERM])
    _admitted(node, "vm-d", initContainers=[setup])
    first = node.running("vm-d", ["setup"]).containers["setup"]
    _pictured(node, lambda row: (row.entitled, row.charged, row.foreign, row.free) == (3, 1, 2, 0))
    node.keys["last"] = charge(OUTSIDE, 1, resource=SECOND_RESOURCE)
    assert _amount(CGROUPS / "misc.current") == 4
    os.kill(int((first / "cgroup.procs").read_text().split()[0]), signal.SIGTERM)
    until(lambda: "Nodeward gives out no" in _waits(node, "vm-d"), "vm-d waits", _TRIED_AGAIN_S)
    why = _waits(node, "vm-d")
    assert "code = Unavailable" in why, why
    assert f"Nodeward gives out no {IDS} for " in why, why
    assert "its start takes 1, of 5 there are 4 in use, and 1 are on their way to pods that start" in why, why
    assert member(node.api.call("GET", f"{PODS}/vm-d"), "status", "phase") == "Pending"
    node.keys["vm-b"] = charge(node.pods["vm-b"].containers["app"], 1, resource=SECOND_RESOURCE)
    _pictured(node, lambda row: (row.used, row.charged, row.foreign) == (5, 2, 3))
    assert "app" not in node.container_ids("vm-d"), "it has not started"
    refused(OUTSIDE, 1, SECOND_RESOURCE)
    os.close(node.keys.pop("last"))
    until(lambda: "app" in node.container_ids("vm-d"), "vm-d runs", _TRIED_AGAIN_S)
    app = node.running("vm-d", ["app"]).containers["app"]
    node.keys["vm-d"] = charge(app, 1, resource=SECOND_RESOURCE)
    _pictured(node, lambda row: (row.entitled, row.charged, row.foreign) == (3, 3, 2))


def free_again(node: Node) -> None:
    """Given the end of the foreign use, ids are healthy again; after the pods nothing is held."""
    os.close(node.keys.pop("foreign"))
    _follows(node, published=2, allocatable=5)
    _counts(node, lambda row: (row.entitled, row.charged, row.foreign) == (3, 3, 0))
    for name in list(node.keys):
        os.close(node.keys.pop(name))
    for name in ("vm-a", "vm-b", "vm-c", "vm-d", "vm-x"):
        node.delete(name)
    _pictured(node, lambda row: (row.used, row.entitled, row.free) == (0, 0, 5))


def _refusals(node: Node) -> dict[str, int]:
    row = _row(node)
    assert row is not None
    return dict(row.refusals)


def _admitted(node: Node, name: str, **spec: Json) -> None:
    """Makes a pod that wants a key, until kubelet has admitted it: a guest on a busy machine may not decide within the
    half second in which kubelet is answered, and a pod that was refused at Allocate has failed for good."""

    def known() -> bool:
        pod = node.api.find(f"{PODS}/{name}") or {}
        phase, statuses = (member(pod, "status", kind) for kind in ("phase", "containerStatuses"))
        return phase == "Failed" or statuses is not None

    before = _capacity(node)
    for _ in range(_TRIES):
        node.create(name, [_vm()], **spec)
        until(known, f"kubelet has looked at {name}", _SETTLES_S)
        if not any(late in _failed(node, name) for late in _LATE):
            return
        node.delete(name)
        until(lambda: node.api.find(f"{PODS}/{name}") is None, f"{name} is gone", _SETTLES_S)
        until(lambda: _capacity(node) == before, "what it was not given is free again", _FREED_S)
    raise AssertionError(f"{name} was refused {_TRIES} times: the guest is too slow")


def _refused(node: Node) -> tuple[dict[str, int], str]:
    """The refusals before, and why a pod fails for which kubelet asks while a key is taken and the daemon stands still:
    by what the kernel says, and not for being late, for which all is made as it was and done again."""
    for _ in range(_TRIES):
        before, why = _refusals(node), _refused_once(node)
        if not any(words in why for words in _LATE):
            return before, why
        node.delete("vm-c")
        until(lambda: node.api.find(f"{PODS}/vm-c") is None, "vm-c is gone", _SETTLES_S)
        os.close(node.keys.pop("more"))
        _follows(node, published=1, allocatable=3)
    raise AssertionError(f"vm-c was answered too late {_TRIES} times, the guest is too slow: {why}")


def _refused_once(node: Node) -> str:
    with node.daemon.stopped():
        node.keys["more"] = charge(OUTSIDE, 1, resource=SECOND_RESOURCE)
        told = _unread(node.daemon.pid)
        node.create("vm-c", [_vm()])
        until(lambda: _unread(node.daemon.pid) > told, "kubelet asks the daemon, which stands still", _SETTLES_S)
    until(lambda: _failed(node, "vm-c") != "", "vm-c fails", _SETTLES_S)
    return _failed(node, "vm-c")


def _vm(count: int = 1) -> dict[str, Json]:
    return container("app") | {"resources": {"limits": {IDS: str(count)}}}


def _row(node: Node) -> KeyRow | None:
    view = node.daemon.view()
    return next((row for row in view.keys if row.key == SECOND_RESOURCE), None) if view is not None else None


def _capacity(node: Node) -> tuple[int, int]:
    """What the node's status has of the ids: capacity, allocatable."""
    found = node.api.call("GET", f"/api/v1/nodes/{NAME}")
    capacity, allocatable = (member(found, "status", kind, IDS) for kind in ("capacity", "allocatable"))
    return int(str(capacity or 0)), int(str(allocatable or 0))


def _has(node: Node, capacity: int, allocatable: int) -> None:
    wanted = (capacity, allocatable)
    until(lambda: _capacity(node) == wanted, f"the node has {wanted} of {IDS}", _SETTLES_S)


def _failed(node: Node, pod: str) -> str:
    found = node.api.find(f"{PODS}/{pod}") or {}
    phase, reason, message = (member(found, "status", kind) for kind in ("phase", "reason", "message"))
    return f"{reason}: {message}" if phase == "Failed" else ""


def _waits(node: Node, pod: str) -> str:
    statuses = objects(member(node.api.find(f"{PODS}/{pod}") or {}, "status", "containerStatuses"))
    return str(member(next(iter(statuses), {}), "state", "waiting", "message"))


def _amount(file: Path) -> int:
    return amount(file, SECOND_RESOURCE)


def _follows(node: Node, published: int, allocatable: int) -> None:
    """Waits until the daemon has published so many ids more, and the node's status has so many."""
    until(lambda: (row := _row(node)) is not None and row.published == published, f"{published} free ids", _SETTLES_S)
    _has(node, 5, allocatable)


def _counts(node: Node, holds: Callable[[KeyRow], bool]) -> None:
    until(lambda: (row := _row(node)) is not None and holds(row), "the daemon counts what there is", _SETTLES_S)


def _pictured(node: Node, holds: Callable[[KeyRow], bool]) -> None:
    """Waits until the daemon counts so, and has settled whose ids kubelet still has; what `nodeward keys` then prints
    is what the kernel's files hold."""
    _counts(node, lambda row: holds(row) and all(one.pod or one.gone for one in row.holders))
    rows = json.loads(node.daemon.ask("keys", "-o", "json"))
    (shown,) = (row for row in rows if row["key"] == SECOND_RESOURCE)
    pods = {name: _amount(pod.cgroup / "misc.current") for name, pod in node.pods.items() if name.startswith("vm-")}
    kernel = (
        _amount(CGROUPS / "misc.capacity"),
        _amount(CGROUPS / "misc.current"),
        sum(pods.values()),
    )
    assert (shown["capacity"], shown["used"], shown["charged"]) == kernel, (shown, kernel)
    assert shown["foreign"] == _amount(OUTSIDE / "misc.current"), shown
    held = {one["pod"]: one["charged"] or 0 for one in shown["holders"] if not one["gone"]}
    assert held == {name: pods[name] for name in held}, (held, pods)
    assert sum(held.values()) == kernel[2], (held, pods)


def _unread(pid: int) -> int:
    """How many bytes lie unread in the sockets that kubelet asks this process by."""
    kernel, found = ctypes.CDLL(None, use_errno=True), 0
    process = os.pidfd_open(pid)
    for name in os.listdir(f"/proc/{pid}/fd"):
        if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
            continue
        ours = kernel.syscall(_PIDFD_GETFD, process, int(name), 0)
        if ours < 0:
            raise OSError(ctypes.get_errno(), f"descriptor {name} of process {pid}")
        with socket.socket(fileno=ours) as end:
            listens = end.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if end.family == socket.AF_UNIX and "/device-plugins/nodeward-" in str(end.getsockname()) and not listens:
                found += struct.unpack("i", fcntl.ioctl(end, termios.FIONREAD, bytes(4)))[0]
    os.close(process)
    return found


_LISTEN: Final = CONTAINERD_FOLDER / "relay" / "cri.sock"
_HELD: Final = 12 * KIB


def _point_at_relay(node: Node) -> None:
    """`nodeward kubelet` changes its configuration, as YAML, and it is started again."""
    config = node.kubelet.plan.folder / "kubelet.json"
    config.write_text(yaml.safe_dump(json.loads(config.read_text())))
    line = ["setup", "relay", "--kubelet-config", str(config)]
    for one in (f"relay.listen={_LISTEN}", f"relay.runtime={node.containerd.cri_socket}"):
        line += ["--set", one]
    node.daemon.ask(*line)
    node.kubelet.kill()
    node.kubelet.start_again()
    node.kubelet.wait_healthy()


def decided_by_the_relay(node: Node) -> None:
    """Given a kubelet that is pointed at the relay, a pod made by the API has its limit from birth, without NRI."""
    _LISTEN.parent.mkdir()
    runtime = node.containerd.cri_socket
    node.daemon.configure(f"relay: {{limits: true, listen: {_LISTEN}, runtime: {runtime}}}\n")
    os.environ["NODEWARD_NRI__ENABLED"] = "false"
    node.cri_relay = CriRelay(node.daemon.config, CONTAINERD_FOLDER / "relay.log")
    node.more.callback(node.cri_relay.end, signal.SIGKILL)
    node.cri_relay.start()
    assert node.daemon.end(signal.SIGTERM) == 0
    node.daemon.start_beside_relay()
    _point_at_relay(node)
    pod = node.run("behind", [container("app", "12Ki"), container("side")])
    app, side = pod.containers["app"], pod.containers["side"]
    assert (node.born_with(app), node.born_with(side)) == (f"{RESOURCE} {_HELD}", f"{RESOURCE} 0")
    assert limits(app, side) == [_HELD, 0]
    until(lambda: limits(pod.cgroup) == [_HELD], "the pod's budget, by the daemon")
    until(lambda: node.api.node_ready(NAME), "the node is ready")
    shown = node.daemon.ask("status")
    assert "calls are held for containers, and decided by the node daemon" in shown, shown
    refused(app, _HELD + 1)


CASES: Final = named(
    keys_are_offered,
    keys_are_taken_late,
    foreign_keys_are_withheld,
    killed_with_keys_granted,
    refused_at_allocate,
    start_waits_for_the_kernel,
    free_again,
    devices_by_plugin,
    devices_by_nri,
    decided_by_the_relay,
)
