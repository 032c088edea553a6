"""A guest machine for tests, with this machine's files and a real misc controller.

It is a kernel in user mode (ARCH=um, `user_mode/build`), which is a program and nearly as quick as the machine itself.
What that has not, such as NUMA nodes, Debian's own kernel has in QEMU, which emulates it by TCG at a tenth of the pace:
`needed(stock=True)`, or NODEWARD_GUEST=stock for every test.

The guest sees the host's whole file tree read only, under a tmpfs overlay, so programs, the virtual environment and the
tests are at the same paths inside. Nothing that it writes reaches the host. It needs no hardware support. One boot runs
one program, whose output comes back from the console.

`scripts/vm-prepare` makes the kernel; `--stock` fetches the other one. This module builds the initramfs, and for the
other one modules, keyed by kernel and content, and boots. A machine without a kernel skips the tests loudly; with
NODEWARD_REQUIRE_ALL=1 it fails them.

A guest ends by itself, or is killed at its deadline, or dies with the process that started it (setpriv --pdeathsig).
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.patience import patience
from tests.peers.find import absent
from tests.vm import network
from tests.vm.initramfs import initramfs

HERE: Final = Path(__file__).parent
REPOSITORY: Final = HERE.parent.parent
PREPARE: Final = "scripts/vm-prepare"
_TOOLS: Final = ("busybox", "setpriv", "taskset")
_STOCK_TOOLS: Final = ("qemu-system-x86_64", "make", "gcc")
_ENDED: Final = "guest: program ended with "
_STOCK_NAMES: Final = ("sev", "sev_es")
_DISTANCES: Final = ((0, 1, 21), (0, 2, 28), (1, 2, 17))
"""Of NUMA nodes: the one without CPUs is nearer to the second one with CPUs."""
QUICKER: Final = ("mitigations=off", "norandmaps", "init_on_alloc=0", "rcupdate.rcu_expedited=1")
"""The kernel's words that leave out what protects it from its users, and waits. Without `norandmaps` QEMU translates a
program anew at every start, since it lies elsewhere. A plain processor is quicker than QEMU's `max` too: together a
third of a guest's time."""
HOST_ADDRESS: Final = network.HOST_ADDRESS
"""What a guest with a network calls the host's loopback."""
GUEST_ADDRESS: Final = "10.0.2.15"


class GuestMissingError(Exception):
    """This machine cannot start a guest; the text says what is missing and what installs it."""


@dataclass(frozen=True, slots=True)
class Guest:
    """What a boot needs."""

    release: str
    kernel: Path
    initramfs: Path
    stock: bool = False
    """Debian's own kernel; else `kernel` is a program."""


@dataclass(frozen=True, slots=True)
class Run:
    output: str
    status: int | None
    duration_s: float


