"""The kubelet's own static CPU manager policy as an oracle: what it would give, for any machine and any history.

Sets of CPUs are written as the kernel writes them (`0-3,8`). The process keeps the state; one object is one node.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from tests.patience import scaled
from tests.peers.find import require

END_TIMEOUT_S = scaled(15.0)


@dataclass(frozen=True, slots=True)
class Place:
    """Where one logical CPU sits."""

    cpu: int
    core: int
    socket: int = 0
    numa: int = 0
    uncore: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the kubelet holds after a step."""

    error: str
    cpus: str
    """The container's own, empty if it has none."""
    shared: str
    """What is left for everybody else."""


class CpuOracle:
    """A running oracle."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def machine(
        self, places: Sequence[Place], reserved: Sequence[int], options: Mapping[str, str] | None = None
    ) -> Verdict:
        """Begin with an empty node of these CPUs."""
        return self._step(op="machine", cpus=[asdict(place) for place in places], reserved=reserved, options=options)

    def allocate(self, pod: str, container: str, count: int) -> Verdict:
        """A guaranteed container with this many whole CPUs comes."""
        return self._step(op="allocate", pod=pod, container=container, count=count)

    def remove(self, pod: str, container: str) -> Verdict:
        """The container goes."""
        return self._step(op="remove", pod=pod, container=container)

    def _step(self, **step: object) -> Verdict:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(step) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"cpuoracle ended at {step['op']}")
        said: dict[str, str] = json.loads(line)
        return Verdict(said["error"], said["cpus"], said["shared"])


@contextmanager
def cpu_oracle() -> Iterator[CpuOracle]:
    """An oracle for as long as the block; the test skips where the peer is not built."""
    command = [str(require("kubernetes") / "bin" / "cpuoracle")]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield CpuOracle(process)
    finally:
        process.kill()
        process.wait(END_TIMEOUT_S)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
