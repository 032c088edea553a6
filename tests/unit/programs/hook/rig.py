"""A node without daemon for the OCI hook: the kernel double with a pod's cgroup, a process in it, and a bundle."""

import contextlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nodeward.core.workload import ContainerSpec, PodSpec, PodUid
from nodeward.features.limits import hook_file
from nodeward.features.limits.settings import LimitsSettings
from nodeward.neighbours.hook import line as hook_line
from nodeward.neighbours.hook.line import HookAnswer
from nodeward.programs.hook.run import Options, Outcome, run
from nodeward_sim.doubles.kernel import SimKernel

EPC = "sgx_epc"
ROOT = "/sys/fs/cgroup"
FOLDER = "/run/nodeward"
BUNDLE = "/run/bundle"
ID = "c" * 64
SANDBOX = "5" * 64
UID = "0f2a4c6e-1111-2222-3333-444455556666"
POD = f"/kubepods/burstable/pod{UID}"
CGROUP = f"{POD}/{ID}"
PID = 4242
CRI = "io.kubernetes.cri."
ANNOTATIONS = {
    f"{CRI}container-type": "container",
    f"{CRI}sandbox-id": SANDBOX,
    f"{CRI}sandbox-uid": UID,
    f"{CRI}sandbox-namespace": "default",
    f"{CRI}sandbox-name": "web",
    f"{CRI}container-name": "app",
}
OF_A_SANDBOX = {f"{CRI}container-type": "sandbox", f"{CRI}sandbox-id": ID, f"{CRI}container-name": None}
"""What makes the container the one that holds the sandbox."""
SPEC = PodSpec(PodUid(UID), "default", "web", (ContainerSpec("app", declared={EPC: 4096}), ContainerSpec("other")))


def said(limits: dict[str, int], refusal: str = "", on_error: str = "refuse") -> bytes:
    return hook_line.encode_answer(HookAnswer(limits, refusal, on_error, "declared app"))


def no_daemon(path: str, line: bytes, wait: bool) -> bytes:
    raise FileNotFoundError(2, "No such file or directory", path)


@dataclass(slots=True)
class HookRig:
    """`left`: the specs of pods that an earlier daemon left, with its rule; `notes` are beside a container's own
    annotations, and None takes one out; a `bundle` is instead of what a runtime writes."""

    kernel: SimKernel = field(default_factory=lambda: SimKernel({EPC: 1 << 20}))
    left: Sequence[PodSpec] = ()
    rule: LimitsSettings | None = None
    notes: Mapping[str, str | None] = field(default_factory=dict)
    named: str = CGROUP
    process: str = ""
    option: str = "refuse"
    bundle: bytes | None = None
    asked: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        for path in ("/proc", f"/proc/{PID}", "/run", FOLDER, f"{FOLDER}/pods", BUNDLE):
            with contextlib.suppress(FileExistsError):
                self.kernel.mkdir(path)
        self.cgroup(CGROUP)
        self.process_in(self.process or CGROUP)
        if self.left or self.rule:
            self.kernel.replace(f"{FOLDER}/{hook_file.RULE}", hook_file.encode_rule(self.rule or LimitsSettings()))
        for spec in self.left:
            self.kernel.replace(f"{FOLDER}/{hook_file.name_of(spec.uid)}", hook_file.encode_pod(spec))

    def cgroup(self, path: str) -> None:
        self.kernel.make_cgroup(ROOT + path)
        for above in ("", *itertools.accumulate(path.split("/")[1:-1], "{}/{}".format, initial="")):
            self.kernel.write(f"{ROOT}{above}/cgroup.subtree_control", b"+misc")

    def process_in(self, path: str) -> None:
        """Where the kernel says the container's process is; or its whole word on it."""
        text = path if "\n" in path else f"0::{path}\n"
        self.kernel.replace(f"/proc/{PID}/cgroup", text.encode())

    def state(self, **more: object) -> bytes:
        """The state as a runtime gives it, with the bundle that it names."""
        notes = {name: value for name, value in {**ANNOTATIONS, **self.notes}.items() if value is not None}
        config = {"ociVersion": "1.0.2", "linux": {"cgroupsPath": self.named}, "annotations": notes}
        written = json.dumps(config).encode() if self.bundle is None else self.bundle
        self.kernel.replace(f"{BUNDLE}/config.json", written)
        return json.dumps({"ociVersion": "1.0.2", "id": ID, "pid": PID, "bundle": BUNDLE, **more}).encode()

    def run(self, answer: bytes | OSError | None = None, stdin: bytes | None = None) -> Outcome:
        """Runs the hook; `answer` is what the daemon says, or how it fails."""

        def ask(path: str, line: bytes, wait: bool) -> bytes:
            self.asked.append(line)
            if answer is None:
                return no_daemon(path, line, wait)
            if isinstance(answer, OSError):
                raise answer
            return answer

        return run(self.state() if stdin is None else stdin, self.kernel, Options(self.option), ask)

    def limit(self, path: str = CGROUP) -> str:
        """What the kernel double has for `sgx_epc`."""
        return self.kernel.read(f"{ROOT}{path}/misc.max", 4096).decode().strip().removeprefix(f"{EPC} ")
