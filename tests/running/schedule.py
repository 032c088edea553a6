"""Runs parts beside one another, as far as two cores and the peers that are built have room.

Each part is a process whose output comes when it has ended. The kernel says what it took of a processor, with all
children that were waited for (wait4): QEMU and the daemons are among them, a shim that has left its parent is not.
"""

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.patience import measured
from tests.running.parts import PEERS, TIERS, Part
from tests.running.report import Ran, read

CORES = 2.0
"""The load that runs at once. With more, answers that kubelet waits 450 ms for come late."""
HERE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Running:
    """A part that has begun."""

    part: Part
    began_s: float
    process: subprocess.Popen[str]
    said: IO[str]
    factor: float


def may_begin(
    part: Part, running: Sequence[Part], waiting: Sequence[Part], built: Callable[[str], bool], cores: float = CORES
) -> bool:
    """Whether there is room, its peers are built, and what it comes after is over or waits for peers itself."""
    unfinished = [*running, *waiting]
    builds = any(one.tier == PEERS for one in unfinished)

    def ready(one: Part) -> bool:
        return one in running or not builds or all(map(built, one.peers))

    if not ready(part) or sum(one.load for one in running) + part.load > cores:
        return False
    before = TIERS[: TIERS.index(part.tier)] if part.tier in TIERS and not part.apart else ()
    return not any(one.name in part.after or (one.tier in before and not one.apart) for one in unfinished if ready(one))


def environment(root: Path, patience: float, more: Mapping[str, str]) -> dict[str, str]:
    """Of a part: how patient its tests are, and where our plugin is."""
    path = {} if root == HERE else {"PYTHONPATH": str(HERE)}
    return {**os.environ, "NODEWARD_PATIENCE": f"{patience:.2f}", **path, **more}


def run(
    commands: Mapping[Part, Sequence[str]], root: Path, more: Mapping[str, str], built: Callable[[str], bool]
) -> Iterator[Ran]:
    """Runs all, each by its words, and tells of each as it ends."""
    waiting, running = list(commands), dict[int, Running]()
    with contextlib.ExitStack() as files:
        while waiting or running:
            for part in list(waiting):
                if not may_begin(part, [one.part for one in running.values()], waiting, built):
                    continue
                waiting.remove(part)
                said = files.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
                patience, factor = measured()
                words, env = [*commands[part]], environment(root, patience, more)
                process = subprocess.Popen(words, cwd=root, env=env, stdout=said, stderr=subprocess.STDOUT, text=True)
                running[process.pid] = Running(part, time.monotonic(), process, said, factor)
                print(f"{time.strftime('%H:%M:%S')} begins {part.name}", flush=True)
            number, status, used = os.wait4(-1, os.WNOHANG if waiting else 0)
            if ended := running.pop(number, None):
                ended.process.returncode = os.waitstatus_to_exitcode(status)
                yield _told(ended, used.ru_utime + used.ru_stime)
            elif not number:
                time.sleep(0.1)  # until a part ends, or a peer is built


def _told(one: Running, processor_s: float) -> Ran:
    one.said.seek(0)
    said, now_s = one.said.read(), time.monotonic()
    print(f"\n=== {one.part.name}: {now_s - one.began_s:.1f} s, {processor_s:.1f} s of processor\n{said}", flush=True)
    return Ran(one.part, one.began_s, now_s, processor_s, *read(one.process.returncode, said), one.factor)
