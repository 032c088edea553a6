"""Stands for a Kata shim: started under its name and with its arguments, it keeps one VMM as its child.

`containerd-shim-kata-v2 shim.py -namespace NS -id ID -- VMM...`. Ends, and the VMM with it, when its input is closed.
"""

import subprocess
import sys


def main() -> None:
    words = sys.argv[sys.argv.index("--") + 1 :]
    vmm = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    print(vmm.pid, flush=True)
    try:
        sys.stdin.read()
    finally:
        vmm.kill()
        vmm.wait()


if __name__ == "__main__":
    main()
