"""The OCI hook under a real runc and a real misc controller, on cgroup v2 and then on v1."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import grpc

from nodeward.model.settings import LimitsSettings, UnknownPod, Unsupported
from nodeward.wire import hook_install, pod_file
from nodeward.wire.hook_install import Hook
from tests.peers.containerd import IMAGE, NEWEST, OLD, Containerd, NriOptions, Release, running_containerd
from tests.peers.cri import Cri, container_config, pod_config
from tests.peers.nriside import Record, text
from tests.vm.crio_cases import crio_by_annotation, crio_by_the_daemon, crio_by_the_file, crio_refuses
from tests.vm.exporter_cases import exporter_alone
from tests.vm.hook_node import FOLDER, KEYS, LEFT, HookNode, rule_of
from tests.vm.inside import CGROUPS, EPC, KIB, RESOURCE, SECOND_RESOURCE, charge, limit, refused, until
from tests.vm.podman import version_of
from tests.vm.podman_cases import (
    podman_by_annotation,
    podman_by_the_daemon,
    podman_by_the_file,
    podman_refuses,
)

SLEEP: Final = "echo started; busybox sleep 1000"


def by_the_daemon(node: HookNode) -> list[str]:
    """The program sees its limits first; the kernel refuses what is above; the daemon shows it."""
    node.api.add("one", {"app": {EPC: "8Ki", KEYS: "1"}, "other": {}})
    until(lambda: (LEFT / "pods/uid-one.json").exists(), "the daemon has left the pod's file")
    bundle, container_id = node.bundle("one", "app", SLEEP, {})
    with node.running(bundle, container_id) as printed:
        assert printed.startswith(f"{RESOURCE} {8 * KIB}\n{SECOND_RESOURCE} 1\n"), printed
        cgroup = node.cgroup("one", container_id)
        os.close(charge(cgroup, 8 * KIB))
        why = refused(cgroup, 9 * KIB)
        refused(cgroup, 2, SECOND_RESOURCE)
        node.daemon.enforced("one", "app", "")
        assert limit(cgroup.parent) == str(8 * KIB), "the pod's budget"
        first = printed.split("\n")[:2]
    until(lambda: not node.daemon.state("one", "app"), "the container's end is noticed by its cgroup", 20)
    return [f"runc, v2, daemon: the program reads {first} as its first act; a charge of 9 KiB is refused: {why}"]


def undeclared(node: HookNode) -> list[str]:
    """A container of a pod that declares, which declares nothing itself, has 0."""
    ran = node.run(*node.bundle("one", "other", "true", {}))
    assert ran.status == 0, ran
    assert f"{RESOURCE} 0\n" in ran.printed, ran
    return [f"runc, v2, daemon: a container that declares nothing reads {ran.printed.splitlines()[0]!r}"]


def sandbox_is_left_alone(node: HookNode) -> list[str]:
    """What holds the sandbox has no limit."""
    ran = node.run(*_sandbox(node, "one"))
    assert f"{RESOURCE} max\n" in ran.printed, ran
    return [f"runc, v2, daemon: the sandbox reads {ran.printed.splitlines()[0]!r}"]


def _sandbox(node: HookNode, pod: str) -> tuple[Path, str]:
    """The bundle of what holds a pod's sandbox, and its id."""
    notes = {"io.kubernetes.cri.container-type": "sandbox", "io.kubernetes.cri.container-name": ""}
    bundle, container_id = node.bundle(pod, "", "echo started", notes)
    config = json.loads((bundle / "config.json").read_text())
    config["annotations"]["io.kubernetes.cri.sandbox-id"] = container_id
    (bundle / "config.json").write_text(json.dumps(config))
    return bundle, container_id


def by_containerd(node: HookNode) -> list[str]:
    """containerd 2.4 without NRI: one handler has our base spec, with the other the CDI device brings the hook."""
    hook = _hook()
    Path("/etc/cdi").mkdir(exist_ok=True)
    Path("/etc/cdi/nodeward.json").write_bytes(hook_install.cdi(hook))
    return _by(node, NEWEST, hook, {"based": "hooked", "cdi": ""})


def by_old_containerd(node: HookNode) -> list[str]:
    """containerd 1.7, whose NRI is off unless somebody turns it on: by our base spec. Its CDI is off too."""
    return _by(node, OLD, _hook(), {"based-too": "hooked"})


