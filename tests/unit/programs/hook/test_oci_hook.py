"""The OCI hook by itself: whom it asks in which order, what it writes where, and what it says when it cannot."""

import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from nodeward.core.modes import Mode, OnError
from nodeward.core.workload import PodSpec
from nodeward.features.limits.settings import LimitsSettings, UnknownPod, Unsupported
from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.formats import cgroup_paths
from nodeward.neighbours.hook import line as hook_line
from nodeward.neighbours.hook import oci
from nodeward.programs.hook.run import Options, Outcome, ask_socket, log, parse, run
from nodeward_sim.doubles.kernel import SimKernel
from tests.unit.programs.hook import rig as rigs
from tests.unit.programs.hook.rig import CGROUP, CRI, EPC, ID, POD, SANDBOX, SPEC, UID, HookRig, no_daemon, said

WHO = "nodeward: default/web, container app: "
LIMITS = "nodeward.io/limits"
LIMITED = json.dumps({"app": {EPC: "12288"}})
LARGEST = "18446744073709551614"
LACKS = f"declares 4096 of {EPC}, which this kernel cannot limit"


def test_the_daemon_is_asked_first_and_its_answer_is_written() -> None:
    rig = HookRig(notes={LIMITS: "{}", "secret": "do not tell"})
    assert (rig.run(said({EPC: 8192})), rig.limit()) == (Outcome(0), "8192")
    request = hook_line.decode_request(rig.asked[0])
    assert request[:7] == (ID, SANDBOX, UID, "default", "web", "app", CGROUP)
    assert request.annotations == {LIMITS: "{}"}, "those that are read, and no other"


@pytest.mark.parametrize(
    ("rig", "limit"),
    [
        pytest.param(HookRig(left=[SPEC], notes={LIMITS: LIMITED}), "4096", id="the pod's file, and no annotation"),
        pytest.param(HookRig(left=[SPEC], notes={f"{CRI}container-name": "other"}), "0", id="its pod declares"),
        pytest.param(HookRig(left=[SPEC], notes={f"{CRI}sandbox-uid": None}), "4096", id="older containerd, no UID"),
        pytest.param(HookRig(left=[SPEC], rule=LimitsSettings(mode=Mode.OBSERVE)), "max", id="observe"),
        pytest.param(HookRig(left=[SPEC], rule=LimitsSettings(mode=Mode.OFF)), "max", id="off"),
        pytest.param(HookRig(notes={LIMITS: LIMITED}), "12288", id="no file, our annotation"),
        pytest.param(HookRig(notes={"epc-limit.nri.io/container.app": "12288"}), "12288", id="NRI's, container"),
        pytest.param(HookRig(notes={"epc-limit.nri.io/pod": "12288"}), "12288", id="NRI's, pod"),
        pytest.param(HookRig(notes={"epc-limit.nri.io": "12288"}), "12288", id="NRI's"),
        pytest.param(HookRig(notes={"epc-limit.nri.io/pod": LARGEST}), LARGEST, id="the largest limit"),
        pytest.param(HookRig(notes={"epc-limit.nri.io/pod": "18446744073709551615"}), "max", id="no limit"),
    ],
)
def test_without_a_daemon_its_file_counts_then_annotations(rig: HookRig, limit: str) -> None:
    assert (rig.run(), rig.limit()) == (Outcome(0), limit)


@pytest.mark.parametrize(
    ("unknown", "code", "limit", "starts"),
    [
        (UnknownPod.UNLIMITED, 0, "max", "the container starts without a limit, for "),
        (UnknownPod.ZERO, 0, "0", "the container starts with limit 0, for "),
        (UnknownPod.REFUSE, 1, "max", ""),
    ],
)
def test_a_pod_that_nobody_knows_is_left_alone_or_as_the_settings_say(
    unknown: UnknownPod, code: int, limit: str, starts: str
) -> None:
    rig = HookRig(rule=LimitsSettings(unknown_pod=unknown))
    outcome = rig.run()
    assert (rig.limit(), outcome.code) == (limit, code)
    for words in (f"{WHO}nobody knows this pod", f"{starts}limits.unknown_pod is {unknown.value}", "nodeward status"):
        assert words in outcome.said
    assert HookRig(SimKernel({"sev": 3})).run() == Outcome(0), "nothing to speak of where nothing can be limited"


