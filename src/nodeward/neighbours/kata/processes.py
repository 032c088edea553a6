"""Recognises the processes of a Kata sandbox by their command lines.

A command line is what its process says of itself, and any process may say anything. So nothing here is proof; who
calls compares with parents and with other processes that claim the same.
"""

import re
from dataclasses import dataclass
from enum import Enum

MAX_BYTES = 64 * 1024
"""So much of a command line is looked at. QEMU's has some 5 KiB under Kata."""
MAX_ARGUMENTS = 1024
_OF_INTEREST = re.compile(rb"containerd-shim-kata|qemu|virtiofsd|firecracker|cloud-hypervisor|-name\0|--api-sock")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_FOLDER = re.compile(r"/(?:vm|firecracker|sandboxes|run/kata)/([^/]+)/")
"""`/run/vc/vm/ID/`, `/run/vc/firecracker/ID/`, `/run/kata-containers/shared/sandboxes/ID/`, `/run/kata/ID/`."""
_SIZE = re.compile(r"(\d{1,15})([KMGT]?)B?", re.IGNORECASE)
_UNITS = {"": 20, "K": 10, "M": 20, "G": 30, "T": 40}
_SUFFIXES = ("start", "delete")
"""Verbs with which containerd calls a shim's program for a moment."""


class Program(Enum):
    """Which program it is."""

    SHIM = "shim"
    VMM = "vmm"
    VIRTIOFSD = "virtiofsd"


class Backing(Enum):
    """What a VM's memory lies in on the host."""

    ANONYMOUS = "anonymous"
    SHARED = "shared"
    """tmpfs or memfd."""
    HUGE = "hugetlbfs"


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What a command line says. `sandbox` is empty where it names none: then the parent tells."""

    kind: Program
    sandbox: str = ""
    namespace: str = ""
    vmm: str = ""
    memory: int | None = None
    vcpus: int | None = None
    backing: Backing = Backing.ANONYMOUS


def claim(cmdline: bytes) -> CommandLine | None:
    """None for a process that has nothing to do with VMs."""
    head = cmdline[:MAX_BYTES]
    if _OF_INTEREST.search(head) is None:
        return None
    words = head.decode("utf-8", "replace").split("\0", MAX_ARGUMENTS)[:MAX_ARGUMENTS]
    while words and not words[-1]:
        words.pop()
    if not words:
        return None
    program = words[0].rpartition("/")[2]
    if program.startswith("containerd-shim-kata"):
        return _shim(words)
    if program.startswith("virtiofsd"):
        return CommandLine(Program.VIRTIOFSD, _in_folder(words))
    name = _after(words, "-name").partition(",")[0].removeprefix("guest=")
    if program.startswith("qemu") or name.startswith("sandbox-"):
        return _qemu(words, name)
    if program.startswith(("cloud-hypervisor", "firecracker")):
        vmm = "firecracker" if program.startswith("firecracker") else "cloud-hypervisor"
        return CommandLine(Program.VMM, _in_folder(words) or _id(_after(words, "--id")), vmm=vmm)
    return None


def _shim(words: list[str]) -> CommandLine | None:
    if words[-1] in _SUFFIXES:
        return None
    return CommandLine(Program.SHIM, _id(_after(words, "-id")), _after(words, "-namespace")[:256])


def _qemu(words: list[str], name: str) -> CommandLine:
    sandbox = _id(name.removeprefix("sandbox-")) if name.startswith("sandbox-") else ""
    backing = Backing.ANONYMOUS
    for word in words:
        if word.startswith("memory-backend-memfd") or (word.startswith("memory-backend-file") and "/dev/shm" in word):
            backing = Backing.HUGE if "hugetlb=on" in word else Backing.SHARED
        elif word.startswith("memory-backend-file") and "huge" in word:
            backing = Backing.HUGE
    memory, vcpus = _size(_option(_after(words, "-m"), "size")), _option(_after(words, "-smp"), "cpus")
    number = int(vcpus) if vcpus.isdecimal() and len(vcpus) < 6 else None
    return CommandLine(Program.VMM, sandbox, vmm="qemu", memory=memory, vcpus=number, backing=backing)


def _after(words: list[str], option: str) -> str:
    """The word after an option, or what stands behind its `=`."""
    for place, word in enumerate(words):
        if word == option:
            return words[place + 1] if place + 1 < len(words) else ""
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return ""


def _option(value: str, key: str) -> str:
    """One of `first,key=value,...`; the first may go without its key."""
    pairs = [part.partition("=") for part in value.split(",")]
    named = [right for left, mark, right in pairs if mark and left == key]
    return named[0] if named else "" if pairs[0][1] else pairs[0][0]


def _size(value: str) -> int | None:
    """Bytes of QEMU's `-m`: MiB where no unit stands."""
    found = _SIZE.fullmatch(value)
    return int(found[1]) << _UNITS[found[2].upper()] if found else None


def _in_folder(words: list[str]) -> str:
    """The sandbox by whose folder a socket or a shared folder lies."""
    return next((_id(found[1]) for word in words[1:] if (found := _FOLDER.search(word))), "")


def _id(value: str) -> str:
    return value if _ID.fullmatch(value) else ""
