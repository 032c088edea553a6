"""The OCI hook by itself: whom it asks in which order, what it writes, and what it says when it cannot."""

import errno
import itertools
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nodeward.doubles.kernel import SimKernel
from nodeward.model.settings import LimitsSettings, Mode, OnError, UnknownPod, Unsupported
from nodeward.shims.oci_hook import Options, Outcome, ask_socket, log, parse
from nodeward.wire import cgroup_paths, hook_line, oci
from tests.unit.shims.rig import (
    ANNOTATIONS,
    CGROUP,
    EPC,
    ID,
    PID,
    POD,
    ROOT,
    SANDBOX,
    UID,
    HookRig,
    said,
)


def test_the_daemons_answer_is_written() -> None:
    rig = HookRig()
    rig.config()

    assert rig.run(answer=said({EPC: 8192})) == Outcome(0)
    assert rig.limit() == f"{EPC} 8192"
    request = hook_line.decode_request(rig.asked[0])
    assert request[:7] == (ID, SANDBOX, UID, "default", "web", "app", CGROUP)


def test_without_a_daemon_the_pods_file_counts_and_an_annotation_does_not() -> None:
    rig = HookRig()
    rig.leave()
    rig.annotations["nodeward.io/limits"] = json.dumps({"app": {EPC: "1"}})
    rig.config()

    assert rig.run() == Outcome(0)
    assert rig.limit() == f"{EPC} 4096"


def test_a_container_that_declares_nothing_in_a_pod_that_does_gets_0() -> None:
    rig = HookRig()
    rig.leave()
    rig.annotations["io.kubernetes.cri.container-name"] = "other"
    rig.config()
    rig.run()

    assert rig.limit() == f"{EPC} 0"


def test_a_pod_that_nobody_knows_is_left_alone_or_as_the_settings_say() -> None:
    for unknown, limit, starts in (
        (UnknownPod.UNLIMITED, "max", "the container starts without a limit, for "),
        (UnknownPod.ZERO, "0", "the container starts with limit 0, for "),
        (UnknownPod.REFUSE, "max", ""),
    ):
        code = int(unknown is UnknownPod.REFUSE)
        rig = HookRig()
        rig.leave(LimitsSettings(unknown_pod=unknown), spec=None)
        rig.config()
        outcome = rig.run()

        assert (rig.limit(), outcome.code) == (f"{EPC} {limit}", code)
        assert outcome.said.startswith("nodeward: default/web, container app: nobody knows this pod")
        assert f"{starts}limits.unknown_pod is {unknown.value}" in outcome.said
        assert "nodeward status" in outcome.said


def test_where_nothing_can_be_limited_an_unknown_pod_is_nothing_to_speak_of() -> None:
    rig = HookRig(SimKernel({"sev": 3}))
    rig.config()

    assert rig.run() == Outcome(0)


def test_what_the_kernel_lacks_is_not_written_and_refused_where_the_settings_say_so() -> None:
    for kernel in (SimKernel({"sev": 3}), SimKernel({})):
        rig = HookRig(kernel)
        rig.leave()
        rig.config()
        outcome = rig.run()
        assert outcome.code == 0
        assert f"declares 4096 of {EPC}, which this kernel cannot limit (not in misc.capacity)" in outcome.said
        assert "limits.unsupported is allow-unenforced" in outcome.said
        rig.leave(LimitsSettings(unsupported=Unsupported.REFUSE))
        outcome = rig.run()
        assert outcome.code == 1
        assert f"declares 4096 of {EPC}, which this kernel cannot limit" in outcome.said


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.OFF])
def test_nothing_is_written_unless_limits_are_enforced(mode: Mode) -> None:
    rig = HookRig()
    rig.leave(LimitsSettings(mode=mode))
    rig.config()

    assert rig.run() == Outcome(0)
    assert rig.limit() == f"{EPC} max"


def test_a_refusal_is_the_runtimes_error() -> None:
    rig = HookRig()
    rig.config()

    assert rig.run(answer=said({}, "default/web, container app: no", on_error="pass")) == Outcome(
        1, "nodeward: default/web, container app: no"
    )


