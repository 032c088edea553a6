"""Runs inside the guest: the cases of the chain, one JSON line each on the console.

Its one argument is the host's cache folder, where the containerd peer lies. A line starts with a mark, so that a kernel
message in between costs nothing.
"""

import json
import os
import sys
import time
import traceback

RESULT, SAYS, END = "chain: result ", "chain: says ", "chain: end"


def main() -> int:
    os.environ.update(XDG_CACHE_HOME=sys.argv[1], HOME="/root", PATH="/usr/sbin:/usr/bin:/sbin:/bin")
    from tests.vm.chain_cases import CASES
    from tests.vm.chain_node import DEVICE, running_node

    if not os.path.exists(DEVICE):
        print(f"{DEVICE} is missing: this runs in the guest of tests/vm only")
        return 2
    begin = time.monotonic()
    with running_node() as node:
        says(f"node: containerd, API server double and daemon are connected after {time.monotonic() - begin:.1f} s")
        for name, case in CASES.items():
            failure = ""
            try:
                for line in case(node):
                    says(line)
            except Exception:
                log = "\n".join(line for line in node.daemon.log().splitlines()[-30:])
                failure = f"{traceback.format_exc(limit=-4)}\nview: {node.daemon.view()}\nlog:\n{log}"
            print(f"\n{RESULT}{json.dumps([name, failure])}", flush=True)
    print(f"\n{END}", flush=True)
    return 0


def says(line: str) -> None:
    print(f"\n{SAYS}{json.dumps(line)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
