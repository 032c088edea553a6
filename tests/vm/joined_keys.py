"""Keys offered to a real kubelet while a real kernel counts them, `keys` in `enforce`; one function a case, in the
order in which they run.

The kernel's `sev_es` is the key. Pods ask for ids of it by the API, and take their keys late, as VMs do; a process
outside of every pod takes keys too, and kubelet and the daemon are killed. What is said of it must be what the kernel's
own files say, and no pod may be admitted that the kernel could not serve. At the end come SGX devices.
"""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nodeward.features.keys.rows import KeyRow
from nodeward.neighbours.kubelet import pods_api
from tests.peers.containerd import children
from tests.peers.nriside import Json, member
from tests.vm.device_cases import devices_by_nri, devices_by_plugin
from tests.vm.inside import CGROUPS, SECOND_RESOURCE, amount, cgroup, charge, named, until, without
from tests.vm.joined_node import NAME, PODS, Node, container

IDS: Final = "devices.kubevirt.io/sev-esids"
OUTSIDE: Final = CGROUPS / "machine.slice" / "vm.scope"
_SETTLES_S: Final = 20.0
"""Kubelet's status, and two samples that agree; on a quiet machine."""
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


def free_again(node: Node) -> None:
    """Given the end of the foreign use, ids are healthy again; after the pods nothing is held."""
    os.close(node.keys.pop("foreign"))
    _follows(node, published=3, allocatable=5)
    node.keys["vm-b"] = charge(node.pods["vm-b"].containers["app"], 1, resource=SECOND_RESOURCE)
    _pictured(node, lambda row: (row.entitled, row.charged, row.foreign) == (2, 2, 0))
    for name in list(node.keys):
        os.close(node.keys.pop(name))
    for name in ("vm-a", "vm-b", "vm-x"):
        node.delete(name)
    _pictured(node, lambda row: (row.used, row.entitled, row.free) == (0, 0, 5))


def _admitted(node: Node, name: str) -> None:
    """Makes a pod that wants a key, until kubelet has admitted it: a guest on a busy machine may not decide within the
    half second in which kubelet is answered, and a pod that was refused at Allocate has failed for good."""

    def known() -> bool:
        pod = node.api.find(f"{PODS}/{name}") or {}
        phase, statuses = (member(pod, "status", kind) for kind in ("phase", "containerStatuses"))
        return phase == "Failed" or statuses is not None

    before = _capacity(node)
    for _ in range(_TRIES):
        node.create(name, [_vm()])
        until(known, f"kubelet has looked at {name}", _SETTLES_S)
        if not any(late in _failed(node, name) for late in _LATE):
            return
        node.delete(name)
        until(lambda: node.api.find(f"{PODS}/{name}") is None, f"{name} is gone", _SETTLES_S)
        until(lambda: _capacity(node) == before, "what it was not given is free again", _FREED_S)
    raise AssertionError(f"{name} was refused {_TRIES} times: the guest is too slow")


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
    kernel = (_amount(CGROUPS / "misc.capacity"), _amount(CGROUPS / "misc.current"), sum(pods.values()))
    assert (shown["capacity"], shown["used"], shown["charged"]) == kernel, (shown, kernel)
    assert shown["foreign"] == _amount(OUTSIDE / "misc.current"), shown
    held = {one["pod"]: one["charged"] or 0 for one in shown["holders"] if not one["gone"]}
    assert held == {name: pods[name] for name in held}, (held, pods)
    assert sum(held.values()) == kernel[2], (held, pods)


MORE: Final = named(
    keys_are_offered,
    keys_are_taken_late,
    foreign_keys_are_withheld,
    killed_with_keys_granted,
    free_again,
    devices_by_plugin,
    devices_by_nri,
)
CASES: Final = without(MORE, devices_by_nri)