def _hook() -> Hook:
    program = FOLDER / "nodeward-oci-hook"
    program.write_text(f"#!{sys.executable}\nfrom nodeward.shims.oci_hook import main\nmain()\n")
    program.chmod(0o755)
    return Hook(str(program), ("--on-error", "refuse", "--folder", str(LEFT)))


def _by(node: HookNode, release: Release, hook: Hook, pods: Mapping[str, str]) -> list[str]:
    """Pods, each by its runtime handler: `hooked` for the base spec, or the default one with our CDI device."""
    for pod in pods:
        node.api.add(pod, {"app": {EPC: "16Ki"}})
    until(lambda: all((LEFT / f"pods/uid-{pod}.json").exists() for pod in pods), "the daemon has left the pods' files")
    home = Path("/dev/shm") / release.peer
    home.mkdir()
    with running_containerd(home, NriOptions(disable=True), release, {"hooked": node.runc}) as containerd:
        containerd.stop()
        _configure(containerd, hook)
        containerd.start()
        with containerd.cri() as cri:
            assert containerd.said("nri service running") == 0
            lines = [_started(node, containerd, cri, pod, handler) for pod, handler in pods.items()]
            return [*lines, _not_started(containerd, cri)]


def _created(containerd: Containerd, cri: Cri, pod: str, handler: str) -> tuple[str, str]:
    """The ids of a pod's sandbox and of its one container, which is not started."""
    config = pod_config(pod, containerd.cgroup_parent, containerd.folder / "logs")
    sandbox = text(cri.call("RunPodSandbox", {"config": config, "runtime_handler": handler}), "pod_sandbox_id")
    made = container_config("app", IMAGE)
    made["CDI_devices"] = [] if handler else [{"name": "nodeward.io/epc=limit"}]
    created: Record = {"pod_sandbox_id": sandbox, "config": made, "sandbox_config": config}
    return sandbox, text(cri.call("CreateContainer", created), "container_id")


def _not_started(containerd: Containerd, cri: Cri) -> str:
    """Nobody knows this pod, and while the daemon cannot be asked the rule in the folder refuses it: the hook's text is
    whole in StartContainer's error."""
    asked, aside = LEFT / "hook.sock", LEFT / "aside.sock"
    with rule_of(LimitsSettings(unknown_pod=UnknownPod.REFUSE)):
        asked.rename(aside)
        try:
            _, container = _created(containerd, cri, "refused", "hooked")
            cri.call("StartContainer", {"container_id": container})
            said = "it starts"
        except grpc.RpcError as error:
            said = str(error.details())
        finally:
            aside.rename(asked)
    assert "nodeward: default/refused, container app: nobody knows this pod" in said, said
    assert "or set limits.unknown_pod to unlimited or zero." in said, said
    return f"containerd {containerd.release.version} without NRI, base_runtime_spec, limits.unknown_pod refuse: {said}"


def _started(node: HookNode, containerd: Containerd, cri: Cri, pod: str, handler: str) -> str:
    sandbox, container = _created(containerd, cri, pod, handler)
    cri.call("StartContainer", {"container_id": container})
    cgroup = CGROUPS / containerd.cgroup_parent.lstrip("/") / f"pod{pod}"
    assert limit(cgroup / container) == str(16 * KIB), node.log()
    assert limit(cgroup / sandbox) == "max", "what holds the sandbox"
    node.daemon.enforced(pod, "app", "")
    how = "base_runtime_spec" if handler else "CDI device"
    release = f"containerd {containerd.release.version} without NRI"
    return f"{release}, {how}: {pod}/app has {RESOURCE} {limit(cgroup / container)}"


def _configure(containerd: Containerd, hook: Hook) -> None:
    """What `nodeward hook containerd-config` prints, in the handler's table."""
    default = subprocess.run([containerd.peer / "bin/ctr", "oci", "spec"], capture_output=True, check=True).stdout
    spec = containerd.folder / "base.json"
    spec.write_bytes(hook_install.base_spec(default, hook))
    version = 2 if containerd.release is OLD else 3
    head, _, rest = hook_install.containerd_lines(str(spec), "hooked", version).partition("\n")
    path = containerd.folder / "config.toml"
    table = head.replace("runtimes.hooked", "runtimes.'hooked'")
    before = path.read_text()
    assert before.count(f"{table}\n") == 1, before
    path.write_text(before.replace(f"{table}\n", f"{table}\n{rest}"))


