"""A real containerd for one test: own network, mount and process namespaces, everything else in one folder.

The process namespace is what makes the end certain: when its first process is killed, as it is when we are, the kernel
kills containerd, every shim and every container with it. Pods go below one cgroup whose name has that process's id;
what is left of it is removed, and what the root of cgroup v2 passes on is taken back, so the host is as it was.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from tests.patience import scaled, until
from tests.peers.cgroups import controllers_as_before, remove_cgroups
from tests.peers.cri import Cri
from tests.peers.find import absent, require
from tests.peers.image import write_archive
from tests.peers.nriside import member

IMAGE = "localhost/nodeward/pause:1"
START_TIMEOUT_S = scaled(30.0)

HOLDER = "mount -t tmpfs tmpfs /run && mount -t proc proc /proc && ip link set lo up && echo up && exec sleep infinity"
NETWORK = {
    "cniVersion": "1.0.0",
    "name": "nodeward",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipMasq": False,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": "10.88.0.0/16"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": "/run/ipam",
            },
        }
    ],
}


@dataclass(frozen=True, slots=True)
class NriOptions:
    required_plugins: tuple[str, ...] | None = None
    """Plugins without which NRI's default validator refuses every container. Empty: only what a pod's own annotation
    names is required. None: no validator."""
    tolerate: str = ""
    """The annotation that exempts a pod from it."""
    request_timeout_s: float = 2.0
    disable: bool = False
    """NRI switched off, as containerd 1.7 has it unless configured."""
    launched: Mapping[str, str] = field(default_factory=dict)
    """Scripts that containerd starts as plugins, by file name (`10-name`)."""

    def settings(self) -> str:
        patience = f"plugin_request_timeout = '{self.request_timeout_s:g}s'"
        return f"  disable = {str(self.disable).lower()}\n  {patience}\n{self._validator()}"

    def _validator(self) -> str:
        if self.required_plugins is None:
            return ""
        return (
            "  [plugins.'io.containerd.nri.v1.nri'.default_validator]\n"
            "    enable = true\n"
            f"    required_plugins = {list(self.required_plugins)}\n"
            f"    tolerate_missing_plugins_annotation = '{self.tolerate}'\n"
        )


PLAIN = NriOptions()


@dataclass(frozen=True, slots=True)
class Release:
    """A containerd of the peers. Its `ctr`, CNI plugins, image and CRI schema are always the newest one's."""

    peer: str
    version: str
    template: str
    """Its configuration, in the form that it reads, beside this module."""
    runtimes: str
    """The table of its configuration that holds the runtime handlers."""


NEWEST = Release("containerd", "2.4.2", "containerd.toml", "plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes")
OLD = Release(
    "containerd-1.7", "1.7.29", "containerd-1.7.toml", "plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes"
)


class ContainerdError(Exception):
    """containerd did not do what the test needs; the message ends with its log."""


