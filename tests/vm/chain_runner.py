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
from typing import TypeVar

from tests.vm.inside import DEVICE, Daemon

RESULT, SAYS, END = "chain: result ", "chain: says ", "chain: end"
_N = TypeVar("_N")


def main() -> int:
    cache, chain = sys.argv[1:]
    os.environ.update(XDG_CACHE_HOME=cache, HOME="/root", PATH="/usr/sbin:/usr/bin:/sbin:/bin")
    if not os.path.exists(DEVICE):
        print(f"{DEVICE} is missing: this runs in the guest of tests/vm only")
        return 2
    begin = time.monotonic()
    if chain == "cri":
        from tests.vm.chain_cases import CASES
        from tests.vm.chain_node import running_node

        with running_node() as node:
            says(f"node: containerd, API server double and daemon are connected after {time.monotonic() - begin:.1f} s")
            play(CASES, node, node.daemon)
    print(f"\n{END}", flush=True)
    return 0


def play(cases: Mapping[str, Callable[[_N], list[str]]], node: _N, daemon: Daemon) -> None:
    """Runs the cases in their order; one that fails does not end the others."""
    for name, case in cases.items():
        failure = ""
        try:
            for line in case(node):
                says(line)
        except Exception:
            log = "\n".join(daemon.log().splitlines()[-30:])
            failure = f"{traceback.format_exc(limit=-4)}\nview: {daemon.view()}\nlog:\n{log}"
        print(f"\n{RESULT}{json.dumps([name, failure])}", flush=True)


def says(line: str) -> None:
    """A line for people."""
    print(f"\n{SAYS}{json.dumps(line)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
