"""The kubelet's own static CPU manager policy as an oracle: what it would give, for any machine and any history.

Sets of CPUs are written as the kernel writes them (`0-3,8`). The process keeps the state; one object is one node.
"""

import json
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from tests.patience import scaled
from tests.peers.find import require

END_TIMEOUT_S = scaled(15.0)
ANSWER_TIMEOUT_S = scaled(60.0)

Step = Mapping[str, object]
"""One line of a history, as the oracle reads it: see `machine`, `allocate` and `remove`."""


@dataclass(frozen=True, slots=True)
class Place:
    cpu: int
    core: int
    socket: int = 0
    numa: int = 0
    uncore: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    error: str
    cpus: str
    """The container's own, empty if it has none."""
    shared: str
    """What is left for everybody else."""


class CpuOracle:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def verdicts(self, steps: Sequence[Step]) -> list[Verdict]:
        """What becomes of each step. All are written before any is read: at most some hundred."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("".join(f"{json.dumps(step)}\n" for step in steps))
        self._process.stdin.flush()
        found = []
        late = threading.Timer(ANSWER_TIMEOUT_S, self._process.kill)
        late.start()
        try:
            for step in steps:
                line = self._process.stdout.readline()
                if not line:
                    raise RuntimeError(f"cpuoracle ended, or did not answer within {ANSWER_TIMEOUT_S:.0f} s: {step}")
                said: dict[str, str] = json.loads(line)
                found.append(Verdict(said["error"], said["cpus"], said["shared"]))
        finally:
            late.cancel()
        return found

    def verdict(self, step: Step) -> Verdict:
        return self.verdicts((step,))[0]


def machine(
    places: Sequence[Place], reserved: Sequence[int] = (), options: Mapping[str, str] | None = None, keep: int = 0
) -> Step:
    """Begin with an empty node of these CPUs. `keep`: how many the kubelet is to reserve by its own choice."""
    cpus = [asdict(place) for place in places]
    return {"op": "machine", "cpus": cpus, "reserved": reserved, "options": options, "keep": keep}


def allocate(
    pod: str, container: str, milli: int, role: str = "", *, burstable: bool = False, affinity: Sequence[int] = ()
) -> Step:
    """A container comes, of a guaranteed pod by default. `role`: init, sidecar, or nothing for an ordinary one;
    `affinity`: the NUMA nodes that the topology manager wants for it."""
    named = {"op": "allocate", "pod": pod, "container": container, "role": role}
    return {**named, "milli": milli, "burstable": burstable, "affinity": affinity}


def remove(pod: str, container: str) -> Step:
    return {"op": "remove", "pod": pod, "container": container}


@contextmanager
def cpu_oracle() -> Iterator[CpuOracle]:
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
