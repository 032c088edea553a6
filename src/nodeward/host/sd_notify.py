"""Tells systemd how this process is: the datagrams of sd_notify(3), without libsystemd.

Promises: without NOTIFY_SOCKET nothing happens; a send never waits and never raises, since a service manager that does
not listen is no reason to stop. Knows nothing of what is told: who calls decides when this process is ready.
"""

import logging
import socket
import time
from collections.abc import Mapping

log = logging.getLogger(__name__)
READY = "READY=1"
STOPPING = "STOPPING=1"
WATCHDOG = "WATCHDOG=1"


class Notifier:
    """The way to the service manager. `watchdog_s` is within how many seconds it wants WATCHDOG=1; 0: it does not."""

    def __init__(self, address: str = "", watchdog_s: float = 0.0) -> None:
        """`address` is NOTIFY_SOCKET: a path, or `@name` for an abstract socket. Empty: nobody is told."""
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s = watchdog_s
        self.told_ready = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) if address else None
        if self._socket is not None:
            self._socket.setblocking(False)

    def tell(self, *lines: str) -> bool:
        """Sends the lines as one datagram; whether they were sent."""
        self.told_ready = self.told_ready or READY in lines
        if self._socket is None:
            return False
        try:
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            log.debug("systemd=not-told error=%s", error)
            return False
        return True

    def status(self, text: str) -> bool:
        """The line that `systemctl status` shows."""
        return self.tell(f"STATUS={' '.join(text.split())}")

    def reloading(self) -> bool:
        """New settings are being read; READY=1 ends it."""
        return self.tell("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def close(self) -> None:
        """Gives the socket back."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def from_environment(environ: Mapping[str, str], pid: int) -> Notifier:
    """The notifier that systemd's variables ask for. WATCHDOG_USEC that was meant for another process (WATCHDOG_PID) is
    not for us."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return Notifier()
    span = environ.get("WATCHDOG_USEC", "")
    meant = environ.get("WATCHDOG_PID", str(pid)) == str(pid)
    watchdog_s = int(span) / 1e6 if meant and span.isascii() and span.isdigit() else 0.0
    return Notifier(address, watchdog_s)