def test_what_holds_the_sandbox_is_left_alone_and_told() -> None:
    rig = HookRig()
    rig.leave(LimitsSettings(strict=True, unknown_pod=UnknownPod.ZERO))
    rig.annotations |= {"io.kubernetes.cri.container-type": "sandbox", "io.kubernetes.cri.sandbox-id": ID}
    del rig.annotations["io.kubernetes.cri.container-name"]
    rig.config()

    assert rig.run() == Outcome(0)
    assert rig.limit() == f"{EPC} max"
    assert hook_line.decode_request(rig.asked[0]).container == ""


def test_no_pods_container_is_left_alone_and_not_told() -> None:
    rig = HookRig()
    rig.annotations = {"io.podman.annotations.init": "FALSE"}
    rig.config()

    assert (rig.run(), rig.asked) == (Outcome(0), [])


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
    sandbox = {"io.kubernetes.cri.container-type": "sandbox", "io.kubernetes.cri.sandbox-uid": "another"}
    real = (SANDBOX, UID, "default", "web", "app")

    assert oci.identity(CRIO | sandbox, ID) == real
    assert oci.identity(CRIO | ANNOTATIONS | sandbox | {"io.kubernetes.cri.sandbox-id": ID}, ID) == real
    pretended = {key: "sandbox" if key.endswith("Type") else "x" * 64 for key in CRIO}
    assert oci.identity(pretended | ANNOTATIONS, ID) == real


def test_nothing_holds_a_sandbox_but_what_has_its_id() -> None:
    for annotations in (ANNOTATIONS, CRIO):
        pretended = {key: "sandbox" if value == "container" else value for key, value in annotations.items()}
        assert oci.identity(pretended, ID) == (SANDBOX, UID, "default", "web", "app")


def test_an_answer_of_what_this_kernel_lacks_is_an_error_and_the_rest_is_written() -> None:
    for on_error in ("pass", "refuse"):
        rig = HookRig()
        rig.config()
        outcome = rig.run(answer=said({"tdx": 1, EPC: 4096}, on_error=on_error))

        assert outcome.code == (on_error == "refuse")
        assert f"the limit tdx 1 cannot be set: /sys/fs/cgroup/misc.capacity has {EPC}" in outcome.said
        assert rig.limit() == f"{EPC} 4096"


def test_a_daemon_that_hangs_holds_no_sandbox_up(tmp_path: Path) -> None:
    path = str(tmp_path / "hook.sock")
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(path)
        deaf.listen()
        assert ask_socket(path, b"line\n", False) == b""
        peer, _ = deaf.accept()
        with peer:
            assert peer.recv(100) == b"line\n"


def test_the_older_containerds_pod_is_known_by_its_cgroup() -> None:
    rig = HookRig()
    del rig.annotations["io.kubernetes.cri.sandbox-uid"]
    rig.leave()
    rig.config()
    rig.run()

    assert rig.limit() == f"{EPC} 4096"


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
    rig = HookRig()
    rig.leave()
    rig.cgroups_path = named
    rig.config()
    process = process.format(cgroup_paths.parent_path(SLICE))
    rig.process_in(process)
    own = cgroup_paths.container_path(named) or process
    rig.kernel.make_cgroup(ROOT + own)
    for folder in ("", *itertools.accumulate(own.split("/")[1:-1], "{}/{}".format, initial="")):
        rig.kernel.write(f"{ROOT}{folder}/cgroup.subtree_control", b"+misc")

    assert (rig.run(), rig.limit(own)) == (Outcome(0), f"{EPC} 4096")


# ---- what is malformed, hostile or missing


OUTSIDE = {
    "v1": f"4:pids:{CGROUP}\n5:misc:/\n0::/\n",
    "v1, nothing joined": "5:misc:/\n0::/\n",
    "v1, where the runtime itself is": f"5:misc:/runtime\n4:pids:{CGROUP}\n",
    "v2 beside v1": f"4:pids:{CGROUP}\n0::/system.slice/runtime.service\n",
}
"""What the kernel says of a process whose runtime does not join the tree that has misc; runc before 1.1.6 on v1."""