@pytest.mark.parametrize("kernel", [{"sev": 3}, {}], ids=["another resource", "none"])
def test_what_the_kernel_lacks_is_not_written_and_refused_where_the_settings_say_so(kernel: dict[str, int]) -> None:
    outcome = HookRig(SimKernel(kernel), [SPEC]).run()
    assert outcome.code == 0
    assert f"{LACKS} (not in misc.capacity)" in outcome.said
    assert "limits.unsupported is allow-unenforced" in outcome.said
    outcome = HookRig(SimKernel(kernel), [SPEC], LimitsSettings(unsupported=Unsupported.REFUSE)).run()
    assert (outcome.code, LACKS in outcome.said) == (1, True)


@pytest.mark.parametrize("key", [LIMITS, "epc-limit.nri.io/pod"])
@pytest.mark.parametrize("value", ["4096\x00", "1" * (1 << 20), "-1", ""], ids=["nul", "1 MiB", "negative", "empty"])
def test_an_annotation_that_cannot_be_read_limits_nothing_and_is_told(key: str, value: str) -> None:
    """Without daemon and file; where unknown pods are refused, it is the refusal."""
    rig = HookRig(notes={key: value})
    outcome = rig.run()
    assert (outcome.code, rig.limit()) == (0, "max")
    assert f"{WHO}annotation {key}: " in outcome.said
    assert "; it counts as undeclared; nobody knows this pod" in outcome.said
    rig = HookRig(notes={key: value}, rule=LimitsSettings(unknown_pod=UnknownPod.REFUSE))
    outcome = rig.run()
    assert (outcome.code, rig.limit()) == (1, "max")
    assert f"annotation {key}: " in outcome.said
    assert "limits.unknown_pod is refuse" in outcome.said
    assert len(outcome.said) < 500


def test_a_name_that_would_colour_a_terminal_is_written_out() -> None:
    outcome = HookRig(notes={f"{CRI}sandbox-name": "web\x1b[31m", LIMITS: "-1"}).run()
    assert outcome.said.startswith("nodeward: default/web\\u001b[31m, container app: "), outcome.said


def test_a_refusal_is_the_runtimes_error() -> None:
    refused = said({}, "default/web, container app: no", on_error="pass")
    assert HookRig().run(refused) == Outcome(1, f"{WHO}no")


def test_what_holds_the_sandbox_is_left_alone_and_told_and_no_pods_container_is_not_told() -> None:
    rig = HookRig(left=[SPEC], rule=LimitsSettings(strict=True, unknown_pod=UnknownPod.ZERO), notes=rigs.OF_A_SANDBOX)
    assert (rig.run(), rig.limit()) == (Outcome(0), "max")
    assert hook_line.decode_request(rig.asked[0]).container == ""
    podman = HookRig(notes={**dict.fromkeys(rigs.ANNOTATIONS), "io.podman.annotations.init": "FALSE"})
    assert (podman.run(), podman.asked) == (Outcome(0), [])


CRIO = {
    "io.kubernetes.cri-o.ContainerID": ID,
    "io.kubernetes.cri-o.ContainerType": "container",
    "io.kubernetes.cri-o.SandboxID": SANDBOX,
    "io.kubernetes.pod.uid": UID,
    "io.kubernetes.pod.namespace": "default",
    "io.kubernetes.pod.name": "web",
    "io.kubernetes.container.name": "app",
}


def test_a_pods_own_annotations_do_not_make_it_another_or_a_sandbox() -> None:
    """CRI-O hands a pod's annotations on; containerd does where it is told to."""
    sandbox = {f"{CRI}container-type": "sandbox", f"{CRI}sandbox-uid": "another"}
    real = (SANDBOX, UID, "default", "web", "app")
    assert oci.identity(CRIO | sandbox, ID) == real
    assert oci.identity(CRIO | rigs.ANNOTATIONS | sandbox | {f"{CRI}sandbox-id": ID}, ID) == real
    pretended = {key: "sandbox" if key.endswith("Type") else "x" * 64 for key in CRIO}
    assert oci.identity(pretended | rigs.ANNOTATIONS, ID) == real
    for annotations in (rigs.ANNOTATIONS, CRIO):  # nothing holds a sandbox but what has its id
        pretended = {key: "sandbox" if value == "container" else value for key, value in annotations.items()}
        assert oci.identity(pretended, ID) == real


SLICE = f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"


