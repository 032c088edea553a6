"""The steps of docs/migrate-from-intel.md where two could own `misc.max`, with a plugin that behaves like sgx-epc.

They use pods of their own and leave the daemon in `enforce`, as they found it. The other plugin runs from the first
case into the second.
"""

import subprocess
import sys
from typing import Final

import grpc
import pytest

from tests.vm.chain_node import ANNOTATION, Node
from tests.vm.inside import EPC, KIB, limits, until

_LIMIT: Final = 8 * KIB


def _start_sgx_epc(node: Node) -> None:
    """The other plugin, registered, in a process of its own."""
    before = node.containerd.synchronized("40-sgx-epc")
    line = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "tests.vm.sgx_epc", str(node.containerd.nri_socket)]
    node.other = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    assert node.other.stdout is not None
    assert node.other.stdout.readline() == "ready\n"
    until(lambda: node.containerd.synchronized("40-sgx-epc") > before, "containerd calls sgx-epc")


def _end_sgx_epc(node: Node) -> None:
    assert node.other is not None
    node.other.kill()
    node.other.wait(60)
    node.other = None


def two_owners_fail_every_create(node: Node) -> None:
    """Both set misc.max for one container: NRI refuses it. doctor finds the other one."""
    node.api.add("owned", {"app": {EPC: "8Ki"}})
    _start_sgx_epc(node)
    words = 'plugins "90-nodeward" and "40-sgx-epc" both tried to set CgroupsUnified misc.max'
    with pytest.raises(grpc.RpcError, match=words):
        node.run_pod("owned", ("app",), {ANNOTATION: str(_LIMIT)})
    found = [one for one in node.daemon.findings() if one.code == "sgx-epc"]
    assert [one.severity for one in found] == ["error"], found


def over_to_nodeward(node: Node) -> None:
    """From sgx-epc: look in observe beside it, end it, enforce. The pod that runs is adopted, with its budget."""
    node.daemon.settle(mode="observe")
    node.api.add("moved", {"app": {EPC: "8Ki"}, "later": {EPC: "4Ki"}})
    pod = node.run_pod("moved", ("app", "later"), {ANNOTATION: str(_LIMIT)})
    app, later = pod.containers["app"], pod.containers["later"]
    until(lambda: node.daemon.state("moved", "app") == "unmanaged", "moved/app is looked at only")
    assert limits(app, later, pod.cgroup) == [_LIMIT, "max", "max"]
    _end_sgx_epc(node)
    assert limits(app) == [_LIMIT], "the limit stays when its writer ends"
    node.daemon.settle(mode="enforce")
    until(lambda: limits(app, later, pod.cgroup) == [_LIMIT, 4 * KIB, 12 * KIB], "moved is adopted")
    node.daemon.enforced("moved", "", "app", "later")


def and_back(node: Node) -> None:
    """To sgx-epc: observe, then start it. What runs keeps its limits; what comes has its annotation's."""
    pod = node.pods["moved"]
    cgroups = (*pod.containers.values(), pod.cgroup)
    kept = limits(*cgroups)
    node.daemon.settle(mode="observe")
    _start_sgx_epc(node)
    node.api.add("returned", {"app": {EPC: "8Ki"}})
    app = node.run_pod("returned", ("app",), {ANNOTATION: str(_LIMIT)}).containers["app"]
    assert (limits(*cgroups), limits(app)) == (kept, [_LIMIT])
    _end_sgx_epc(node)
    node.daemon.settle(mode="enforce")
