"""SGX devices without Intel's plugin: by a device plugin with its names and answers, and by NRI in its place. The
device nodes are those of /dev/null by other names, since the guest's kernel has no SGX."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.peers.containerd import children
from tests.peers.nriside import Json, member, objects
from tests.vm.inside import until
from tests.vm.joined_node import BOX, ENCLAVE, NAME, PODS, UNTIL_TERM, Node, container

PROVISION: Final = "sgx.intel.com/provision"
_NODES: Final = Path("/dev/sgx_enclave"), Path("/dev/sgx_provision")
_NULL: Final = os.makedev(1, 3)
_HAS: Final = f"echo > {_NODES[0]} && {UNTIL_TERM}"
"""Ends with an error where the device is not there, or may not be written to."""
_HAS_BOTH: Final = f"echo > {_NODES[1]} && {_HAS}"
_HAS_NONE: Final = f"test ! -e {_NODES[0]} && test ! -e {_NODES[1]} && {UNTIL_TERM}"
_WITHIN_S: Final = 30.0


def devices_by_plugin(node: Node) -> None:
    """The device nodes come late, go and come back; a pod made for Intel's plugin runs unchanged."""
    with _life(node, "plugin"):
        until(lambda: _offered(node, PROVISION) == "", "nothing is offered before the devices are there")
        _appear()
        until(lambda: _offered(node, PROVISION) == "110", "the devices that came late are offered", _WITHIN_S)
        until(lambda: _offered(node, ENCLAVE) == "110", "so is the other one", _WITHIN_S)
        limits: Json = {ENCLAVE: "1", PROVISION: "1"}
        asks: Json = {"limits": limits}
        node.run("intels", [_runs("app", _HAS_BOTH, asks), _runs("side", _HAS_NONE, {})])
        held = (_home(node) / "device-plugins/kubelet_internal_checkpoint").read_text()
        assert "sgx-enclave-" in held, held
        _NODES[0].unlink()
        until(lambda: _offered(node, ENCLAVE) == "0", "the device that went is not offered", _WITHIN_S)
        _appear()
        until(lambda: _offered(node, ENCLAVE) == "110", "it is offered again", _WITHIN_S)
    node.delete("intels")


def devices_by_nri(node: Node) -> None:
    """Without plugin, id or webhook: the device goes to whoever declares EPC in the API, and to nobody else."""
    _appear()
    with _life(node, "nri"):
        epc: Json = {"limits": {"sgx.intel.com/epc": "4Ki"}}
        node.run("by-nri", [_runs("app", _HAS, epc), _runs("side", _HAS_NONE, {})])
        _NODES[0].unlink()
        node.create("waits", [_runs("app", _HAS, epc)])
        until(lambda: "/dev/sgx_enclave, which it needs, is not there" in _told(node, "waits"), "it is told", _WITHIN_S)
        _appear()
        until(lambda: node.container_ids("waits").keys() == {"app"}, "it starts once the device is there", 60.0)
    node.delete("by-nri")
    node.delete("waits")


@contextmanager
def _life(node: Node, given_by: str) -> Iterator[None]:
    assert node.daemon.end(signal.SIGTERM) == 0
    root = node.kubelet.plan.folder / "root"
    said = f"limits.devices={given_by}", f"keys.kubelet_dir={_home(node)}", f"keys.kubelet_root={root}"
    node.daemon.start("answers", *(word for one in said for word in ("--set", one)))
    yield
    assert node.daemon.end(signal.SIGTERM) == 0
    for path in _NODES:
        path.unlink(missing_ok=True)
    node.daemon.start()


def _home(node: Node) -> Path:
    return Path("/proc", str(children(node.containerd.holder.pid)[0]), "root/var/lib/kubelet")


def _appear() -> None:
    for path in _NODES:
        if not path.exists():
            os.mknod(path, 0o20666, _NULL)
            path.chmod(0o666)


def _runs(name: str, line: str, resources: Json) -> dict[str, Json]:
    return container(name, image=BOX, command=["/busybox", "sh", "-c", line], resources=resources)


def _offered(node: Node, resource: str) -> str:
    return str(member(node.api.call("GET", f"/api/v1/nodes/{NAME}"), "status", "allocatable", resource) or "")


def _told(node: Node, pod: str) -> str:
    statuses = objects(member(node.api.find(f"{PODS}/{pod}") or {}, "status", "containerStatuses"))
    return str([member(one, "state", "waiting", "message") for one in statuses])
