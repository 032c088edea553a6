"""Nodeward itself as a user has it: `nodeward node` in a process of its own, asked by the commands a user has.

The cgroup root is a folder with nothing in it but an empty `cgroup.controllers`, unless a test gives another, so no
cgroup of this machine is touched: the node is one without the misc controller, where pods start and are shown, and
nothing is enforced.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nodeward.people import client
from tests.patience import scaled
from tests.patience import until as until
from tests.peers.nriside import Json, Record, text

NODEWARD = str(Path(sys.executable).parent / "nodeward")
WITHIN_S = scaled(60.0)


@dataclass(slots=True)
class Daemon:
    folder: Path
    nri_socket: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def config(self) -> Path:
        return self.folder / "nodeward.yaml"

    @property
    def record(self) -> Path:
        return self.folder / "node.record"

    @property
    def socket(self) -> Path:
        return self.folder / "run" / "nodeward.sock"

    def configure(self, *more: str, kube: str = "{enabled: false}") -> None:
        (self.folder / "cgroup").mkdir(exist_ok=True)
        (self.folder / "cgroup" / "cgroup.controllers").touch()
        lines = (
            f"state_dir: {self.folder}/state",
            f"run_dir: {self.folder}/run",
            f"kube: {kube}",
            f"nri: {{socket: {self.nri_socket}}}",
            f"cgroups: {{root: {self.folder}/cgroup}}",
            f"record: {{path: {self.record}}}",
            *more,
        )
        self.config.write_text("\n".join(lines) + "\n")

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "NODEWARD_SOCKET": str(self.socket)}
        return subprocess.run(
            [NODEWARD, *arguments], capture_output=True, text=True, timeout=scaled(60), env=environ, check=False
        )

    def start(self, program: Sequence[str] = (NODEWARD,)) -> subprocess.Popen[bytes]:
        """`nodeward node`, with its log in a file. `program` takes the same arguments."""
        with (self.folder / "node.log").open("a") as log:
            self.process = subprocess.Popen([*program, "node", "--config", str(self.config)], stderr=log)
        return self.process

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(timeout=WITHIN_S)

    def has_keys(self, capacity: int, used: int) -> None:
        """Puts into the cgroup root how many there are and how many are in use."""
        root = self.folder / "cgroup"
        (root / "misc.next").write_text(f"tdx {capacity}\n")
        (root / "misc.next").rename(root / "misc.capacity")
        current = root / "misc.current"
        with current.open("rb+" if current.exists() else "wb") as file:
            file.write(f"tdx {used}\n".encode())

    def log(self) -> str:
        return (self.folder / "node.log").read_text()

    def shown(self) -> Record:
        try:
            found: Record = json.loads(client.get("/v1/status", str(self.socket)))
        except client.DaemonError:
            return {}
        return found

    def rows(self) -> list[Json] | None:
        rows = self.shown().get("rows")
        return rows if isinstance(rows, list) else None

    def containers(self) -> set[str]:
        rows = [row for row in self.rows() or [] if isinstance(row, dict)]
        return {text(row, "id") for row in rows if row.get("level") == "container"}

    def registered(self) -> bool:
        return str(self.shown().get("runtime", "")).startswith("containerd")


@contextmanager
def daemon(nri_socket: Path, folder: Path, *more: str, kube: str = "{enabled: false}") -> Iterator[Daemon]:
    own = Daemon(folder, nri_socket)
    own.configure(*more, kube=kube)
    process = own.start()
    try:
        yield own
    finally:
        process = own.process or process
        if process.poll() is None:
            process.kill()
        process.wait(timeout=scaled(30))