def cache() -> Path:
    """Where kernels and builds are kept, outside the repository."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "nodeward" / "vm"


def prepare(*, stock: bool = False) -> Guest:
    """A guest of the kernel that vm-prepare made last; builds what it boots with if that is not there."""
    command = f"{PREPARE} --stock" if stock else PREPARE
    without = [tool for tool in (*_TOOLS, *(_STOCK_TOOLS if stock else ())) if shutil.which(tool) is None]
    if without:
        raise GuestMissingError(f"no {', '.join(without)} here; run scripts/install-tools")
    current = cache() / "current" if stock else cache() / "user_mode" / "current"
    if not current.exists():
        raise GuestMissingError(f"no guest kernel in {cache()}; run {command}")
    if stock:
        release = current.read_text().strip()
    else:
        told = subprocess.run([current, "--version"], capture_output=True, text=True, check=True, timeout=60)
        release = told.stdout.strip()
    prefix = cache() / "kernels" / release
    build = cache() / "builds" / f"{release}-{_content_key()}"
    with _alone(cache() / "lock"):
        if not (build / "complete").exists():
            _build(prefix if stock else None, release, build)
    return Guest(release, prefix / "boot" / f"vmlinuz-{release}" if stock else current, build / "initramfs", stock)


def needed(*, stock: bool = False) -> Guest:
    try:
        return prepare(stock=stock or os.environ.get("NODEWARD_GUEST") == "stock")
    except GuestMissingError as missing:
        absent(f"NOT TESTED on a real kernel: {missing}")


@dataclass(frozen=True, slots=True)
class Machine:
    """What may differ from one boot to another."""

    memory_mib: int = 1024
    reaches: tuple[int, ...] = ()
    """Ports of the host's loopback that it can call, from an interface with GUEST_ADDRESS; it cannot be called."""
    systemd: bool = False
    """The program is a unit of systemd's, which is the guest's first process and has no other units."""
    serial: str = "stdio"
    """What the console is connected to; `mon:stdio` is a person's terminal, where Ctrl-A X ends the guest."""
    kernel_words: tuple[str, ...] = ()
    """More of the kernel's own words on its command line."""
    cpus: int = 1
    """Of a stock kernel, eight are two sockets of two cores of two threads. QEMU plays them one after the other: with a
    thread for each, the kernel sometimes panics early."""
    numa: bool = False
    """Of a stock kernel with eight CPUs, each socket is a NUMA node; and a third node, of an eighth of the memory, is
    without CPUs."""


ORDINARY: Final = Machine()


def boot(
    guest: Guest,
    program: Sequence[str],
    capacity: Mapping[str, int],
    timeout_s: float = 60.0,
    machine: Machine = ORDINARY,
) -> Run:
    """Boots, runs `program` (no spaces or commas in its words) in the repository's folder as root, powers off.

    `capacity` has two resources, which stand for the kernel's sev and sev_es; with other names than these, user space
    sees the other names. `timeout_s` is for a quiet machine and covers the whole boot.
    """
    start = time.perf_counter()
    try:
        done = subprocess.run(
            command(guest, program, capacity, machine),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s * patience(),
            check=False,
        )
        raw = done.stdout
    except subprocess.TimeoutExpired as late:
        raw = (late.stdout or b"") + f"\ntest: killed after {late.timeout:.0f} s\n".encode()
    output = raw.decode(errors="replace").replace("\r", "")
    ends = [line.removeprefix(_ENDED) for line in output.splitlines() if line.startswith(_ENDED)]
    return Run(output, int(ends[-1]) if ends else None, time.perf_counter() - start)


def command(
    guest: Guest, program: Sequence[str], capacity: Mapping[str, int], machine: Machine = ORDINARY
) -> list[str]:
    if any(character in word for word in program for character in ' ,"'):
        raise ValueError(
            f"a word of {list(program)} has a space, comma or quote; the kernel's command line cannot carry it"
        )
    arguments = {
        "program": ",".join(program),
        "folder": str(REPOSITORY),
        "capacity": ",".join(str(amount) for amount in capacity.values()),
    }
    if tuple(capacity) != _STOCK_NAMES:
        arguments["names"] = ",".join(capacity)
    if machine.systemd:
        arguments["systemd"] = "yes"
    if machine.reaches:
        arguments |= {"address": GUEST_ADDRESS, "gateway": HOST_ADDRESS}
    return (_qemu if guest.stock else _user_mode)(guest, machine, arguments)


def _user_mode(guest: Guest, machine: Machine, arguments: Mapping[str, str]) -> list[str]:
    misc = [f"fakemisc.{name}={value}" for name, value in arguments.items() if name in ("capacity", "names")]
    names = [] if "names" in arguments else [f"fakemisc.names={','.join(_STOCK_NAMES)}"]
    words = ["panic=-1", "quiet", "loglevel=3", *misc, *names, *machine.kernel_words]
    words += [f"nodeward.{name}={value}" for name, value in arguments.items()]
    console = ["con=null", "con0=fd:0,fd:1", "seccomp=on", f"ncpus={machine.cpus}"]
    ports, inside = ",".join(map(str, machine.reaches)), list[str]()
    if ports:
        inside = [sys.executable, "-m", "tests.vm.network", ports]
        console.append(f"vec0:transport=raw,ifname={network.INTERFACE}")
    dies_with_us = ["setpriv", "--pdeathsig", "KILL"]
    kernel = [
        *dies_with_us,
        "taskset",
        "--cpu-list",
        _one_cpu(),
        str(guest.kernel),
        f"mem={machine.memory_mib}M",
        f"initrd={guest.initramfs}",
    ]
    return [*(dies_with_us if inside else ()), *inside, *kernel, *console, *words]