def by_the_file(node: HookNode) -> list[str]:
    """The daemon is killed; what it left for the pod holds."""
    node.daemon.end(signal.SIGKILL)
    assert (LEFT / "hook.sock").exists(), "a killed daemon leaves its socket"
    ran = node.run(*node.bundle("one", "app", "true", {"epc-limit.nri.io/container.app": "1"}))
    assert ran.status == 0, ran
    assert f"{RESOURCE} {8 * KIB}\n" in ran.printed, ran
    return [f"runc, v2, daemon killed, pod's file: the program reads {ran.printed.splitlines()[0]!r}"]


def by_annotation(node: HookNode) -> list[str]:
    """A pod of which nothing was left."""
    ran = node.run(*node.bundle("two", "app", "true", {"epc-limit.nri.io/container.app": str(4 * KIB)}))
    assert f"{RESOURCE} {4 * KIB}\n" in ran.printed, ran
    return [f"runc, v2, no daemon, no file, annotation: the program reads {ran.printed.splitlines()[0]!r}"]


def refused_by_the_settings(node: HookNode) -> list[str]:
    """The rule that the daemon left refuses what this kernel lacks; runc shows the text."""
    with rule_of(LimitsSettings(unsupported=Unsupported.REFUSE)):
        ran = node.run(*node.bundle("two", "app", "true", {"nodeward.io/limits": '{"app":{"tdx":"1"}}'}))
    assert ran.status != 0, ran
    assert (ran.printed, "declares 1 of tdx, which this kernel cannot limit" in ran.error) == ("", True), ran
    return [f"runc, v2, limits.unsupported refuse: {ran.error.strip()}"]


def unwritable(node: HookNode) -> list[str]:
    """misc.max cannot be written: runc's error is our text, and the program never runs; with `pass` it does."""
    lines = list[str]()
    for on_error in ("refuse", "pass"):
        (LEFT / pod_file.RULE).unlink(missing_ok=True)
        notes = {"epc-limit.nri.io/container.app": str(4 * KIB)}
        bundle, container_id = node.bundle("two", "app", "true", notes, ("--on-error", on_error))
        cgroup = node.cgroup("two", container_id)
        cgroup.mkdir(parents=True)
        file = cgroup / "misc.max"
        _mount("--bind", str(file), str(file))
        _mount("-o", "remount,bind,ro", str(file))
        try:
            ran = node.run(bundle, container_id)
        finally:
            subprocess.run(["umount", str(file)], check=False)
        assert (ran.status == 0, "max" in ran.printed) == ((on_error == "pass"),) * 2, ran
        if on_error == "refuse":
            assert f"cannot write '{RESOURCE} {4 * KIB}' to {file}: Read-only file system (errno 30)" in ran.error, ran
            lines.append(f"runc, v2, misc.max read-only: {ran.error.strip()}")
    return lines


def on_v1(node: HookNode) -> list[str]:
    """The same on cgroup v1: the misc hierarchy and what runc needs, mounted as hybrid systems do."""
    _to_v1()
    node.cgroups = CGROUPS / "misc"
    notes = {"epc-limit.nri.io/container.app": str(4 * KIB)}
    bundle, container_id = node.bundle("two", "app", SLEEP, notes)
    with node.running(bundle, container_id):
        cgroup = node.cgroup("two", container_id)
        assert limit(cgroup) == str(4 * KIB), f"{cgroup}: {limit(cgroup)!r}"
        held = (cgroup / "cgroup.procs").read_text().split()
        assert held, "the container's process is in that cgroup"
        line = next(one for one in Path(f"/proc/{held[0]}/cgroup").read_text().splitlines() if ":misc:" in one)
        why = _refused_v1(cgroup)
    return [f"runc, v1: {line}: misc.max has {RESOURCE} {4 * KIB}; a charge of 5 KiB is refused: {why}"]


