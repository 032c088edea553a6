"""Finds the processes of VM sandboxes: one look through all of /proc, now and then.

A sandbox is known by its shim's command line or its VMM's. Command lines can be forged, so where several claim to be
one sandbox's shim or VMM, one is taken (the shim's child, else the oldest), and the others are named and not counted.
"""

import errno
from collections.abc import Iterable
from dataclasses import dataclass, field

from nodeward.core.errors import WireError
from nodeward.core.workload import SandboxId
from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.formats import proc_files
from nodeward.neighbours.kata.kept import SMALL, Kept
from nodeward.neighbours.kata.processes import MAX_BYTES, CommandLine, Program, claim

MOST_SANDBOXES = 4096
_VHOST = "vhost-"


@dataclass(frozen=True, slots=True)
class Process:
    """A process as the look found it."""

    pid: int
    start: int
    name: str
    parent: int
    claim: CommandLine


@dataclass(slots=True)
class Found:
    """One sandbox's processes."""

    sandbox: SandboxId
    shim: Process | None = None
    vmm: Process | None = None
    virtiofsd: tuple[Process, ...] = ()
    vhost: tuple[Process, ...] = ()
    faults: list[str] = field(default_factory=list)


class _Gathered:
    """All processes of interest, by what they are."""

    def __init__(self) -> None:
        self.of: dict[Program, list[Process]] = {kind: [] for kind in Program}
        self.without_words: list[int] = []


def find(files: HostFiles, expected: Iterable[SandboxId] = ()) -> dict[SandboxId, Found]:
    """Every sandbox that is there; where there are too many, `expected` ones first, so forged ones hide none of these.
    OSError where /proc cannot be listed, or has not the node's processes."""
    _check(files)
    seen, first = _look(files), dict[str, None].fromkeys(expected)
    found: dict[SandboxId, Found] = {}
    for process in sorted(seen.of[Program.SHIM], key=lambda one: (one.claim.sandbox not in first, *_age(one))):
        _take_shim(found, process)
    of_shim = {one.shim.pid: one for one in found.values() if one.shim is not None}
    for process in sorted(seen.of[Program.VMM], key=lambda one: (one.parent not in of_shim, *_age(one))):
        _take_vmm(found, process, of_shim.get(process.parent))
    by_pid = {**of_shim, **{one.vmm.pid: one for one in found.values() if one.vmm is not None}}
    for process in sorted(seen.of[Program.VIRTIOFSD], key=_age):
        home = by_pid.get(process.parent) or found.get(SandboxId(process.claim.sandbox))
        if home is not None:
            home.virtiofsd = (*home.virtiofsd, process)
            by_pid[process.pid] = home  # virtiofsd starts another one, which serves
    vmms = {one.vmm.pid: one for one in found.values() if one.vmm is not None}
    if vmms:
        _take_vhost(files, seen.without_words, vmms)
    return found


def _check(files: HostFiles) -> None:
    """In a container with process ids of its own the daemon is process 1, and the kernel's kthreadd is not there."""
    own = []
    for path in ("/proc/self/stat", "/proc/2/comm"):
        try:
            own.append(files.read(path, SMALL).split()[0])
        except (OSError, IndexError):
            own.append(b"")
    if own[0] == b"1" and own[1] != b"kthreadd":
        raise OSError(
            errno.ESRCH,
            "it shows only this container's processes, so no VM sandbox is seen; set hostPID: true "
            "(deploy/node/sandboxes.yaml)",
            "/proc",
        )


def _age(one: Process) -> tuple[int, int]:
    return one.start, one.pid


def _look(files: HostFiles) -> _Gathered:
    seen, reader = _Gathered(), Kept(files, most=0)
    for name in files.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            words = reader.read(f"/proc/{name}/cmdline", MAX_BYTES)
            if not words:
                seen.without_words.append(int(name))
            elif (said := claim(words)) is not None:
                found = proc_files.stat(reader.read(f"/proc/{name}/stat", SMALL))
                if found.state not in "ZX":
                    seen.of[said.kind].append(Process(int(name), found.start, found.name, found.parent, said))
        except (OSError, WireError):
            continue  # it has ended meanwhile, or is not ours to read
    return seen


def _take_shim(found: dict[SandboxId, Found], process: Process) -> None:
    sandbox = SandboxId(process.claim.sandbox)
    if not sandbox:
        return
    known = found.get(sandbox)
    if known is None:
        if len(found) < MOST_SANDBOXES:
            found[sandbox] = Found(sandbox, process)
    elif known.shim is not None:
        first = known.shim.pid
        known.faults.append(f"processes {first} and {process.pid} both claim to be its shim; only {first} is counted")


def _take_vmm(found: dict[SandboxId, Found], process: Process, by_parent: Found | None) -> None:
    named = SandboxId(process.claim.sandbox)
    home = by_parent or found.get(named)
    if home is None:
        if named and len(found) < MOST_SANDBOXES:
            found[named] = Found(named, vmm=process)
        return
    if named and named != home.sandbox:
        home.faults.append(f"its shim's child {process.pid} says that it is the VMM of sandbox {named}")
    if home.vmm is None:
        home.vmm = process
    else:
        first = home.vmm.pid
        home.faults.append(f"processes {first} and {process.pid} both claim to be its VMM; only {first} is counted")


def _take_vhost(files: HostFiles, pids: list[int], vmms: dict[int, Found]) -> None:
    """Kernel threads `vhost-PID`, before Linux 6.4; later ones are threads of the VMM."""
    reader = Kept(files, most=0)
    for pid in pids:
        try:
            found = proc_files.stat(reader.read(f"/proc/{pid}/stat", SMALL))
        except (OSError, WireError):
            continue
        number = found.name.removeprefix(_VHOST)
        home = vmms.get(int(number)) if found.name.startswith(_VHOST) and number.isdecimal() else None
        if home is not None and home.vmm is not None:
            home.vhost = (*home.vhost, Process(pid, found.start, found.name, found.parent, home.vmm.claim))
