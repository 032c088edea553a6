"""Kata's own host side for tests: cgroups, QEMU and vCPU threads as Kata's Go libraries make them.

`write_kata` gives an OCI runtime for a handler of tests/peers/containerd.py. `kata_paths`, `kata_sizes` and `placing`
ask the libraries without a VM. There is no guest agent. QEMU is the machine's, without KVM, and the guest's CPUs do not
run unless a test asks for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.patience import scaled
from tests.peers.cgroups import hierarchies
from tests.peers.find import absent, require

WITHIN_S = scaled(60.0)
OVERHEAD = "kata_overhead"
"""Kata's cgroup for what it does not charge to the pod; it stays when the last sandbox is gone."""
DEFAULT = "vc"
"""The cgroup of a sandbox without a path. Kata's clean-up after a shim that was killed makes it, and leaves it."""
MODE_ANNOTATION = "io.katacontainers.config.runtime.sandbox_cgroup_only"
PASSED_ON = "io.katacontainers.*"
"""What containerd is to pass on of a pod's annotations, for the mode by annotation."""

_QEMU = "qemu-system-x86_64"
_WRAPPER = """#!/bin/sh
# Kata has KVM and the host's CPU built in: change both, and become QEMU (same process, same cgroup).
for argument do
    shift
    case "$argument" in
        *accel=kvm*) argument="${argument%%accel=kvm*}accel=tcg${argument#*accel=kvm}" ;;
        host|host,*) argument=max ;;
        sandbox-*) argument="$argument@THREADS@" ;;
    esac
    set -- "$@" "$argument"
done
exec @QEMU@ "$@"@PAUSED@
"""
_CONFIGURATION = """[hypervisor.qemu]
path = "@FOLDER@/qemu"
kernel = "@FOLDER@/zeros"
image = "@FOLDER@/zeros"
default_vcpus = @VCPUS@
default_memory = @MEMORY@
enable_mem_prealloc = @PREALLOC@
enable_annotations = @ENABLED@

[runtime]
sandbox_cgroup_only = @ONLY@
static_sandbox_resource_mgmt = true
"""


class KataHostError(Exception):
    """The program ended when a test expected an answer."""


@dataclass(frozen=True, slots=True)
class KataOptions:
    sandbox_cgroup_only: bool = False
    vcpus: int = 1
    memory_mib: int = 64
    """Of a VM whose pod has no limits; a pod's limits are added."""
    prealloc: bool = False
    """The VM uses its whole memory from the start."""
    running: bool = False
    """The guest's CPUs run. It has no system: they burn time in its firmware."""
    enabled: tuple[str, ...] = ()
    """Annotations of the VM that a pod may have."""
    named_threads: bool = False
    """vCPU threads are called `CPU 0/TCG` and so on; Kata's own are not."""


def write_kata(folder: Path, options: KataOptions) -> Path:
    """The OCI runtime in that new folder; the test skips where the peer or QEMU is missing."""
    programs, qemu = require("katahost") / "bin", shutil.which(_QEMU)
    if qemu is None:
        absent(f"no {_QEMU} here: run scripts/install-tools")
    folder.mkdir()
    values = {
        "@FOLDER@": str(folder),
        "@VCPUS@": str(options.vcpus),
        "@MEMORY@": str(options.memory_mib),
        "@PREALLOC@": str(options.prealloc).lower(),
        "@ENABLED@": json.dumps(options.enabled),
        "@ONLY@": str(options.sandbox_cgroup_only).lower(),
        "@QEMU@": qemu,
        "@THREADS@": ",debug-threads=on" if options.named_threads else "",
        "@PAUSED@": "" if options.running else " -S",
        "@PROGRAM@": str(programs / "katart"),
    }
    (folder / "zeros").write_bytes(bytes(1 << 20))
    (folder / "configuration.toml").write_text(_filled(_CONFIGURATION, values))
    runtime = '#!/bin/sh\nKATA_CONF_FILE=@FOLDER@/configuration.toml exec @PROGRAM@ "$@"\n'
    for name, script in (("qemu", _WRAPPER), ("runtime", runtime)):
        (folder / name).write_text(_filled(script, values))
        (folder / name).chmod(0o755)
    return folder / "runtime"


def _filled(text: str, values: Mapping[str, str]) -> str:
    for mark, value in values.items():
        text = text.replace(mark, value)
    return text


@dataclass(frozen=True, slots=True)
class KataCell:
    cgroups_path: str
    only: bool
    sandbox_id: str

    def record(self) -> dict[str, str | bool]:
        return {"cgroupsPath": self.cgroups_path, "only": self.only, "id": self.sandbox_id}


@dataclass(frozen=True, slots=True)
class KataPaths:
    systemd: bool
    v1: str
    v2: str
    overhead: str
    error: str


def kata_paths(cells: Sequence[KataCell]) -> list[KataPaths]:
    """The paths of each cell by Kata's own functions. No cgroup is touched."""
    return [KataPaths(**json.loads(line)) for line in _asked("paths", [cell.record() for cell in cells])]


@dataclass(frozen=True, slots=True)
class KataSize:
    cpus: float
    memory_mib: int


def kata_sizes(annotations: Sequence[Mapping[str, str]]) -> list[KataSize]:
    """The size that Kata reads out of each sandbox's annotations."""
    answers = map(json.loads, _asked("size", [{"annotations": dict(each)} for each in annotations]))
    return [KataSize(answer["cpus"], answer["memoryMiB"]) for answer in answers]


