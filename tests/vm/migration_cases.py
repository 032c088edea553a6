"""The steps of docs/migrate-from-intel.md where two could own `misc.max`, with a plugin that behaves like sgx-epc.

They use pods of their own and leave the daemon in `enforce`, as they found it. The other plugin runs from the first
case into the second.
"""

import subprocess
import sys
from typing import Final

import grpc

from tests.vm.chain_node import Node
from tests.vm.inside import EPC, KIB, RESOURCE, limit, until

_KEY: Final = "epc-limit.nri.io/container.app"
_LIMIT: Final = 8 * KIB
_BUDGET: Final = 12 * KIB


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


def two_owners_fail_every_create(node: Node) -> list[str]:
    """Both set misc.max for one container: NRI refuses it. doctor finds the other one."""
    node.api.add("owned", {"app": {EPC: "8Ki"}})
    _start_sgx_epc(node)
    try:
        node.run_pod("owned", ("app",), {_KEY: str(_LIMIT)})
    except grpc.RpcError as error:
        said = next(line.strip() for line in str(error).splitlines() if "details =" in line)
    else:
        raise AssertionError("a container for which two plugins set misc.max was created")
    assert 'plugins "90-nodeward" and "40-sgx-epc" both tried to set CgroupsUnified misc.max' in said, said
    found = [one for one in node.daemon.findings() if one.code == "sgx-epc"]
    assert [one.severity for one in found] == ["error"], found
    return [
        f"two owners: the runtime says: {said}",
        f"doctor: {found[0].severity} {found[0].code}: {found[0].what} ({found[0].where})",
    ]


def over_to_nodeward(node: Node) -> list[str]:
    """From sgx-epc: look in observe beside it, end it, enforce. The pod that runs is adopted, with its budget."""
    node.daemon.settle(mode="observe")
    node.api.add("moved", {"app": {EPC: "8Ki"}, "later": {EPC: "4Ki"}})
    pod = node.run_pod("moved", ("app", "later"), {_KEY: str(_LIMIT)})
    app, later = pod.containers["app"], pod.containers["later"]
    until(lambda: node.daemon.state("moved", "app") == "unmanaged", "moved/app is looked at only")
    theirs = [limit(app), limit(later), limit(pod.cgroup)]
    assert theirs == [str(_LIMIT), "max", "max"]
    _end_sgx_epc(node)
    nobody = limit(app)
    assert nobody == str(_LIMIT), "the limit stays when its writer ends"
    node.daemon.settle(mode="enforce")
    wanted = [str(_LIMIT), str(4 * KIB), str(_BUDGET)]
    until(lambda: [limit(app), limit(later), limit(pod.cgroup)] == wanted, "moved is adopted")
    node.daemon.enforced("moved", "", "app", "later")
    return [
        f"to Nodeward: moved/app, moved/later, pod moved {theirs} with sgx-epc, Nodeward in observe; {wanted} after "
        "sgx-epc has ended and Nodeward enforces"
    ]


def and_back(node: Node) -> list[str]:
    """To sgx-epc: observe, then start it. What runs keeps its limits; what comes has its annotation's."""
    pod = node.pods["moved"]
    kept = [limit(pod.containers["app"]), limit(pod.containers["later"]), limit(pod.cgroup)]
    node.daemon.settle(mode="observe")
    _start_sgx_epc(node)
    node.api.add("returned", {"app": {EPC: "8Ki"}})
    app = node.run_pod("returned", ("app",), {_KEY: str(_LIMIT)}).containers["app"]
    now = [limit(pod.containers["app"]), limit(pod.containers["later"]), limit(pod.cgroup)]
    assert now == kept
    assert limit(app) == str(_LIMIT)
    _end_sgx_epc(node)
    node.daemon.settle(mode="enforce")
    return [f"and back: moved {now} stays, returned/app {RESOURCE} {limit(app)} from sgx-epc, Nodeward in observe"]
