"""Random walks: the same steps on the double and on the real kernel, and every step must leave the same sight.

Cases say what was thought of; walks look for what was not. A walk is made from its number alone, so both sides take the
same steps. After each step the whole tree below the case's base is read; a step's sight is the step, its outcome (ok or
the errno's name) and a checksum of all that was read, short enough for the console.
"""

import errno
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.contract.kernel.case_writes import WRITES
from tests.contract.kernel.vocabulary import CAPACITY, KernelUnderTest

COUNT: Final = 40
STEPS: Final = 30
_FILES: Final = ("misc.max", "misc.current", "misc.peak", "misc.events", "misc.events.local", "cgroup.events")
_MORE_FILES: Final = ("cgroup.controllers", "cgroup.subtree_control")


@dataclass(slots=True)
class Walk:
    kernel: KernelUnderTest
    dice: random.Random
    held: list[tuple[str, str, int]] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)

    def path(self) -> str:
        return self.kernel.base + self.dice.choice(("", "/a", "/a", "/b", "/a/a", "/a/b", "/b/a"))

    def step(self) -> tuple[str, Callable[[], object]]:
        k, dice, path = self.kernel, self.dice, self.path()
        name = path.removeprefix(k.base) or "/"
        resource, amount = dice.choice(list(CAPACITY)), dice.randint(1, 4)
        kind = dice.choices(("mkdir", "rmdir", "control", "max", "charge", "uncharge", "capacity", "process", "end"),
                            (4, 3, 4, 6, 9, 4, 1, 2, 2))[0]  # fmt: skip
        if kind == "mkdir":
            return f"mkdir {name}", lambda: k.files.mkdir(path)
        if kind == "rmdir" and path != k.base:
            return f"rmdir {name}", lambda: k.files.rmdir(path)
        if kind == "control":
            words = dice.choice((b"+misc", b"+misc", b"+misc", b"-misc", b"-misc +misc", b"+pids"))
            return f"control {name} {words!r}", lambda: k.files.write(f"{path}/cgroup.subtree_control", words)
        if kind == "max":
            line = dice.choice((*(data for _, data, _ in WRITES if len(data) < 64), b"sev 2", b"sev_es 1", b"sev 4"))
            return f"max {name} {line!r}", lambda: k.files.write(f"{path}/misc.max", line)
        if kind == "capacity":
            have = dice.choice((0, 3, 10, 20))
            return f"capacity {resource} {have}", lambda: k.set_capacity(resource, have)
        if kind == "process":
            return f"process {name}", lambda: self.pids.append(k.new_process(path))
        if kind == "end" and self.pids:
            return "end", lambda: k.end_process(self.pids.pop(0))
        if kind == "uncharge" and self.held:
            one = self.held.pop(dice.randrange(len(self.held)))
            return f"uncharge {one[0].removeprefix(k.base) or '/'} {one[1]} {one[2]}", lambda: k.uncharge(*one)
        return f"charge {name} {resource} {amount}", lambda: self._charge(path, resource, amount)

    def _charge(self, path: str, resource: str, amount: int) -> None:
        self.kernel.charge(path, resource, amount)
        self.held.append((path, resource, amount))


def walk(kernel: KernelUnderTest, number: int) -> list[str]:
    progress = Walk(kernel, random.Random(number))
    for name in ("a", "b", "a/a", "a/b"):
        kernel.files.mkdir(f"{kernel.base}/{name}")
    for name in ("", "/a") if kernel.version == 2 else ():
        kernel.files.write(f"{kernel.base}{name}/cgroup.subtree_control", b"+misc")
    sights: list[str] = []
    for _ in range(STEPS):
        what, act = progress.step()
        outcome = "ok"
        try:
            act()
        except OSError as error:
            outcome = errno.errorcode[error.errno or 0]
        sights.append(f"{what}: {outcome} {zlib.crc32(sight(kernel, kernel.base).encode()):08x}")
    return sights


def sight(kernel: KernelUnderTest, cgroup: str) -> str:
    """All that the files of this cgroup and those below it say, without the base's own name and without pids."""
    names = kernel.files.listdir(cgroup)
    lines = [f"[{cgroup.removeprefix(kernel.base)}] {len(kernel.files.read(f'{cgroup}/cgroup.procs', 4096).split())}"]
    for name in (*_FILES, *_MORE_FILES):
        if name in names:
            lines.append(f"{name}: {kernel.files.read(f'{cgroup}/{name}', 4096).decode()}")
    return "\n".join([*lines, *(sight(kernel, f"{cgroup}/{name}") for name in ("a", "b") if name in names)])
