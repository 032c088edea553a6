"""The OCI hook under a real runc and a real misc controller, on cgroup v2 and then on v1; and under podman."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import grpc
import pytest

from nodeward.core.modes import OnError
from nodeward.features.limits import hook_file
from nodeward.features.limits.settings import LimitsSettings, UnknownPod, Unsupported
from nodeward.neighbours.hook import install
from nodeward.neighbours.hook.install import Hook
from tests.peers.containerd import IMAGE, NEWEST, OLD, Containerd, NriOptions, Release, running_containerd
from tests.peers.cri import Cri, container_config, pod_config, start
from tests.vm.chain_node import ANNOTATION
from tests.vm.hook_node import FOLDER, KEYS, LEFT, HookNode, rule_of
from tests.vm.inside import CGROUPS, EPC, KIB, RESOURCE, SECOND_RESOURCE, charge, limit, limits, refused, until
from tests.vm.podman import HOOKS, Ran
from tests.vm.systemd import BUNDLED

SLEEP: Final = "echo started; busybox sleep 1000"


def by_the_daemon(node: HookNode) -> None:
    """The program sees its limits first; the kernel refuses what is above; the daemon shows it. A container of the pod
    that declares nothing has 0, and what holds the sandbox no limit."""
    node.knows("one", {"app": {EPC: "8Ki", KEYS: "1"}, "other": {}})
    bundle, container_id = node.bundle("one", "app", SLEEP, {})
    with node.running(bundle, container_id) as printed:
        assert printed.startswith(f"{RESOURCE} {8 * KIB}\n{SECOND_RESOURCE} 1\n"), printed
        cgroup = node.cgroup("one", container_id)
        os.close(charge(cgroup, 8 * KIB))
        refused(cgroup, 9 * KIB)
        refused(cgroup, 2, SECOND_RESOURCE)
        node.daemon.enforced("one", "app", "")
        assert limits(cgroup.parent) == [8 * KIB], "the pod's budget"
    until(lambda: not node.daemon.state("one", "app"), "the container's end is noticed by its cgroup", 20)
    for one, found in ((node.bundle("one", "other", "true", {}), "0"), (_sandbox(node, "one"), "max")):
        ran = node.run(*one)
        assert (ran.status, f"{RESOURCE} {found}\n" in ran.printed) == (0, True), ran


def _sandbox(node: HookNode, pod: str) -> tuple[Path, str]:
    """The bundle of what holds a pod's sandbox, and its id."""
    notes = {"io.kubernetes.cri.container-type": "sandbox", "io.kubernetes.cri.container-name": ""}
    bundle, container_id = node.bundle(pod, "", "echo started", notes)
    config = json.loads((bundle / "config.json").read_text())
    config["annotations"]["io.kubernetes.cri.sandbox-id"] = container_id
    (bundle / "config.json").write_text(json.dumps(config))
    return bundle, container_id


def by_containerd(node: HookNode) -> None:
    """containerd 2.4 without NRI: one handler has our base spec, with the other the CDI device brings the hook."""
    hook = _hook()
    Path("/etc/cdi").mkdir(exist_ok=True)
    Path("/etc/cdi/nodeward.json").write_bytes(install.cdi(hook))
    _by(node, NEWEST, hook, {"based": "hooked", "cdi": ""})


def by_old_containerd(node: HookNode) -> None:
    """containerd 1.7, whose NRI is off unless somebody turns it on: by our base spec. Its CDI is off too."""
    _by(node, OLD, _hook(), {"based-too": "hooked"})


def _hook() -> Hook:
    program = FOLDER / "nodeward-oci-hook"
    program.write_text(f"#!{sys.executable}\nfrom nodeward.programs.hook.run import main\nmain()\n")
    program.chmod(0o755)
    return Hook(str(program), ("--on-error", "refuse", "--folder", str(LEFT)))


