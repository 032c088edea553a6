"""podman with the hook of the bundle, which the file that `nodeward hook hooks-d` prints puts into its containers."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

from nodeward.model.settings import LimitsSettings, OnError, UnknownPod
from tests.vm.chain_node import ANNOTATION
from tests.vm.hook_node import LEFT, HookNode, rule_of
from tests.vm.inside import EPC, KIB, RESOURCE, charge, limits, refused
from tests.vm.podman import HOOKS, Ran
from tests.vm.systemd import BUNDLED

_FILE = "50-nodeward.json"


def podman_by_the_daemon(node: HookNode) -> None:
    """The daemon's answer is there when the program starts, by crun and by runc; the kernel refuses what is above."""
    said = subprocess.run(
        [BUNDLED / "bin/nodeward", "hook", "hooks-d", "--on-error", "refuse", "--folder", str(LEFT)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said
    (HOOKS / _FILE).write_text(said.stdout)
    for runtime in (node.podman.crun, node.podman.runc):
        pod = f"by-{runtime.name}"
        node.knows(pod, {"app": {EPC: "8Ki"}})
        with node.podman.running(runtime, pod) as (printed, cgroup):
            assert f"{RESOURCE} {8 * KIB}\n" in printed, printed
            os.close(charge(cgroup, 8 * KIB))
            refused(cgroup, 9 * KIB)
            node.daemon.enforced(pod, "app", "")
            assert limits(cgroup.parent) == [8 * KIB], "the pod's budget"


def podman_without_the_daemon(node: HookNode) -> None:
    """The daemon is away, and what it left counts. Without --hooks-dir podman reads one folder, and it is not the one
    in /etc. A pod of which nothing was left, and whose cgroup nobody has made, has its annotation's: podman hands it
    the controller, which old crun does not. A container that is no pod's is left alone."""
    runtime = node.podman.crun
    for folder, found in (("/etc/containers/oci/hooks.d", "max"), ("/usr/share/containers/oci/hooks.d", 8 * KIB)):
        Path(folder).mkdir(parents=True)
        shutil.copy(HOOKS / _FILE, folder)
        ran = node.podman.run(runtime, "by-crun", hooks=None)
        assert (ran.status, ran.printed.split("\n", 1)[0]) == (0, f"{RESOURCE} {found}"), ran
    ran = node.podman.run(runtime, "new", annotations={ANNOTATION: str(4 * KIB)})
    assert f"{RESOURCE} {4 * KIB}\n" in ran.printed, ran
    alone = node.podman.run(runtime, "")
    assert f"{RESOURCE} max\n" in alone.printed, alone


def podman_refuses(node: HookNode) -> None:
    """What the rule that the daemon left refuses. runc hands the hook's text on; crun throws it away, and it is in the
    machine's log with both."""
    with rule_of(LimitsSettings(unknown_pod=UnknownPod.REFUSE, on_error=OnError.REFUSE)):
        for runtime in (node.podman.runc, node.podman.crun):
            ran, said = _logged(node, runtime, "unknown")
            assert (ran.status != 0, ran.printed) == (True, ""), ran
            assert "default/unknown, container app: nobody knows this pod" in said, (said, ran)
            assert (said.partition("]: ")[2] in ran.error) == (runtime is node.podman.runc), ran


def _logged(node: HookNode, runtime: Path, pod: str) -> tuple[Ran, str]:
    """A run, and what whoever listens at /dev/log heard of it."""
    place = Path("/dev/log")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(place))
        try:
            ran = node.podman.run(runtime, pod)
            listener.setblocking(False)
            return ran, listener.recv(4096).decode()
        except BlockingIOError:
            return ran, ""
        finally:
            place.unlink()
