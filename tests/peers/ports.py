"""Ports for servers that take a number and cannot be given a listener."""

import random
import socket

BELOW_CLIENTS = range(12_000, 32_000)
"""No connection of a client gets one: Linux takes those ports from 32768 on (`net.ipv4.ip_local_port_range`)."""


def free_port() -> int:
    """A port of the loopback that nobody has, and that no client gets before the server listens on it.

    A port that the kernel chooses may be a client's a moment later: an API server opens dozens of connections to etcd.
    """
    for port in random.sample(BELOW_CLIENTS, 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise OSError(f"none of 100 ports of {BELOW_CLIENTS.start} to {BELOW_CLIENTS.stop - 1} is free")
