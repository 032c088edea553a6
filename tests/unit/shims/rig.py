"""A node without daemon for the OCI hook: the kernel double with a pod's cgroup, a process in it, and a bundle."""

import contextlib
import json
from dataclasses import dataclass, field

from nodeward.doubles.kernel import SimKernel
from nodeward.model.settings import LimitsSettings
from nodeward.model.workload import ContainerSpec, PodSpec, PodUid
from nodeward.shims.oci_hook import Options, Outcome, run
from nodeward.wire import hook_line, pod_file
from nodeward.wire.hook_line import HookAnswer

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
ANNOTATIONS = {
    "io.kubernetes.cri.container-type": "container",
    "io.kubernetes.cri.sandbox-id": SANDBOX,
    "io.kubernetes.cri.sandbox-uid": UID,
    "io.kubernetes.cri.sandbox-namespace": "default",
    "io.kubernetes.cri.sandbox-name": "web",
    "io.kubernetes.cri.container-name": "app",
}
SPEC = PodSpec(PodUid(UID), "default", "web", (ContainerSpec("app", declared={EPC: 4096}), ContainerSpec("other")))


def said(limits: dict[str, int], refusal: str = "", on_error: str = "refuse") -> bytes:
    """A daemon's answer."""
    return hook_line.encode_answer(HookAnswer(limits, refusal, on_error, "declared app"))


def no_daemon(path: str, line: bytes, wait: bool) -> bytes:
    """There is no socket."""
    raise FileNotFoundError(2, "No such file or directory", path)


@dataclass(slots=True)
class HookRig:
    """What a test changes before it runs the hook."""

    kernel: SimKernel = field(default_factory=lambda: SimKernel({EPC: 1 << 20}))
    annotations: dict[str, str] = field(default_factory=lambda: dict(ANNOTATIONS))
    cgroups_path: str = CGROUP
    options: Options = field(default_factory=lambda: Options(on_error="refuse"))
    asked: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        for path in ("/proc", f"/proc/{PID}", "/run", FOLDER, f"{FOLDER}/pods", BUNDLE):
            with contextlib.suppress(FileExistsError):
                self.kernel.mkdir(path)
        self.kernel.make_cgroup(ROOT + CGROUP)
        here = ROOT
        for part in ("", *POD.strip("/").split("/")):
            here = f"{here}/{part}".rstrip("/")
            self.kernel.write(f"{here}/cgroup.subtree_control", b"+misc")
        self.process_in(CGROUP)

    def process_in(self, path: str) -> None:
        """Where the kernel says the container's process is."""
        self.kernel.replace(f"/proc/{PID}/cgroup", f"0::{path}\n".encode())

    def leave(self, rule: LimitsSettings | None = None, spec: PodSpec | None = SPEC) -> None:
        """What an earlier daemon left."""
        self.kernel.replace(f"{FOLDER}/{pod_file.RULE}", pod_file.encode_rule(rule or LimitsSettings()))
        if spec is not None:
            self.kernel.replace(f"{FOLDER}/{pod_file.name_of(spec.uid)}", pod_file.encode_pod(spec))

    def config(self, **more: object) -> None:
        """Writes the bundle's config.json."""
        linux = {"cgroupsPath": self.cgroups_path}
        config = {"ociVersion": "1.0.2", "linux": linux, "annotations": self.annotations, **more}
        self.kernel.replace(f"{BUNDLE}/config.json", json.dumps(config).encode())

    def state(self, **more: object) -> bytes:
        """The state as a runtime gives it."""
        return json.dumps({"ociVersion": "1.0.2", "id": ID, "pid": PID, "bundle": BUNDLE, **more}).encode()

    def run(self, stdin: bytes | None = None, answer: bytes | OSError | None = None) -> Outcome:
        """Runs the hook; `answer` is what the daemon says, or how it fails."""

        def ask(path: str, line: bytes, wait: bool) -> bytes:
            self.asked.append(line)
            if answer is None:
                return no_daemon(path, line, wait)
            if isinstance(answer, OSError):
                raise answer
            return answer

        return run(self.state() if stdin is None else stdin, self.kernel, self.options, ask)

    def limit(self, path: str = CGROUP) -> str:
        """What the kernel double has."""
        return self.kernel.read(f"{ROOT}{path}/misc.max", 4096).decode().strip()
