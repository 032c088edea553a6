"""Runs inside the guest: starts the bus by which runtime-rs asks systemd for scopes, then becomes pytest."""

import os
import subprocess
import sys

from tests.vm.inside import DEVICE, until
from tests.vm.sandboxes_node import start_bus

ASKED = ("dbus-send", "--system", "--print-reply", "--dest=org.freedesktop.DBus", "/", "org.freedesktop.DBus.ListNames")


def joined() -> bool:
    """Whether systemd has joined the bus, as it does where the units have D-Bus's own names."""
    return b"org.freedesktop.systemd1" in subprocess.run(ASKED, capture_output=True, check=False).stdout


if not os.path.exists(DEVICE):
    sys.exit(f"{DEVICE} is missing: this runs in the guest of tests/vm only")
start_bus()
until(joined, "systemd joins the bus", 30)
os.execv(sys.executable, [sys.executable, "-m", "pytest", *sys.argv[1:]])