@pytest.mark.parametrize(
    ("named", "process"),
    [
        pytest.param(CGROUP, CGROUP, id="containerd, cgroupfs"),
        pytest.param("", CGROUP, id="the bundle has none"),
        pytest.param(f"{POD}/app", f"{POD}/app", id="without the id in its name"),
        pytest.param(f"{POD}/crio-{ID}", f"{POD}/crio-{ID}", id="CRI-O, cgroupfs"),
        pytest.param(f"/alone/libpod-{ID}", f"/alone/libpod-{ID}", id="podman, cgroupfs"),
        pytest.param(f"{SLICE}:cri-containerd:{ID}", f"{{}}/cri-containerd-{ID}.scope", id="containerd, systemd"),
        pytest.param(f"{SLICE}:crio:{ID}", f"{{}}/crio-{ID}.scope/container", id="CRI-O, systemd, crun"),
        pytest.param(f"{SLICE}:crio:{ID}", f"{{}}/crio-{ID}.scope/sub/init.scope", id="crun, two below"),
        pytest.param(f"machine.slice:libpod:{ID}", f"/machine.slice/libpod-{ID}.scope/container", id="podman, systemd"),
        pytest.param(CGROUP, f"{CGROUP}/container", id="one below, cgroupfs"),
    ],
)
def test_the_cgroup_of_each_runtime_is_the_containers(named: str, process: str) -> None:
    """It is what the bundle names, even if a runtime has put the process further down."""
    process = process.format(cgroup_paths.parent_path(SLICE))
    rig, own = HookRig(left=[SPEC], named=named, process=process), cgroup_paths.container_path(named) or process
    rig.cgroup(own)
    assert (rig.run(), rig.limit(own)) == (Outcome(0), "4096")


V1_LINES = "7:cpu,cpuacct:/x\n5:misc:{}\n0::/\n"
MOUNT = "30 20 0:26 / /sys/fs/cgroup/{} rw,nosuid - {} none rw{}\n"
BESIDE = MOUNT.format("cpu", "cgroup", ",cpu") + MOUNT.format("unified", "cgroup2", "")


