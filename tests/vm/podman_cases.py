"""podman with the hook of the bundle, which the file that `nodeward hook hooks-d` prints puts into its containers."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

from nodeward.model.settings import LimitsSettings, OnError, UnknownPod
from tests.vm.hook_node import BUNDLED, LEFT, HookNode, rule_of
from tests.vm.inside import EPC, KIB, RESOURCE, charge, limit, refused, until
from tests.vm.podman import HOOKS, Ran, version_of

_FILE = "50-nodeward.json"


def podman_by_the_daemon(node: HookNode) -> list[str]:
    """The daemon's answer is there when the program starts, by crun and by runc; the kernel refuses what is above."""
    said = subprocess.run(
        [BUNDLED / "nodeward", "hook", "hooks-d", "--on-error", "refuse", "--folder", str(LEFT)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said
    (HOOKS / _FILE).write_text(said.stdout)
    lines = list[str]()
    for runtime in (node.podman.crun, node.podman.runc):
        pod = f"by-{runtime.name}"
        node.api.add(pod, {"app": {EPC: "8Ki"}})
        until((LEFT / f"pods/uid-{pod}.json").exists, "the daemon has left the pod's file")
        with node.podman.running(runtime, pod) as (printed, cgroup):
            assert f"{RESOURCE} {8 * KIB}\n" in printed, printed
            os.close(charge(cgroup, 8 * KIB))
            why = refused(cgroup, 9 * KIB)
            node.daemon.enforced(pod, "app", "")
            assert limit(cgroup.parent) == str(8 * KIB), "the pod's budget"
        first = printed.split("\n", 1)[0]
        lines.append(
            f"{_name(node, runtime)}, hooks.d, daemon: the program reads {first!r} as its first act; a charge of 9 KiB "
            f"is refused: {why}"
        )
    return lines


def podman_by_the_file(node: HookNode) -> list[str]:
    """The daemon is away, and what it left counts. Without --hooks-dir podman reads one folder, and it is not the one
    in /etc."""
    runtime = node.podman.crun
    read = dict[str, str]()
    for folder in ("/etc/containers/oci/hooks.d", "/usr/share/containers/oci/hooks.d"):
        Path(folder).mkdir(parents=True)
        shutil.copy(HOOKS / _FILE, folder)
        ran = node.podman.run(runtime, "by-crun", hooks=None)
        assert ran.status == 0, ran
        read[folder] = _first(ran)
    assert list(read.values()) == [f"{RESOURCE} max", f"{RESOURCE} {8 * KIB}"], read
    how = f"{_name(node, runtime)}, daemon killed, pod's file, hook in"
    return [f"{how} {folder}: the program reads {first!r}" for folder, first in read.items()]


def podman_by_annotation(node: HookNode) -> list[str]:
    """A pod of which nothing was left, and whose cgroup nobody has made: podman hands it the controller, which old crun
    does not. A container that is no pod's is left alone."""
    runtime = node.podman.crun
    ran = node.podman.run(runtime, "new", annotations={"epc-limit.nri.io/container.app": str(4 * KIB)})
    assert f"{RESOURCE} {4 * KIB}\n" in ran.printed, ran
    alone = node.podman.run(runtime, "")
    assert f"{RESOURCE} max\n" in alone.printed, alone
    return [
        f"{_name(node, runtime)}, no daemon, no file, annotation: the program reads {_first(ran)!r}",
        f"{_name(node, runtime)}, no pod's container: the program reads {_first(alone)!r}",
    ]


def podman_refuses(node: HookNode) -> list[str]:
    """What the rule that the daemon left refuses. runc hands the hook's text on; crun throws it away, and it is in the
    machine's log with both."""
    lines = list[str]()
    with rule_of(LimitsSettings(unknown_pod=UnknownPod.REFUSE, on_error=OnError.REFUSE)):
        for runtime in (node.podman.runc, node.podman.crun):
            ran, said = _logged(node, runtime, "unknown")
            assert (ran.status != 0, ran.printed) == (True, ""), ran
            assert "default/unknown, container app: nobody knows this pod" in said, (said, ran)
            assert (said.partition("]: ")[2] in ran.error) == (runtime is node.podman.runc), ran
            lines.append(f"{_name(node, runtime)}, limits.unknown_pod refuse: {ran.error.strip()}")
        lines.append(f"    in the machine's log: {said}")
    return lines


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


def _first(ran: Ran) -> str:
    return ran.printed.split("\n", 1)[0]


def _name(node: HookNode, runtime: Path) -> str:
    return f"{node.podman.version()}, {version_of(runtime)}"
