"""Runs inside the guest: the cases of one chain, one JSON line each on the console.

Its arguments are the host's cache folder, where the peers lie, the chain's name and what that chain wants. A line
starts with a mark, so that a kernel message in between costs nothing.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, TypeVar

from tests.patience import patience
from tests.vm.forked import prepare
from tests.vm.inside import DEVICE

RESULT, END = "chain: result ", "chain: end"
_N = TypeVar("_N")
CHAINS: Final = {
    "cri": ("chain_node", "chain_cases"),
    "v1": ("v1_cases", "v1_cases"),
    "hook": ("hook_node", "hook_cases"),
    "crio": ("crio_shipped", "crio_shipped"),
    "relayed": ("relayed_cases", "relayed_cases"),
    "runtimes": ("runtime_cases", "runtime_cases"),
    "cpus": ("cpus_node", "cpus_cases"),
    "cpus-memory": ("cpus_node", "cpus_memory"),
    "sandboxes": ("sandboxes_node", "sandboxes_cases"),
    "units": ("units_node", "units_cases"),
    "taken-keys": ("keys_cases", "keys_cases"),
    "limits": ("joined_node", "joined_limits"),
    "keys": ("joined_node", "joined_keys"),
    "chart": ("joined_node", "chart_cases"),
    "cpu-claims": ("joined_node", "cpu_claim_cases"),
}
"""By name: the module whose `running_node` gives the node to the chain's words, and the one with its cases."""
MORE: Final = "-more"
"""A name that ends so plays the module's MORE: its CASES, and between them those for the night."""


def main() -> int:
    cache, chain, *words = sys.argv[1:]
    path = "/usr/sbin:/usr/bin:/sbin:/bin"
    os.environ.update(XDG_CACHE_HOME=cache, HOME="/root", PATH=path, NODEWARD_PATIENCE=str(patience()))
    if not os.path.exists(DEVICE):
        print(f"{DEVICE} is missing: this runs in the guest of tests/vm only")
        return 2
    prepare()
    of_node, of_cases = CHAINS[chain.removesuffix(MORE)]
    nodes, cases = import_module(f"tests.vm.{of_node}"), import_module(f"tests.vm.{of_cases}")
    with nodes.running_node(*words) as node:
        play(cases.MORE if chain.endswith(MORE) else cases.CASES, node, node.log)
    _print(END)
    return 0


def play(cases: Mapping[str, Callable[[_N], None]], node: _N, log: Callable[[], str]) -> None:
    """Runs the cases in their order. After one that failed the node is not as the others want it: not tried."""
    failed = ""
    for name, case in cases.items():
        begin = time.monotonic()
        failure = f"not tried, since {failed} failed" if failed else ""
        if not failed:
            try:
                case(node)
            except Exception:
                failed, failure = name, f"{traceback.format_exc(limit=-4)}\n{log()}"
        _print(f"{RESULT}{json.dumps([name, failure, time.monotonic() - begin])}")


def _print(line: str) -> None:
    """In one write: `print` makes two on a terminal, and between them systemd may say something on this one."""
    sys.stdout.write(f"\n{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
