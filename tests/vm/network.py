"""Runs a guest's kernel in a network namespace of its own, from which it can call ports of this machine's loopback.

    python -m tests.vm.network PORT[,PORT...] COMMAND...

The guest has one end of a veth there (a kernel in user mode, 7.3, panics on a tap). The other end is HOST_ADDRESS, and
makes no segment of more than one packet, since such a kernel drops those. What the guest sends to a port there goes to
the same port of the loopback. Nothing can call the guest. Ends with the command, and with its status.
"""

import asyncio
import contextlib
import ctypes
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

HOST_ADDRESS: Final = "10.0.2.2"
INTERFACE: Final = "guest"
_CLONE_NEWNET: Final = 0x40000000
_CHUNK: Final = 1 << 16


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _passed_on(listeners: Sequence[socket.socket], command: "subprocess.Popen[bytes]") -> int:
    for listener in listeners:
        port = listener.getsockname()[1]

        async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int = port) -> None:
            try:
                there, back = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                writer.close()
                return
            await asyncio.gather(_pump(reader, back), _pump(there, writer))

        await asyncio.start_server(meet, sock=listener)
    return await asyncio.to_thread(command.wait)


def main() -> int:
    ports, command = sys.argv[1], sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)  # os.unshare and os.setns came with Python 3.12
    ours = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    if libc.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    for words in (
        f"link add {INTERFACE} type veth peer name host",
        f"address add {HOST_ADDRESS}/24 dev host",
        "link set host up gso_max_size 1500 gso_max_segs 1",
        f"link set {INTERFACE} up",
    ):
        subprocess.run(["ip", *words.split()], check=True)
    listeners = [socket.create_server((HOST_ADDRESS, int(port))) for port in ports.split(",")]
    process = subprocess.Popen(command)
    if libc.setns(ours, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
    return asyncio.run(_passed_on(listeners, process))


if __name__ == "__main__":
    sys.exit(main())