def outside_on_v1(node: HookNode) -> list[str]:
    """Debian's runc does not join the misc hierarchy: who needs no limit starts, and a limit is runc's error."""
    runc = node.podman.runc
    for bundle, container_id in (node.bundle("free", "app", "echo started", {}), _sandbox(node, "free")):
        free = node.run(bundle, container_id, runc)
        assert (free.status, "started\n" in free.printed) == (0, True), free
    notes = {"epc-limit.nri.io/container.app": str(4 * KIB)}
    ran = node.run(*node.bundle("two", "app", "echo started", notes), runc)
    assert (ran.status != 0, ran.printed) == (True, ""), ran
    assert f"the limit {RESOURCE} {4 * KIB} cannot be set: process " in ran.error, ran
    assert "Use one that joins it (runc 1.1.6 or newer), or cgroup v2" in ran.error, ran
    return [f"{version_of(runc)}, v1: without EPC it starts, the sandbox too; with EPC: {ran.error.strip()}"]


def by_the_daemon_on_v1(node: HookNode) -> list[str]:
    """The daemon is back, on v1, and answers for a pod that it knows by the API server. Its `on_error` counts, not the
    hook's option."""
    node.daemon.start()
    node.api.add("old", {"app": {EPC: "8Ki"}})
    until(lambda: (LEFT / "pods/uid-old.json").exists(), "the daemon has left the pod's file")
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
    return [
        f"runc, v1, daemon: misc.max has {RESOURCE} {8 * KIB}, the pod's budget too; shown as enforced",
        f"{version_of(runc)}, v1, daemon with on_error pass: the container starts, and is shown as outside",
    ]


def _refused_v1(cgroup: Path) -> str:
    try:
        os.close(charge(cgroup, 5 * KIB, CGROUPS / "misc"))
    except OSError as error:
        return f"errno {error.errno} ({error.strerror})"
    raise AssertionError("the kernel let it take 5 KiB")


def _to_v1() -> None:
    """Frees the controllers of the v2 tree and lays the v1 hierarchies over it."""
    for folder, _, _ in sorted(os.walk(CGROUPS), key=lambda found: -len(found[0])):
        if folder != str(CGROUPS):
            os.rmdir(folder)
    (CGROUPS / "cgroup.subtree_control").write_text(
        " ".join(f"-{name}" for name in (CGROUPS / "cgroup.subtree_control").read_text().split())
    )
    _mount("-t", "tmpfs", "tmpfs", str(CGROUPS))
    for controllers in ("misc", "devices", "freezer", "pids", "cpu,cpuacct"):
        place = CGROUPS / controllers
        place.mkdir()
        _mount("-t", "cgroup", "-o", controllers, "cgroup", str(place))


def _mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"mount {' '.join(words)}: {done.stderr}"


CASES: Mapping[str, Callable[[HookNode], list[str]]] = {
    "the daemon's answer is there when the program starts, and holds": by_the_daemon,
    "podman takes the printed file of hooks.d": podman_by_the_daemon,
    "a container that declares nothing has 0": undeclared,
    "what holds the sandbox is left alone": sandbox_is_left_alone,
    "containerd without NRI brings the hook by its base spec and by CDI": by_containerd,
    "containerd 1.7 brings the hook by its base spec": by_old_containerd,
    "CRI-O takes the printed file of hooks.d": crio_by_the_daemon,
    "without the daemon the pod's file counts": by_the_file,
    "without the daemon the pod's file counts for CRI-O's container": crio_by_the_file,
    "the exporter alone shows what the kernel has and writes nothing": exporter_alone,
    "CRI-O hands the pod's annotation on": crio_by_annotation,
    "a refusal by the settings is CRI-O's error": crio_refuses,
    "without the daemon the pod's file counts for podman's container": podman_by_the_file,
    "without a file the annotation counts": by_annotation,
    "without a file the annotation counts for podman's container": podman_by_annotation,
    "a refusal is podman's error with runc, and in the machine's log with crun": podman_refuses,
    "a refusal by the settings is runc's error": refused_by_the_settings,
    "a limit that cannot be written is runc's error": unwritable,
    "cgroup v1": on_v1,
    "cgroup v1 with a runc that does not join misc": outside_on_v1,
    "cgroup v1 with the daemon": by_the_daemon_on_v1,
}
OF_CRIO: Final = (crio_by_the_daemon, crio_by_the_file, exporter_alone, crio_by_annotation, crio_refuses)
"""Those that are left out where CRI-O is not built."""
