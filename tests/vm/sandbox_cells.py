"""Runs inside the guest: starts the bus by which runtime-rs asks systemd for scopes, then becomes pytest.

systemd joins a bus only of units that have D-Bus's own names. The guest has few services, so these are made here.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.vm.inside import DEVICE

UNITS = Path("/run/systemd/system")
SOCKET = """[Unit]
DefaultDependencies=no
[Socket]
ListenStream=/run/dbus/system_bus_socket
"""
SERVICE = """[Unit]
DefaultDependencies=no
Requires=dbus.socket
[Service]
ExecStart=/usr/bin/dbus-daemon --system --address=systemd: --nofork --nopidfile
"""
JOINED_S = 30.0


def main() -> None:
    if not os.path.exists(DEVICE):
        sys.exit(f"{DEVICE} is missing: this runs in the guest of tests/vm only")
    UNITS.mkdir(parents=True, exist_ok=True)
    Path("/run/dbus").mkdir(exist_ok=True)
    (UNITS / "dbus.socket").write_text(SOCKET)
    (UNITS / "dbus.service").write_text(SERVICE)
    subprocess.run(["systemctl", "daemon-reload"], check=True)
    subprocess.run(["systemctl", "start", "dbus.socket", "dbus.service"], check=True)
    names = [
        "dbus-send",
        "--system",
        "--print-reply",
        "--dest=org.freedesktop.DBus",
        "/",
        "org.freedesktop.DBus.ListNames",
    ]
    end = time.monotonic() + JOINED_S
    while b"org.freedesktop.systemd1" not in subprocess.run(names, capture_output=True, check=False).stdout:
        if time.monotonic() > end:
            sys.exit(f"systemd has not joined the bus within {JOINED_S:.0f} s")
        time.sleep(0.1)
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *sys.argv[1:]])


main()