def _by(node: HookNode, release: Release, hook: Hook, pods: Mapping[str, str]) -> None:
    """Pods, each by its runtime handler: `hooked` for the base spec, or the default one with our CDI device. Then one
    that nobody knows, which the rule in the folder refuses while the daemon cannot be asked: the hook's text is whole
    in StartContainer's error."""
    for pod in pods:
        node.knows(pod, {"app": {EPC: "16Ki"}})
    home = Path("/dev/shm") / release.peer
    home.mkdir()
    with running_containerd(home, NriOptions(disable=True), release, {"hooked": node.runc}) as containerd:
        containerd.stop()
        _configure(containerd, hook)
        containerd.start()
        assert containerd.said("nri service running") == 0
        with containerd.cri() as cri:
            for pod, handler in pods.items():
                sandbox, container = _started(containerd, cri, pod, handler)
                place = CGROUPS / containerd.cgroup_parent.lstrip("/") / f"pod{pod}"
                assert limits(place / container, place / sandbox) == [16 * KIB, "max"], node.log()
                node.daemon.enforced(pod, "app", "")
            asked, aside = LEFT / "hook.sock", LEFT / "aside.sock"
            words = "nodeward: default/refused, container app: nobody knows this pod.* to unlimited or zero"
            with rule_of(LimitsSettings(unknown_pod=UnknownPod.REFUSE)):
                asked.rename(aside)
                with pytest.raises(grpc.RpcError, match=words):
                    _started(containerd, cri, "refused", "hooked")
                aside.rename(asked)


def _started(containerd: Containerd, cri: Cri, pod: str, handler: str) -> tuple[str, str]:
    made = container_config("app", IMAGE)
    made["CDI_devices"] = [] if handler else [{"name": "nodeward.io/epc=limit"}]
    return start(cri, pod_config(pod, containerd.cgroup_parent, containerd.folder / "logs"), made, handler)


def _configure(containerd: Containerd, hook: Hook) -> None:
    """What `nodeward setup hook containerd-config` prints, in the handler's table."""
    default = subprocess.run([containerd.peer / "bin/ctr", "oci", "spec"], capture_output=True, check=True).stdout
    spec = containerd.folder / "base.json"
    spec.write_bytes(install.base_spec(default, hook))
    version = 2 if containerd.release is OLD else 3
    head, _, rest = install.containerd_lines(str(spec), "hooked", version).partition("\n")
    path = containerd.folder / "config.toml"
    table = head.replace("runtimes.hooked", "runtimes.'hooked'")
    before = path.read_text()
    assert before.count(f"{table}\n") == 1, before
    path.write_text(before.replace(f"{table}\n", f"{table}\n{rest}"))


def without_the_daemon(node: HookNode) -> None:
    """The daemon is killed. What it left for a pod holds; of another the annotation counts; and the rule that it left
    refuses what this kernel lacks, with a text that runc shows."""
    node.daemon.end(signal.SIGKILL)
    assert (LEFT / "hook.sock").exists(), "a killed daemon leaves its socket"
    for pod, noted, amount in (("one", 1, 8 * KIB), ("two", 4 * KIB, 4 * KIB)):
        ran = node.run(*node.bundle(pod, "app", "true", {ANNOTATION: str(noted)}))
        assert (ran.status, f"{RESOURCE} {amount}\n" in ran.printed) == (0, True), ran
    with rule_of(LimitsSettings(unsupported=Unsupported.REFUSE)):
        ran = node.run(*node.bundle("two", "app", "true", {"nodeward.io/limits": '{"app":{"tdx":"1"}}'}))
    assert ran.status != 0, ran
    assert (ran.printed, "declares 1 of tdx, which this kernel cannot limit" in ran.error) == ("", True), ran


def unwritable(node: HookNode) -> None:
    """misc.max cannot be written: runc's error is our text, and the program never runs; with `pass` it does."""
    for on_error in ("refuse", "pass"):
        (LEFT / hook_file.RULE).unlink(missing_ok=True)
        notes = {ANNOTATION: str(4 * KIB)}
        bundle, container_id = node.bundle("two", "app", "true", notes, ("--on-error", on_error))
        cgroup = node.cgroup("two", container_id)
        cgroup.mkdir(parents=True)
        file = cgroup / "misc.max"
        assert _mounted("--bind", str(file), str(file))
        assert _mounted("-o", "remount,bind,ro", str(file))
        try:
            ran = node.run(bundle, container_id)
        finally:
            subprocess.run(["umount", str(file)], check=False)
        assert (ran.status == 0, "max" in ran.printed) == ((on_error == "pass"),) * 2, ran
        if on_error == "refuse":
            assert f"cannot write '{RESOURCE} {4 * KIB}' to {file}: Read-only file system (errno 30)" in ran.error, ran


def on_v1(node: HookNode) -> None:
    """The same on cgroup v1: the misc hierarchy and what runc needs, mounted as hybrid systems do."""
    _to_v1()
    node.cgroups = CGROUPS / "misc"
    notes = {ANNOTATION: str(4 * KIB)}
    bundle, container_id = node.bundle("two", "app", SLEEP, notes)
    with node.running(bundle, container_id):
        cgroup = node.cgroup("two", container_id)
        assert limit(cgroup) == str(4 * KIB), f"{cgroup}: {limit(cgroup)!r}"
        held = (cgroup / "cgroup.procs").read_text().split()
        assert held, "the container's process is in that cgroup"
        assert ":misc:" in Path(f"/proc/{held[0]}/cgroup").read_text()
        refused(cgroup, 5 * KIB, root=CGROUPS / "misc")


