"""The guest's systemd, where it is the first process: units, what it says of them, and the bundle's programs."""

import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from nodeward.features.limits.rows import CgroupRow
from nodeward.people import client
from nodeward.people.rows import NodeView
from tests.patience import patience
from tests.peers.containerd import Containerd
from tests.vm.guest import REPOSITORY

UNITS: Final = Path("/run/systemd/system")
BUNDLED: Final = Path("/opt/nodeward")
_STARTS_WITHIN_S: Final = 90.0
"""systemd's DefaultTimeoutStartSec."""


@dataclass(slots=True)
class Systemd:
    """It, with whoever runs there."""

    def control(self, *words: str) -> str:
        done = subprocess.run(["systemctl", *words], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"systemctl {' '.join(words)}: {done.stdout}{done.stderr}\n{self.log()}"
        return done.stdout

    def drop_in(self, unit: str, name: str, text: str) -> None:
        """Lines that come after the unit's own, once systemd reads its units again."""
        (UNITS / f"{unit}.service.d" / f"{name}.conf").write_text(text)

    def shown(self, unit: str, what: str) -> str:
        return self.control("show", "--value", "--property", what, f"{unit}.service").strip()

    def active(self, unit: str) -> bool:
        return self.shown(unit, "ActiveState") == "active"

    def nodeward(self, *words: str) -> str:
        command = [str(BUNDLED / "bin/nodeward"), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}\n{self.log()}"
        return done.stdout

    def typed(self, command: str, *more: str) -> str:
        """What a command of a page says, typed in the checkout, with more options; it has to end well."""
        environment = {**os.environ, "PATH": f"{BUNDLED / 'bin'}:{os.environ['PATH']}"}
        words = ["bash", "-c", f"{command} {shlex.join(more)}"]
        done = subprocess.run(
            words, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}\n{self.log()}"
        return done.stdout

    def row(self, pod: str, container: str = "app") -> CgroupRow | None:
        view = msgspec.json.decode(client.get("/v1/status", None), type=NodeView)
        return next((row for row in view.rows if (row.pod, row.container) == (pod, container)), None)

    def log(self) -> str:
        logs = [f"{path}:\n{path.read_text(errors='replace')[-2000:]}" for path in Path("/run").glob("*.log")]
        return "\n".join(logs)


def unit(name: str, text: str) -> None:
    """A unit, once systemd reads its units again; what it says goes to a file in /run. Where it names no bound for its
    start, systemd's own is for a quiet machine: a slow guest would end each start half way, and begin it again."""
    (UNITS / f"{name}.service").write_text(text)
    (UNITS / f"{name}.service.d").mkdir()
    log = f"StandardOutput=append:/run/{name}.log\nStandardError=append:/run/{name}.log\n"
    bound = "" if "TimeoutStartSec=" in text else f"TimeoutStartSec={_STARTS_WITHIN_S * patience():.0f}\n"
    (UNITS / f"{name}.service.d" / "guest.conf").write_text(f"[Service]\n{log}{bound}")


def start_units(units: Mapping[str, str]) -> None:
    UNITS.mkdir(parents=True, exist_ok=True)
    for name, sections in units.items():
        (UNITS / name).write_text(f"[Unit]\nDefaultDependencies=no\n{sections}")
    for words in (["daemon-reload"], ["start", *units]):
        subprocess.run(["systemctl", *words], check=True, timeout=300)


def service_of(containerd: Containerd) -> str:
    """The section of a unit that runs a peer's containerd without namespaces of its own: its shims tell systemd
    processes by number."""
    path = f"PATH={containerd.programs}:{containerd.peer / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin"
    command = f"{containerd.programs / 'containerd'} -c {containerd.folder / 'config.toml'}"
    return f"[Service]\nDelegate=yes\nKillMode=process\nEnvironment={path}\nExecStart={command}\n"


def place_bundle(bundle: Path) -> None:
    """Where its README wants it. No link: the units do not see /tmp and /home, where the checkout may be."""
    BUNDLED.mkdir()
    subprocess.run(["mount", "--bind", str(bundle), str(BUNDLED)], check=True, timeout=60)
