"""Runs inside the guest: the cases of one chain, one JSON line each on the console.

Its arguments are the host's cache folder, where the peers lie, the chain's name and what that chain wants. A line
starts with a mark, so that a kernel message in between costs nothing.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tests.patience import patience
from tests.vm.forked import prepare
from tests.vm.inside import DEVICE

RESULT, SAYS, END = "chain: result ", "chain: says ", "chain: end"
_N = TypeVar("_N")


def main() -> int:
    cache, chain, *arguments = sys.argv[1:]
    path = "/usr/sbin:/usr/bin:/sbin:/bin"
    os.environ.update(XDG_CACHE_HOME=cache, HOME="/root", PATH=path, NODEWARD_PATIENCE=str(patience()))
    if not os.path.exists(DEVICE):
        print(f"{DEVICE} is missing: this runs in the guest of tests/vm only")
        return 2
    begin = time.monotonic()
    prepare()
    if chain == "cri":
        from tests.vm.chain_cases import CASES
        from tests.vm.chain_node import running_node

        with running_node() as node:
            says(f"node: containerd, API server double and daemon are connected after {time.monotonic() - begin:.1f} s")
            play(CASES, node, node.log)
    elif chain == "v1":
        hybrid(begin)
    elif chain == "hook":
        hooked(arguments, begin)
    elif chain == "crio":
        under_crio(arguments, begin)
    elif chain == "relayed":
        relayed(begin)
    elif chain == "runtimes":
        runtimes(arguments)
    elif chain in ("cpus", "cpus-relay"):
        with_cpus(arguments, begin, relay=chain != "cpus")
    elif chain == "sandboxes":
        vm_sandboxes(begin)
    elif chain == "units":
        units(arguments, begin)
    else:
        joined(chain, arguments, begin)
    _print(END)
    return 0


def hybrid(begin: float) -> None:
    """The cases of a node with misc as cgroup v1."""
    from tests.vm.chain_node import running_node
    from tests.vm.v1_cases import CASES, make_hybrid

    make_hybrid()
    with running_node() as node:
        node.memory_bytes = 0  # the guest's kernel has no memory controller for cgroup v1
        says(f"hybrid: containerd, API server double, daemon are connected after {time.monotonic() - begin:.1f} s")
        play(CASES, node, node.log)


def hooked(arguments: Sequence[str], begin: float) -> None:
    """The cases of the OCI hook; the arguments are the bundle, the unpacked podman, the distribution's crun, runc."""
    from tests.peers.find import peer
    from tests.vm.hook_cases import CASES, OF_CRIO
    from tests.vm.hook_node import running_node
    from tests.vm.podman import installed_podman

    bundle, *podman = map(Path, arguments)
    with running_node(bundle, installed_podman(*podman)) as node:
        says(f"node: API server double and daemon without NRI are ready after {time.monotonic() - begin:.1f} s")
        absent = OF_CRIO if peer("crio") is None else ()
        play({name: case for name, case in CASES.items() if case not in absent}, node, node.log)


def under_crio(arguments: Sequence[str], begin: float) -> None:
    """The cases of CRI-O as it comes; the arguments are those of the OCI hook's."""
    from tests.vm.crio_shipped import CASES, running_node
    from tests.vm.podman import installed_podman

    bundle, *podman = map(Path, arguments)
    with running_node(bundle, installed_podman(*podman)) as node:
        says(f"node: systemd and the API server double are ready after {time.monotonic() - begin:.1f} s")
        play(CASES, node, node.log)


def relayed(begin: float) -> None:
    """The cases of limits by the relay."""
    from tests.vm.relayed_cases import CASES
    from tests.vm.relayed_node import running_node

    with running_node() as node:
        says(f"node: containerd 1.7 without NRI and the relay are ready after {time.monotonic() - begin:.1f} s")
        play(CASES, node, node.log)


def with_cpus(arguments: Sequence[str], begin: float, *, relay: bool) -> None:
    """The cases of CPUs by a policy; the arguments are the containers' program, how many quick pods there are, and what
    a cluster is reached by, where there is one."""
    from tests.vm.cpus_cases import CASES, OF_NODES
    from tests.vm.cpus_node import lay_topology, running_node

    program, quick_pods, *cluster = arguments
    has_nodes = not lay_topology()
    with running_node(Path(program), int(quick_pods), relay=relay) as node:
        says(f"node: {node.containerd.release.version} and Nodeward are ready after {time.monotonic() - begin:.1f} s")
        play({name: case for name, case in CASES.items() if has_nodes or name != OF_NODES}, node, node.log)
        if cluster:
            from tests.vm.cpus_cluster import BY, CASE, Cluster

            url, ca_file, token, daemon_token, kubeconfig = cluster
            joined = Cluster(url, Path(ca_file), token, daemon_token, Path(kubeconfig))
            play({CASE: lambda node: BY[relay](node, joined)}, node, node.log)


def vm_sandboxes(begin: float) -> None:
    """The cases of VM sandboxes."""
    from tests.vm.sandboxes_cases import CASES
    from tests.vm.sandboxes_node import running_node

    with running_node() as node:
        says(f"node: containerd and the daemon are ready after {time.monotonic() - begin:.1f} s")
        play(CASES, node, node.log)


def units(arguments: Sequence[str], begin: float) -> None:
    """The cases of the systemd units; the argument is the bundle."""
    from tests.vm.units_cases import CASES
    from tests.vm.units_node import running_node

    with running_node(Path(arguments[0])) as node:
        says(f"node: systemd and containerd are ready after {time.monotonic() - begin:.1f} s")
        play(CASES, node, node.log)


def runtimes(arguments: Sequence[str]) -> None:
    """The cases of several container and OCI runtimes; the arguments are the distribution's runc and crun."""
    from tests.vm.runtime_cases import CASES
    from tests.vm.runtime_node import running_node

    runc, crun = arguments
    with running_node(Path(runc), Path(crun)) as node:
        play(CASES, node, node.log)


def joined(chain: str, arguments: Sequence[str], begin: float) -> None:
    """The cases of that name on a node with a kubelet."""
    from tests.vm import chart_cases, joined_keys, joined_limits, joined_relay
    from tests.vm.joined_node import Cluster, running_node

    cases = {"limits": joined_limits.CASES, "keys": joined_keys.CASES, "restarts": joined_relay.RESTARTS}
    cases["chart"] = chart_cases.CASES
    url, ca_file, token, node_token, daemon_token, daemon_user, admission, image = arguments
    cluster = Cluster(url, Path(ca_file), token, node_token, daemon_token, daemon_user, Path(admission), Path(image))
    with running_node(cluster) as node:
        says(f"node: containerd and kubelet run, the node is ready after {time.monotonic() - begin:.1f} s")
        play(cases[chain], node, node.log)


def play(cases: Mapping[str, Callable[[_N], list[str]]], node: _N, log: Callable[[], str]) -> None:
    """Runs the cases in their order. After one that failed the node is not as the others want it: not tried."""
    failed = ""
    for name, case in cases.items():
        begin = time.monotonic()
        failure = f"not tried, since {failed} failed" if failed else ""
        try:
            for line in [] if failed else case(node):
                says(line)
        except Exception:
            failed, failure = name, f"{traceback.format_exc(limit=-4)}\n{log()}"
        _print(f"{RESULT}{json.dumps([name, failure, time.monotonic() - begin])}")


def says(line: str) -> None:
    """A line for people."""
    _print(f"{SAYS}{json.dumps(line)}")


def _print(line: str) -> None:
    """In one write: `print` makes two on a terminal, and between them systemd may say something on this one."""
    sys.stdout.write(f"\n{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
