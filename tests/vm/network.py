"""Runs a guest's kernel in a network namespace of its own, from which it can call ports of this machine's loopback.

    python -m tests.vm.network PORT[,PORT...] COMMAND...

The guest has one end of a veth there (a kernel in user mode, 7.3, panics on a tap). The other end is HOST_ADDRESS, and
makes no segment of more than one packet, since such a kernel drops those. What the guest sends to a port there goes to
the same port of the loopback. Nothing can call the guest. Ends with the command, and with its status.
"""

import ctypes
import os
import subprocess
import sys
from typing import Final

from tests.peers.relay import Relay

HOST_ADDRESS: Final = "10.0.2.2"
INTERFACE: Final = "guest"
_CLONE_NEWNET: Final = 0x40000000


def main() -> int:
    ports, command = sys.argv[1], sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)  # os.unshare came with Python 3.12
    if libc.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    for words in (
        f"link add {INTERFACE} type veth peer name host",
        f"address add {HOST_ADDRESS}/24 dev host",
        "link set host up gso_max_size 1500 gso_max_segs 1",
        f"link set {INTERFACE} up",
    ):
        subprocess.run(["ip", *words.split()], check=True)
    for port in map(int, ports.split(",")):
        Relay("127.0.0.1", port, toward=os.getppid(), at=(HOST_ADDRESS, port))
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