def host(folder: Path, process: str, mounts: str, tree: str) -> OsFiles:
    """A host of plain folders, with the misc controller's files at `tree`; without them for an empty one."""
    config = {"ociVersion": "1.0.2", "linux": {"cgroupsPath": CGROUP}, "annotations": rigs.ANNOTATIONS}
    files = {
        f"/proc/{rigs.PID}/cgroup": process.format(CGROUP),
        "/proc/self/mountinfo": mounts,
        f"{rigs.BUNDLE}/config.json": json.dumps(config),
        **({f"{tree}/misc.capacity": f"{EPC} 65536\n", f"{tree}{CGROUP}/misc.max": ""} if tree else {}),
    }
    for path, text in files.items():
        (folder / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (folder / path[1:]).write_text(text)
    return OsFiles(str(folder))


@pytest.mark.parametrize(
    ("process", "mounts", "tree"),
    [
        pytest.param("0::{}\n", "", "/sys/fs/cgroup", id="v2"),
        pytest.param(V1_LINES, "", "/sys/fs/cgroup/misc", id="v1"),
        pytest.param(V1_LINES, MOUNT.format("misc-v1", "cgroup", ",misc"), "/sys/fs/cgroup/misc-v1", id="v1-elsewhere"),
        pytest.param("7:cpu:/x\n0::{}\n", BESIDE, "/sys/fs/cgroup/unified", id="v2-beside-v1"),
    ],
)
def test_the_misc_controller_is_found_where_it_is_mounted(tmp_path: Path, process: str, mounts: str, tree: str) -> None:
    files = host(tmp_path, process, mounts, tree)
    assert run(HookRig().state(), files, Options("refuse"), lambda *_: said({EPC: 4096})) == Outcome(0)
    assert (tmp_path / f"{tree[1:]}{CGROUP}/misc.max").read_text() == f"{EPC} 4096\n"


@pytest.mark.parametrize("process", ["0::{}\n", V1_LINES], ids=["v2", "v1"])
@pytest.mark.parametrize("on_error", ["pass", "refuse"])
def test_a_limit_where_no_misc_controller_is_mounted_is_an_error(tmp_path: Path, process: str, on_error: str) -> None:
    other = MOUNT.format("unified", "cgroup2", "") if process == V1_LINES else MOUNT.format("misc", "cgroup", ",misc")
    files = host(tmp_path, process, other, "")
    outcome = run(HookRig().state(), files, Options(), lambda *_: said({EPC: 4096}, on_error=on_error))
    assert outcome.code == (on_error == "refuse")
    assert f"the limit {EPC} 4096 cannot be set: no misc.capacity at /sys/fs/cgroup" in outcome.said
    assert "Mount it (mount -t cgroup" in outcome.said
    assert run(HookRig().state(), files, Options("refuse"), no_daemon) == Outcome(0), "nothing declared or said"


OUTSIDE = {
    "v1": f"4:pids:{CGROUP}\n5:misc:/\n0::/\n",
    "v1, nothing joined": "5:misc:/\n0::/\n",
    "v1, where the runtime itself is": f"5:misc:/runtime\n4:pids:{CGROUP}\n",
    "v2 beside v1": f"4:pids:{CGROUP}\n0::/system.slice/runtime.service\n",
}
"""What the kernel says of a process whose runtime does not join the tree that has misc; runc before 1.1.6 on v1."""


def outside(process: str, option: str = "refuse") -> HookRig:
    rig = HookRig(process=process, option=option)
    rig.kernel.mkdir("/proc/self")
    rig.kernel.replace("/proc/self/mountinfo", b"")
    return rig


@pytest.mark.parametrize("process", OUTSIDE.values(), ids=OUTSIDE)
def test_who_needs_no_limit_starts_below_a_runtime_that_leaves_misc_out(process: str) -> None:
    rig = outside(process)
    assert rig.run(said({})) == Outcome(0)
    alone = rig.run()
    assert (alone.code, "cannot be set" in alone.said) == (0, False), "nobody answers, and nothing is declared"
    rig.notes = rigs.OF_A_SANDBOX
    assert rig.run(b"") == Outcome(0)
    assert [hook_line.decode_request(line).cgroup for line in rig.asked] == [CGROUP] * 3


@pytest.mark.parametrize("process", OUTSIDE.values(), ids=OUTSIDE)
@pytest.mark.parametrize(("on_error", "option"), [("pass", "refuse"), ("refuse", "pass")])
def test_a_limit_below_a_runtime_that_leaves_misc_out_is_an_error(process: str, on_error: str, option: str) -> None:
    """As the daemon says, and not the option."""
    rig = outside(process, option)
    outcome = rig.run(said({EPC: 4096}, on_error=on_error))
    assert (outcome.code, rig.limit()) == (on_error == "refuse", "max")
    assert outcome.said.startswith(f"{WHO}the limit {EPC} 4096 cannot be set: process {rigs.PID} is in no cgroup")
    assert ("Use one that joins it (runc 1.1.6 or newer), or cgroup v2" in outcome.said) is (":misc:" in process)


def switched_off(option: str = "refuse", left: Sequence[PodSpec] = (), rule: LimitsSettings | None = None) -> HookRig:
    rig = HookRig(option=option, left=left, rule=rule)
    rig.kernel.write(f"/sys/fs/cgroup{POD}/cgroup.subtree_control", b"-misc")
    return rig


def test_a_write_that_fails_names_container_resource_value_kernel_and_remedy() -> None:
    assert switched_off().run(said({EPC: 4096})) == Outcome(
        1,
        f"{WHO}cannot write '{EPC} 4096' to /sys/fs/cgroup{CGROUP}/misc.max: No such file or directory (errno 2). The "
        "misc controller is not switched on for this cgroup: crun does so since 1.18, runc always, and `nodeward node` "
        "for every pod",
    )


def test_on_error_is_the_answers_then_the_files_then_the_options() -> None:
    for option in ("pass", "refuse"):
        for answer in ("pass", "refuse"):
            assert switched_off(option).run(said({EPC: 1}, on_error=answer)).code == (answer == "refuse")
            left = switched_off(option, [SPEC], LimitsSettings(on_error=OnError(answer)))
            assert left.run().code == (answer == "refuse")
        assert HookRig(option=option, left=[SPEC]).run(stdin=b"").code == (option == "refuse")
    passed = HookRig(option="pass").run(stdin=b"").said
    assert "starts all the same, without this limit (on_error is pass)" in passed


@pytest.mark.parametrize("on_error", ["pass", "refuse"])
def test_an_answer_of_what_this_kernel_lacks_is_an_error_and_the_rest_is_written(on_error: str) -> None:
    rig = HookRig()
    outcome = rig.run(said({"tdx": 1, EPC: 4096}, on_error=on_error))
    assert (outcome.code, rig.limit()) == (on_error == "refuse", "4096")
    assert f"the limit tdx 1 cannot be set: /sys/fs/cgroup/misc.capacity has {EPC}" in outcome.said


class Forgetful(SimKernel):
    def write(self, path: str, data: bytes) -> None:
        if not path.endswith("misc.max"):
            super().write(path, data)


class Refusing(SimKernel):
    def write(self, path: str, data: bytes) -> None:
        if data.startswith((EPC.encode(), b"sev ")):
            raise OSError(errno.EINVAL, "Invalid argument")
        super().write(path, data)


def test_a_limit_that_reads_back_otherwise_is_an_error() -> None:
    outcome = HookRig(Forgetful({EPC: 1 << 20})).run(said({EPC: 4096}))
    assert (outcome.code, f"the kernel has {EPC} at max" in outcome.said) == (1, True)


def test_a_resource_whose_write_fails_does_not_keep_the_others_from_theirs_nor_their_faults() -> None:
    rig = HookRig(Refusing({EPC: 1 << 20, "sev_es": 5, "sev": 5}))
    outcome = rig.run(said({EPC: 4096, "sev_es": 1, "sev": 2}, on_error="pass"))
    assert (outcome.code, rig.limit().splitlines()) == (0, ["sev max", "sev_es 1", f"{EPC} max"])
    for lacks in (f"'{EPC} 4096'", "'sev 2'"):
        assert f"cannot write {lacks} to /sys/fs/cgroup{CGROUP}/misc.max: Invalid argument" in outcome.said
    assert "starts all the same" in outcome.said


PROGRAM = [sys.executable, "-c", "from nodeward.programs.hook.run import main; main()"]


def test_the_program_says_what_is_wrong_on_stderr_and_in_its_exit_code() -> None:
    assert parse([]) == Options("pass", "/run/nodeward")
    assert parse(["--on-error", "refuse", "--folder=/a"]) == Options("refuse", "/a")
    done = subprocess.run([*PROGRAM, "--on-error", "refuse"], input=b"", capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"nodeward: container: OCI state: nothing on stdin")


def test_an_endless_state_is_not_waited_for() -> None:
    with open("/dev/zero", "rb") as endless:
        done = subprocess.run([*PROGRAM, "--on-error=refuse"], stdin=endless, capture_output=True, timeout=60)
    assert (done.returncode, b"OCI state: more than 1048576 bytes" in done.stderr) == (1, True)


ENGINE = ("nodeward.core.decision", "nodeward.core.events", "nodeward.features.settings", "nodeward.features.root")


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("nodeward.programs.hook.run", ("dataclasses", "nodeward.features", "nodeward.features.settings", "socket")),
        ("nodeward.programs.hook.alone", ("fractions", *ENGINE)),
    ],
)
def test_the_hook_imports_next_to_nothing(module: str, heavy: tuple[str, ...]) -> None:
    banned = (*heavy, "asyncio", "click", "msgspec", "http", "argparse", "logging", "subprocess")
    code = f"import {module}, sys; print(*[name for name in {banned!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == []


def test_what_is_said_is_in_the_machines_log_too(tmp_path: Path) -> None:
    """crun throws away what a hook says; syslog's priorities are 27 for an error and 28 for a warning of a daemon."""
    place = str(tmp_path / "log")
    log(Outcome(1, "nodeward: nobody listens"), place)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(place)
        log(Outcome(1, f"{WHO}no\n"), place)
        log(Outcome(0, f"{WHO}all the same"), place)
        who = f"nodeward-oci-hook[{os.getpid()}]: {WHO}"
        assert [listener.recv(4096).decode() for _ in range(2)] == [f"<27>{who}no", f"<28>{who}all the same"]
        for _ in range(2000):  # more than net.unix.max_dgram_qlen and any buffer: it is not waited for
            log(Outcome(1, "n" * 1000), place)


def test_a_daemon_that_hangs_holds_no_sandbox_up(tmp_path: Path) -> None:
    path = str(tmp_path / "hook.sock")
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(path)
        deaf.listen()
        assert ask_socket(path, b"line\n", False) == b""
        with deaf.accept()[0] as peer:
            assert peer.recv(100) == b"line\n"