@dataclass(frozen=True, slots=True)
class KataVolume:
    info: dict[str, object] | None
    sandbox: str
    error: str


def kata_volumes(folder: Path, calls: Sequence[Mapping[str, str]]) -> list[KataVolume]:
    """Calls of that library (add, read, record, sandbox, remove) on the volumes in `folder`, in this order."""
    return [KataVolume(**json.loads(line)) for line in _asked("volumes", calls, str(folder))]


def kata_vms(base: KataSize, allowed: Sequence[str], annotations: Sequence[Mapping[str, str]]) -> list[KataSize | str]:
    """The size of the VM that Kata makes of each sandbox's annotations over its configuration's, where those in
    `allowed` are enabled; else why it refuses."""
    over = {"vcpus": base.cpus, "memoryMiB": base.memory_mib, "enableAnnotations": [*allowed]}
    answers = map(json.loads, _asked("vm", [{**over, "annotations": dict(each)} for each in annotations]))
    return [answer["error"] or KataSize(answer["vcpus"], answer["memoryMiB"]) for answer in answers]


def _asked(command: str, records: Sequence[Mapping[str, object]], *words: str) -> list[str]:
    program = str(require("katahost") / "bin" / "katahost")
    lines = "".join(f"{json.dumps(record)}\n" for record in records)
    done = subprocess.run(
        [program, command, *words], input=lines, capture_output=True, text=True, timeout=WITHIN_S, check=True
    )
    return done.stdout.splitlines()


@dataclass(frozen=True, slots=True)
class PlacedThread:
    """A thread and its cgroups, by the controllers of the hierarchy as /proc has them (`` with cgroup v2)."""

    role: str
    """`shim`, `vmm` or `vcpu`."""
    pid: int
    tid: int
    cgroups: dict[str, str]


@dataclass(frozen=True, slots=True)
class Placed:
    sandbox: str
    overhead: str
    threads: list[PlacedThread]
    error: str


@dataclass(slots=True)
class Placing:
    process: subprocess.Popen[str]

    def answer(self) -> Placed:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise KataHostError(f"katahost place ended with status {self.process.wait(WITHIN_S)}")
        said = json.loads(line)
        threads = [PlacedThread(**each) for each in said["threads"]]
        return Placed(said["sandbox"], said["overhead"], threads, said["error"])

    def tell(self, word: str) -> Placed:
        """`report`, `update` (Kata places again at each change of a container) or `delete`."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self.answer()


@contextmanager
def placing(cell: KataCell, vcpus: int = 2, cpus: str = "") -> Iterator[tuple[Placing, Placed]]:
    command = [str(require("katahost") / "bin" / "katahost"), "place"]
    with (
        kata_cgroups_as_before(),
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process,
    ):
        placed = Placing(process)
        try:
            yield placed, placed.tell(json.dumps({**cell.record(), "vcpus": vcpus, "cpus": cpus}))
        finally:
            process.communicate(timeout=WITHIN_S)


def _kata_cgroups() -> set[Path]:
    """Kata's own cgroups outside of pods in all hierarchies, with those in them."""
    tops = [top for root in hierarchies() for name in (OVERHEAD, DEFAULT) if (top := root / name).is_dir()]
    return {*tops, *(path for top in tops for path in top.iterdir() if path.is_dir())}


@contextmanager
def kata_cgroups_as_before() -> Iterator[None]:
    """Remove what the block has left of Kata's own cgroups; those with a process in them stay."""
    before = _kata_cgroups()
    try:
        yield
    finally:
        for path in sorted(_kata_cgroups() - before, reverse=True):
            with contextlib.suppress(OSError):
                os.rmdir(path)


def thread_cgroups(pid: int) -> dict[int, dict[str, str]]:
    found: dict[int, dict[str, str]] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        lines = (line.split(":", 2) for line in (task / "cgroup").read_text().splitlines())
        found[int(task.name)] = {controllers: path for _, controllers, path in lines}
    return found


def processes(*words: str) -> list[int]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if all(word in line for word in words):
            found.append(int(file.parent.name))
    return found


@dataclass(frozen=True, slots=True)
class KataSandbox:
    id: str
    shim: int
    vmm: int

    @classmethod
    def of(cls, sandbox: str) -> KataSandbox:
        (shim,) = processes("containerd-shim-kata-v2 ", f"-id {sandbox}")
        (vmm,) = processes("qemu-system", f"-name sandbox-{sandbox}")
        return cls(sandbox, shim, vmm)

    def shim_in(self) -> list[str]:
        """The cgroups of the shim, each once; there is one if all is well."""
        return _once(thread_cgroups(self.shim))

    def vmm_in(self) -> list[str]:
        return _once({tid: of for tid, of in thread_cgroups(self.vmm).items() if not self._is_vcpu(tid)})

    def vcpus_in(self) -> list[str]:
        return _once({tid: of for tid, of in thread_cgroups(self.vmm).items() if self._is_vcpu(tid)})

    def _is_vcpu(self, tid: int) -> bool:
        return Path(f"/proc/{self.vmm}/task/{tid}/comm").read_text().startswith("CPU ")


def _once(threads: Mapping[int, Mapping[str, str]]) -> list[str]:
    """The paths in all hierarchies. On a hybrid host the one of cgroup v2 has no controllers, and is left out."""
    return sorted({path for of in threads.values() for key, path in of.items() if key or len(of) == 1})