def outside(process: str) -> HookRig:
    """A rig whose process is there."""
    rig = HookRig()
    rig.kernel.mkdir("/proc/self")
    rig.kernel.replace("/proc/self/mountinfo", b"")
    rig.kernel.replace(f"/proc/{PID}/cgroup", process.encode())
    return rig


@pytest.mark.parametrize("process", OUTSIDE.values(), ids=OUTSIDE)
def test_who_needs_no_limit_starts_below_a_runtime_that_leaves_misc_out(process: str) -> None:
    rig = outside(process)
    rig.config()
    assert rig.run(answer=said({})) == Outcome(0)
    alone = rig.run()
    assert (alone.code, "cannot be set" in alone.said) == (0, False), "nobody answers, and nothing is declared"

    rig.annotations |= {"io.kubernetes.cri.container-type": "sandbox", "io.kubernetes.cri.sandbox-id": ID}
    del rig.annotations["io.kubernetes.cri.container-name"]
    rig.config()
    assert rig.run(answer=b"") == Outcome(0)
    assert [hook_line.decode_request(line).cgroup for line in rig.asked] == [CGROUP] * 3


@pytest.mark.parametrize("process", OUTSIDE.values(), ids=OUTSIDE)
@pytest.mark.parametrize("on_error", ["pass", "refuse"])
def test_a_limit_below_a_runtime_that_leaves_misc_out_is_an_error(process: str, on_error: str) -> None:
    rig = outside(process)
    rig.options = Options(on_error="pass" if on_error == "refuse" else "refuse")
    rig.config()
    outcome = rig.run(answer=said({EPC: 4096}, on_error=on_error))

    assert (outcome.code, rig.limit()) == (on_error == "refuse", f"{EPC} max"), "as the daemon says, not the option"
    start = f"nodeward: default/web, container app: the limit {EPC} 4096 cannot be set: process {PID} is in no cgroup"
    assert outcome.said.startswith(start)
    assert ("Use one that joins it (runc 1.1.6 or newer), or cgroup v2" in outcome.said) is (":misc:" in process)


@pytest.mark.parametrize("on_error", list(OnError))
def test_without_a_daemon_the_file_says_what_such_an_error_means(on_error: OnError) -> None:
    rig = outside(OUTSIDE["v2 beside v1"])
    rig.options = Options(on_error="pass" if on_error is OnError.REFUSE else "refuse")
    rig.leave(LimitsSettings(on_error=on_error))
    rig.config()
    outcome = rig.run()

    assert (outcome.code, rig.limit()) == (on_error is OnError.REFUSE, f"{EPC} max")
    assert f"the limit {EPC} 4096 cannot be set" in outcome.said


def test_a_write_that_fails_names_container_resource_value_kernel_and_remedy() -> None:
    rig = HookRig()
    rig.config()
    rig.kernel.write(f"/sys/fs/cgroup{POD}/cgroup.subtree_control", b"-misc")
    outcome = rig.run(answer=said({EPC: 4096}))

    assert outcome.code == 1
    assert outcome.said == (
        f"nodeward: default/web, container app: cannot write '{EPC} 4096' to /sys/fs/cgroup{CGROUP}/misc.max: "
        "No such file or directory (errno 2). The misc controller is not switched on for this cgroup: crun does so "
        "since 1.18, runc always, and `nodeward node` for every pod"
    )


def test_on_error_is_the_answers_then_the_files_then_the_options() -> None:
    for option in ("pass", "refuse"):
        for answer in ("pass", "refuse"):
            rig = HookRig()
            rig.options = Options(on_error=option)
            rig.config()
            rig.kernel.write(f"/sys/fs/cgroup{POD}/cgroup.subtree_control", b"-misc")
            assert rig.run(answer=said({EPC: 1}, on_error=answer)).code == (answer == "refuse")
            rig.leave(LimitsSettings(on_error=OnError(answer)))
            assert rig.run().code == (answer == "refuse")
        assert rig.run(b"").code == (option == "refuse")
    rig.options = Options(on_error="pass")
    assert "starts all the same, without this limit (on_error is pass)" in rig.run(b"").said


