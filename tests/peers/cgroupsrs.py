"""Kata's runtime-rs as an oracle: where its library, the crate cgroups-rs, puts a sandbox's processes.

`place` and `delete` change the machine's cgroups, so they need root. Paths are below the root of a hierarchy. Under
systemd a placed process moves a moment later, since the library does not wait for systemd's job.
"""

import json
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.patience import scaled
from tests.peers.find import require

ANSWER_TIMEOUT_S = scaled(30.0)

Places = Mapping[int, Mapping[str, str]]
"""Process or thread -> hierarchy by its controllers, empty for cgroup v2 -> path of the cgroup."""


class RefusedError(Exception):
    """The library refused a request; the message is its own."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What runtime-rs knows of a sandbox when it places it."""

    sandbox: str
    cgroups_path: str | None
    """The OCI cgroupsPath; None where runtime-rs finds no OCI spec."""
    only: bool
    """sandbox_cgroup_only."""


@dataclass(frozen=True, slots=True)
class Paths:
    systemd: bool
    sandbox: str
    overhead: str | None


class CgroupsRs:
    """A running oracle. It keeps the state that runtime-rs keeps of a sandbox; a new one restores it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def paths(self, sandbox: Sandbox) -> Paths:
        said: dict[str, str | None] = json.loads(self._ask("paths", sandbox))
        return Paths(bool(said["systemd"]), str(said["sandbox"]), said["overhead"])

    def place(self, sandbox: Sandbox, *, shim: int | None = None, vcpus: Sequence[int] | None = None) -> None:
        self._ask("place", sandbox, shim=shim, vcpus=vcpus)

    def read(self, sandbox: Sandbox, ids: Sequence[int]) -> Places:
        said: dict[str, str] = json.loads(self._ask("place", sandbox, read=ids))
        return {int(one): dict(line.split(":", 2)[1:] for line in text.splitlines()) for one, text in said.items()}

    def delete(self, sandbox: Sandbox) -> None:
        self._ask("delete", sandbox)

    def _ask(self, operation: str, sandbox: Sandbox, **more: object) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        named = {"op": operation, "sandbox": sandbox.sandbox, "only": sandbox.only}
        late = threading.Timer(ANSWER_TIMEOUT_S, self._process.kill)
        late.start()
        try:
            self._process.stdin.write(f"{json.dumps({**named, 'cgroups_path': sandbox.cgroups_path, **more})}\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            late.cancel()
        if not line:
            raise RuntimeError(f"cgroupsrs ended, or did not answer within {ANSWER_TIMEOUT_S:.0f} s: {operation}")
        said: dict[str, object] = json.loads(line)
        if said["error"]:
            raise RefusedError(f"{operation} {sandbox}: {said['error']}")
        return json.dumps(said["value"])


@contextmanager
def cgroups_rs() -> Iterator[CgroupsRs]:
    """An oracle for as long as the block; the test skips where the peer is not built."""
    command = [str(require("cgroupsrs") / "cgroupsrs")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield CgroupsRs(process)
        finally:
            process.kill()