def _one_cpu() -> str:
    """The same for every guest of this process: those of other processes have another where there is one.

    A guest is a process for its kernel and one for each program in it, which take turns at every system call. Where
    each turn wakes another CPU of a virtual machine, a guest takes three times as long.
    """
    cpus = sorted(os.sched_getaffinity(0))
    number = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return str(cpus[int(number) % len(cpus)])


def _qemu(guest: Guest, machine: Machine, arguments: Mapping[str, str]) -> list[str]:
    words = ["console=ttyS0", "panic=-1", "quiet", "loglevel=3", *QUICKER, *machine.kernel_words]
    words += [f"nodeward.{name}={value}" for name, value in arguments.items()]
    share = "local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap"
    net = ["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="] if machine.reaches else []
    processors = f"{machine.cpus}{',sockets=2,cores=2,threads=2' * (machine.cpus == 8)}"
    nodes = _three_nodes(machine.memory_mib) if machine.numa else []
    return [
        "setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", "-machine", "q35,graphics=off",
        "-accel", "tcg,thread=single", "-smp", processors, *nodes, "-cpu", "qemu64", "-m", str(machine.memory_mib),
        "-nodefaults", "-no-user-config", "-display", "none", *net, "-serial", machine.serial, "-no-reboot",
        "-virtfs", share, "-kernel", str(guest.kernel), "-initrd", str(guest.initramfs), "-append", " ".join(words),
    ]  # fmt: skip


def _three_nodes(memory_mib: int) -> list[str]:
    words = list[str]()
    small = memory_mib // 8
    large = (memory_mib - small) // 2
    for node, (size, cpus) in enumerate(((large, ",cpus=0-3"), (large, ",cpus=4-7"), (small, ""))):
        words += ["-object", f"memory-backend-ram,id=memory{node},size={size}M"]
        words += ["-numa", f"node,nodeid={node}{cpus},memdev=memory{node}"]
    for one, other, distance in _DISTANCES:
        words += ["-numa", f"dist,src={one},dst={other},val={distance}"]
    return words


def _content_key() -> str:
    digest = hashlib.sha256()
    sources = sorted(path.relative_to(HERE) for path in (HERE / "kernel_module").iterdir())
    for name in (Path("guest.py"), Path("initramfs.py"), Path("init"), *sources):
        digest.update((HERE / name).read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _build(prefix: Path | None, release: str, build: Path) -> None:
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir(parents=True)
    if prefix is not None:
        _build_modules(prefix, release, build / "module")
    busybox = Path(shutil.which("busybox") or "busybox")
    modules = None if prefix is None else (prefix / "lib" / "modules" / release, build / "module")
    (build / "initramfs").write_bytes(initramfs(busybox, HERE / "init", modules))
    (build / "complete").touch()


def _build_modules(prefix: Path, release: str, folder: Path) -> None:
    shutil.copytree(HERE / "kernel_module", folder)
    headers = prefix / "usr" / "src" / f"linux-headers-{release}"
    made = subprocess.run(
        ["make", "-C", str(headers), f"M={folder}", "CC=gcc", "CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"],
        capture_output=True, text=True, check=False, timeout=120 * patience(),
    )  # fmt: skip
    if made.returncode:
        raise RuntimeError(f"the modules do not build for {release}:\n{made.stdout[-3000:]}\n{made.stderr[-3000:]}")


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    try:
        print(prepare(stock="--stock" in sys.argv).initramfs)
    except GuestMissingError as missing:
        sys.exit(str(missing))