def test_a_limit_that_reads_back_otherwise_is_an_error() -> None:
    class Forgetful(SimKernel):
        def write(self, path: str, data: bytes) -> None:
            if not path.endswith("misc.max"):
                super().write(path, data)

    rig = HookRig(Forgetful({EPC: 1 << 20}))
    rig.config()
    outcome = rig.run(answer=said({EPC: 4096}))

    assert outcome.code == 1
    assert f"the kernel has {EPC} at max" in outcome.said


def test_a_resource_whose_write_fails_does_not_keep_the_others_from_theirs_nor_their_faults() -> None:
    class Refusing(SimKernel):
        def write(self, path: str, data: bytes) -> None:
            if data.startswith((EPC.encode(), b"sev ")):
                raise OSError(errno.EINVAL, "Invalid argument")
            super().write(path, data)

    rig = HookRig(Refusing({EPC: 1 << 20, "sev_es": 5, "sev": 5}))
    rig.config()
    outcome = rig.run(answer=said({EPC: 4096, "sev_es": 1, "sev": 2}, on_error="pass"))

    assert (outcome.code, rig.limit().splitlines()) == (0, ["sev max", "sev_es 1", f"{EPC} max"])
    for lacks in (f"'{EPC} 4096'", "'sev 2'"):
        assert f"cannot write {lacks} to /sys/fs/cgroup{CGROUP}/misc.max: Invalid argument" in outcome.said
    assert "starts all the same" in outcome.said


def test_options() -> None:
    assert parse([]) == Options("pass", "/run/nodeward")
    assert parse(["--on-error", "refuse", "--folder=/a"]) == Options("refuse", "/a")


PROGRAM = [sys.executable, "-c", "from nodeward.shims.oci_hook import main; main()"]


def test_the_program_says_what_is_wrong_on_stderr_and_in_its_exit_code() -> None:
    done = subprocess.run([*PROGRAM, "--on-error", "refuse"], input=b"", capture_output=True, check=False, timeout=60)

    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"nodeward: container: OCI state: nothing on stdin")


def test_an_endless_state_is_not_waited_for() -> None:
    with open("/dev/zero", "rb") as endless:
        done = subprocess.run([*PROGRAM, "--on-error=refuse"], stdin=endless, capture_output=True, timeout=60)

    assert done.returncode == 1
    assert b"OCI state: more than 1048576 bytes" in done.stderr


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("nodeward.shims.oci_hook", ("dataclasses", "nodeward.engine", "nodeward.model.settings", "socket")),
        (
            "nodeward.shims.alone",
            (
                "fractions",
                "nodeward.model.decision",
                "nodeward.model.events",
                "nodeward.model.settings",
                "nodeward.engine.state.root",
            ),
        ),
    ],
)
def test_the_hook_imports_next_to_nothing(module: str, heavy: tuple[str, ...]) -> None:
    banned = (*heavy, "asyncio", "click", "msgspec", "http", "argparse", "logging", "subprocess")
    code = f"import {module}, sys; print(*[name for name in {banned!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []


def test_what_is_said_is_in_the_machines_log_too(tmp_path: Path) -> None:
    """crun throws away what a hook says; syslog's priorities are 27 for an error and 28 for a warning of a daemon."""
    place = str(tmp_path / "log")
    log(Outcome(1, "nodeward: nobody listens"), place)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(place)
        log(Outcome(1, "nodeward: default/web, container app: no\n"), place)
        log(Outcome(0, "nodeward: default/web, container app: all the same"), place)

        who = f"nodeward-oci-hook[{os.getpid()}]: nodeward: default/web, container app"
        assert listener.recv(4096).decode() == f"<27>{who}: no"
        assert listener.recv(4096).decode() == f"<28>{who}: all the same"


def test_a_log_that_takes_nothing_is_not_waited_for(tmp_path: Path) -> None:
    place = str(tmp_path / "log")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(place)
        for _ in range(2000):  # more than net.unix.max_dgram_qlen and any buffer
            log(Outcome(1, "n" * 1000), place)