@dataclass(slots=True)
class Containerd:
    folder: Path
    peer: Path
    holder: subprocess.Popen[str]
    release: Release = NEWEST
    handlers: Mapping[str, Path] = field(default_factory=dict)
    """Further runtime handlers, and the OCI runtime of each."""
    stream_port: int = 0
    """Where its streaming server listens, on the loopback of its own network; 0: anywhere."""
    annotations: tuple[str, ...] = ()
    """What of a pod's annotations it passes on to those runtimes, as patterns."""
    pid: int = 0
    """The process id of containerd on the host, 0 when it is stopped."""
    _nsenter: subprocess.Popen[bytes] | None = None

    @property
    def programs(self) -> Path:
        """Where this release's containerd is, and the shim that it looks for."""
        return require(self.release.peer) / "bin"

    @property
    def cri_socket(self) -> Path:
        return self.folder / "containerd.sock"

    @property
    def nri_socket(self) -> Path:
        return self.folder / "nri.sock"

    @property
    def cgroup_parent(self) -> str:
        return f"/nodeward-test-{self.holder.pid}"

    def cri(self) -> Cri:
        return Cri(self.cri_socket, self.peer / "proto" / "cri.proto")

    def log(self) -> str:
        return (self.folder / "containerd.log").read_text(errors="replace")[-4000:]

    def inside(self, *command: str, network: bool = True) -> list[str]:
        """The command line that runs a command in the namespaces; without `network` in the caller's network.

        -r is for callers in a chroot, as in the guest of tests/vm: entering a mount namespace leaves it.
        """
        first = children(self.holder.pid)[0]
        return ["nsenter", "-t", str(first), *(["-n"] if network else []), "-m", "-p", "-r", "--", *command]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": f"{self.programs}:{self.peer / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin"}

    def configure(self, nri: NriOptions) -> None:
        text = (Path(__file__).parent / self.release.template).read_text() + nri.settings()
        for name, program in self.handlers.items():
            table = f"{self.release.runtimes}.'{name}'"
            passed_on = f"  pod_annotations = {list(self.annotations)}\n" if self.annotations else ""
            text += f"[{table}]\n  runtime_type = 'io.containerd.runc.v2'\n{passed_on}"
            text += f"[{table}.options]\n  BinaryName = '{program}'\n  SystemdCgroup = false\n"
        text = text.replace("stream_server_port = '0'", f"stream_server_port = '{self.stream_port}'")
        for mark, value in (("@HOME@", str(self.folder)), ("@PEER@", str(self.peer)), ("@IMAGE@", IMAGE)):
            text = text.replace(mark, value)
        (self.folder / "config.toml").write_text(text)

    def start(self) -> None:
        with (self.folder / "containerd.log").open("ab") as log:
            command = self.inside(str(self.programs / "containerd"), "-c", str(self.folder / "config.toml"))
            self._nsenter = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment())
        entered = self._nsenter
        until(lambda: entered.poll() is not None or bool(children(entered.pid)), "containerd process")
        self.pid = next(iter(children(entered.pid)), 0)
        until(lambda: entered.poll() is not None or self._answers(), "answer from containerd", told=self.log)
        if entered.poll() is not None:
            raise ContainerdError(f"containerd ended with status {entered.returncode}\n{self.log()}")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop containerd alone: containers and their shims live on."""
        if self._nsenter is not None and self.pid:
            os.kill(self.pid, how)
            self._nsenter.wait(START_TIMEOUT_S)
        self.pid = 0

    def restart(self) -> None:
        self.stop()
        self.start()

    def ctr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.peer / "bin" / "ctr"), "-a", str(self.cri_socket), "-n", "k8s.io", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False)

    def _answers(self) -> bool:
        return self.cri_socket.is_socket() and self.ctr("version").returncode == 0 and self._cri_answers()

    def _cri_answers(self) -> bool:
        """containerd listens before it knows its pods again, and refuses CRI until then, though nothing else."""
        with self.cri() as cri:
            try:
                cri.call("Status")
            except grpc.RpcError as refused:
                if "server is not initialized yet" in str(refused.details()):
                    return False
                raise
        return True

    def said(self, words: str) -> int:
        """How often containerd's log has these words; its quotes have a backslash before them."""
        return (self.folder / "containerd.log").read_text(errors="replace").count(words)

    def synchronized(self, plugin: str) -> int:
        """How often containerd has said that it calls this plugin (`10-name`) from now on."""
        launched = self.said(f'pre-installed NRI plugin \\"{plugin}\\" synchronization success')
        return launched + self.said(f'plugin \\"{plugin}\\" connected and synchronized')

    def told(self, container: str) -> list[str]:
        """The lines of `misc.max` in the specification that the OCI runtime was given for a container."""
        bundle = self.folder / "state/io.containerd.runtime.v2.task/k8s.io" / container
        said = member(json.loads((bundle / "config.json").read_text()), "linux", "resources", "unified", "misc.max")
        return str(said or "").splitlines()


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def _prepare(folder: Path, peer: Path, nri: NriOptions) -> None:
    for name in ("cni", "nri-plugins", "nri-conf", "logs"):
        (folder / name).mkdir()
    for name, script in nri.launched.items():
        (folder / "nri-plugins" / name).write_text(script)
        (folder / "nri-plugins" / name).chmod(0o755)
    (folder / "cni" / "10-nodeward.conflist").write_text(json.dumps(NETWORK))
    write_archive(folder / "pause.tar", IMAGE, {"pause": peer / "bin" / "pause"})


@contextmanager
def running_containerd(
    folder: Path,
    nri: NriOptions = PLAIN,
    release: Release = NEWEST,
    handlers: Mapping[str, Path] | None = None,
    stream_port: int = 0,
    annotations: tuple[str, ...] = (),
) -> Iterator[Containerd]:
    peer = require(NEWEST.peer)
    require(release.peer)
    if os.geteuid() != 0:
        absent("containerd needs root for its namespaces: run the tests as root")
    _prepare(folder, peer, nri)
    unshare = ["unshare", "-n", "-m", "-p", "-f", "--kill-child", "--propagation", "private", "sh", "-c", HOLDER]
    command = ["setpriv", "--pdeathsig", "KILL", *unshare]
    with controllers_as_before():
        with (folder / "holder.log").open("w") as errors:
            holder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert holder.stdout is not None
        daemon = Containerd(folder, peer, holder, release, handlers or {}, stream_port, annotations)
        try:
            if holder.stdout.readline() != "up\n":
                raise ContainerdError(f"the namespaces could not be made: {(folder / 'holder.log').read_text()}")
            daemon.configure(nri)
            daemon.start()
            loaded = daemon.ctr("images", "import", "--local", str(folder / "pause.tar"))
            if loaded.returncode:
                raise ContainerdError(f"the image was not imported: {loaded.stderr}\n{daemon.log()}")
            yield daemon
        finally:
            _end(daemon)


def _end(daemon: Containerd) -> None:
    """Kill the namespace's first process, and with it all that is in it; then tidy up."""
    first = next(iter(children(daemon.holder.pid)), 0)
    if first:
        os.kill(first, signal.SIGKILL)
    daemon.holder.wait(START_TIMEOUT_S)
    if daemon.holder.stdout is not None:
        daemon.holder.stdout.close()
    if daemon._nsenter is not None:
        daemon._nsenter.wait(START_TIMEOUT_S)
    remove_cgroups(daemon.cgroup_parent)