def outside_on_v1(node: HookNode) -> None:
    """Debian's runc does not join the misc hierarchy: who needs no limit starts, and a limit is runc's error."""
    runc = node.podman.runc
    for bundle, container_id in (node.bundle("free", "app", "echo started", {}), _sandbox(node, "free")):
        free = node.run(bundle, container_id, runc)
        assert (free.status, "started\n" in free.printed) == (0, True), free
    notes = {ANNOTATION: str(4 * KIB)}
    ran = node.run(*node.bundle("two", "app", "echo started", notes), runc)
    assert (ran.status != 0, ran.printed) == (True, ""), ran
    assert f"the limit {RESOURCE} {4 * KIB} cannot be set: process " in ran.error, ran
    assert "Use one that joins it (runc 1.1.6 or newer), or cgroup v2" in ran.error, ran


def by_the_daemon_on_v1(node: HookNode) -> None:
    """The daemon is back, on v1, and answers for a pod that it knows by the API server. Its `on_error` counts, not the
    hook's option."""
    node.daemon.start()
    node.knows("old", {"app": {EPC: "8Ki"}})
    bundle, container_id = node.bundle("old", "app", SLEEP, {})
    with node.running(bundle, container_id):
        cgroup = node.cgroup("old", container_id)
        assert limit(cgroup) == str(8 * KIB), f"{cgroup}: {limit(cgroup)!r}"
        node.daemon.enforced("old", "app", "")
        assert limit(cgroup.parent) == str(8 * KIB), "the pod's budget"
    until(lambda: not node.daemon.state("old", "app"), "the container's end is noticed by its cgroup", 20)
    runc = node.podman.runc
    with node.running(*node.bundle("old", "app", SLEEP, {}), runc):
        until(lambda: node.daemon.state("old", "app") == "outside", "it is shown that the limit holds nobody")


def _to_v1() -> None:
    """Frees the controllers of the v2 tree and lays the v1 hierarchies over it. The kernel refuses a controller (EBUSY)
    until the last of the cgroups removed with it is gone, which is later."""
    for folder, _, _ in sorted(os.walk(CGROUPS), key=lambda found: -len(found[0])):
        if folder != str(CGROUPS):
            os.rmdir(folder)
    (CGROUPS / "cgroup.subtree_control").write_text(
        " ".join(f"-{name}" for name in (CGROUPS / "cgroup.subtree_control").read_text().split())
    )
    assert _mounted("-t", "tmpfs", "tmpfs", str(CGROUPS))
    for controllers in ("misc", "devices", "freezer", "pids", "cpu,cpuacct"):
        place = CGROUPS / controllers
        place.mkdir()
        until(partial(_mounted, "-t", "cgroup", "-o", controllers, "cgroup", str(place)), f"{controllers} is free", 20)


def _mounted(*words: str) -> bool:
    return subprocess.run(["mount", *words], check=False).returncode == 0


_FILE = "50-nodeward.json"


def podman_by_the_daemon(node: HookNode) -> None:
    """The daemon's answer is there when the program starts, by crun and by runc; the kernel refuses what is above."""
    said = subprocess.run(
        [BUNDLED / "bin/nodeward", "setup", "hook", "hooks-d", "--on-error", "refuse", "--folder", str(LEFT)],
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


CASES: Mapping[str, Callable[[HookNode], None]] = {
    "the daemon's answer is there when the program starts, and holds": by_the_daemon,
    "podman takes the printed file of hooks.d": podman_by_the_daemon,
    "containerd without NRI brings the hook by its base spec and by CDI": by_containerd,
    "containerd 1.7 brings the hook by its base spec": by_old_containerd,
    "without the daemon its files, the annotation and its rule count": without_the_daemon,
    "without the daemon its files and the annotation count for podman's container": podman_without_the_daemon,
    "a refusal is podman's error with runc, and in the machine's log with crun": podman_refuses,
    "a limit that cannot be written is runc's error": unwritable,
    "cgroup v1": on_v1,
    "cgroup v1 with a runc that does not join misc": outside_on_v1,
    "cgroup v1 with the daemon": by_the_daemon_on_v1,
}
