"""The folder of `make bundle` in a root that has glibc and nothing else: no Python, no shell, no certificates.

The root is a folder in a mount namespace of each program's own, with the bundle read-only in /opt/nodeward. The host's
network is shared, so that the test can call what listens. When the last program has ended nothing is mounted.
"""

import gzip
import http.client
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeward import __version__
from nodeward.cli.commit import commit, short
from nodeward.cli.main import COMMANDS, LEFT_OUT
from tests.component.webhook.support import asked, make_pki, port_of
from tests.patience import scaled
from tests.peers.bundle import require_bundle
from tests.peers.daemon import until
from tests.peers.find import absent
from tests.peers.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = scaled(60.0)
GLIBC = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1", "libresolv.so.2")
CONTAINER = f"/kubepods/pod0f2a4c6e-1111-2222-3333-444455556666/{'c' * 64}"
ENTER = (
    'mount --bind "$2" "$1/opt/nodeward" && mount -o remount,bind,ro "$1/opt/nodeward" && mount -t proc proc "$1/proc" '
    '&& mount --bind "$1/cgroup-of-1" "$1/proc/1/cgroup" && mount --bind /dev/null "$1/dev/null" '
    '&& root=$1 && shift 2 && exec chroot "$root" "$@"'
)


@dataclass(frozen=True, slots=True)
class Bare:
    root: Path
    bundle: Path

    def command(self, *words: str) -> list[str]:
        """How a program of the bundle is started in the root. The process becomes that program: it can be signalled."""
        unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "enter"]
        return [*unshare, str(self.root), str(self.bundle), f"/opt/nodeward/bin/{words[0]}", *words[1:]]

    def run(self, *words: str, code: int = 0, given: str = "") -> str:
        done = subprocess.run(
            self.command(*words), env=_ENV, input=given, capture_output=True, text=True, timeout=WITHIN_S, check=False
        )
        assert done.returncode == code, f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(self.command(*words), env=_ENV, stderr=subprocess.PIPE, text=True) as program:
            try:
                yield program
            finally:
                program.kill()

    def write(self, name: str, text: str) -> str:
        (self.root / name).write_text(text, encoding="utf-8")
        return f"/{name}"


_ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


@pytest.fixture(scope="session")
def bundle() -> Path:
    return require_bundle()


@pytest.fixture(scope="session")
def bare(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bare]:
    """The root. It has what `ldd` finds of glibc."""
    if os.geteuid() != 0:
        absent("a root of one's own needs root: run the tests as root")
    root = tmp_path_factory.mktemp("b")
    for name in ("opt/nodeward", "proc", "dev", "tmp", "run", "cg"):
        (root / name).mkdir(parents=True)
    (root / "dev/null").touch()
    (root / "cgroup-of-1").write_text(f"0::{CONTAINER}\n")
    said = subprocess.run(
        ["ldd", bundle / "bin/nodeward"], capture_output=True, text=True, timeout=scaled(30), check=True
    ).stdout
    loader = re.search(r"^\s*(/\S*ld-linux\S*)", said, re.MULTILINE)
    libc = re.search(r"libc\.so\.6 => (\S+)", said)
    assert loader is not None, said
    assert libc is not None, said
    for path in [Path(loader[1]), *(Path(libc[1]).parent / name for name in GLIBC)]:
        target = root / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path.resolve(), target)
        target.chmod(0o755)
    yield Bare(root, bundle)
    assert str(root) not in Path("/proc/self/mounts").read_text()


def test_the_root_has_no_python(bare: Bare) -> None:
    assert [path for path in bare.root.rglob("*") if "python" in path.name.lower()] == []
    assert list((bare.root / "opt/nodeward").iterdir()) == []  # the bundle is mounted in the programs' namespaces only


def test_it_says_its_version_and_every_sub_command_has_help(bare: Bare) -> None:
    mark = f" (commit {short(commit())})" if commit() else ""
    assert bare.run("nodeward", "--version") == f"nodeward, version {__version__}{mark}\n"
    told = bare.run("nodeward", "--help")
    for name, about in COMMANDS.items():
        assert about.split(",")[0][:40] in told
        if name == "sim":
            assert LEFT_OUT in bare.run("nodeward", "sim", code=1)
            continue
        assert f"Usage: nodeward {name} " in bare.run("nodeward", name, "--help")


def test_every_module_of_ours_is_in_it(bundle: Path) -> None:
    viewer = [str(Path(sys.executable).parent / "pyi-archive_viewer"), "-l", "-r", "-b", str(bundle / "bin/nodeward")]
    there = set(subprocess.run(viewer, capture_output=True, text=True, timeout=scaled(60), check=True).stdout.split())
    modules = [path.relative_to(ROOT / "src").with_suffix("") for path in (ROOT / "src/nodeward").rglob("*.py")]
    ours = {".".join(path.parts).removesuffix(".__init__") for path in modules}
    assert sorted(ours - there) == []


def test_settings_are_checked(bare: Bare) -> None:
    example = (ROOT / "deploy/nodeward.example.yaml").read_text(encoding="utf-8")
    assert bare.run("nodeward", "config", "check", bare.write("good.yaml", example))
    told = bare.run("nodeward", "config", "check", bare.write("bad.yaml", "limits: {mode: loud}"), code=1)
    assert "limits.mode" in told
    assert json.loads(bare.run("nodeward", "config", "schema"))


def test_a_record_replays(bare: Bare) -> None:
    record = next(iter(sorted((ROOT / "tests/goldens").glob("*.record.gz"))))
    (bare.root / "record").write_bytes(gzip.decompress(record.read_bytes()))
    assert "every decision is the same, byte for byte" in bare.run("nodeward", "replay", "/record")


def test_the_relay_has_all_that_it_needs(bare: Bare) -> None:
    told = bare.run("nodeward", "relay", "--listen", "/tmp/cri.sock", "--runtime", "/tmp/cri.sock", code=1)
    assert "/tmp/cri.sock is the runtime's own socket" in told


def test_cri_resmgr_is_in_it_under_its_own_name(bare: Bare) -> None:
    assert bare.run("cri-resmgr", "-h").startswith("cri-resmgr: CRI Resource Manager's relay, by Nodeward.")
    assert bare.run("cri-resmgr-webhook", "-h").startswith("cri-resmgr-webhook: ")
    told = bare.run("cri-resmgr", "-runtime-socket", "/tmp/x", "-relay-socket", "/tmp/x", code=1)
    assert told.splitlines()[-1].startswith("cri-resmgr: /tmp/x is the runtime's own socket")
    assert bare.run("cri-resmgr-agent", code=1).startswith("cri-resmgr-agent: NODE_NAME is not set")
    assert bare.run("cri-resmgr-agent-probe", code=1).startswith("cri-resmgr-agent-probe: /var/run/cri-resmgr/")


def test_the_daemon_starts_answers_and_ends(bare: Bare) -> None:
    port = free_port()
    lines = (
        "kube: {enabled: false}",
        "cgroups: {root: /cg}",
        f"metrics: {{enabled: true, listen: '127.0.0.1:{port}'}}",
    )
    config = bare.write("node.yaml", "\n".join(lines))
    with bare.running("nodeward", "node", "--config", config) as daemon:
        until((bare.root / "run/nodeward/nodeward.sock").exists, "the daemon's socket")
        assert json.loads(bare.run("nodeward", "status", "-o", "json"))["components"]
        assert "nri" in bare.run("nodeward", "status")
        bare.run("nodeward", "explain", "default/nothing", code=1)
        until(lambda: "nodeward_build_info" in _metrics(port), "the metrics")
        assert "worst:" in bare.run("nodeward", "doctor", "--config", config, code=1)
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(WITHIN_S) == 0
    bare.run("nodeward", "uninstall", "--config", config)


def test_the_webhook_answers_a_review_over_tls(bare: Bare) -> None:
    pki = make_pki(bare.root / "tmp")
    flags = ("address=127.0.0.1", "port=0", "certificate_file=/tmp/first.crt", "key_file=/tmp/first.key")
    words = [word for flag in flags for word in ("--set", f"webhook.{flag}")]
    with bare.running("nodeward", "webhook", *words) as webhook:
        _, said = asked(port_of(webhook), ssl.create_default_context(cafile=str(pki / "ca.crt")))
    assert json.loads(said)["response"]["patchType"] == "JSONPatch"


def test_the_hook_writes_a_containers_limit_and_says_what_is_wrong(bare: Bare) -> None:
    """Process 1 plays the container's: the root's /proc has another file in place of its cgroup's name."""
    annotations = {
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.container-name": "app",
        "io.kubernetes.cri.sandbox-id": "5" * 64,
        "io.kubernetes.cri.sandbox-uid": "0f2a4c6e-1111-2222-3333-444455556666",
        "nodeward.io/limits": '{"app":{"sgx_epc":"4096"}}',
    }
    cgroup = bare.root / f"sys/fs/cgroup{CONTAINER}"
    cgroup.mkdir(parents=True)
    (cgroup / "misc.max").write_text("sgx_epc max\n")
    (bare.root / "hook").mkdir()
    bare.write("sys/fs/cgroup/misc.capacity", "sgx_epc 1048576\n")
    bare.write("hook/config.json", json.dumps({"ociVersion": "1.0.2", "annotations": annotations, "linux": {}}))
    words = ("nodeward-oci-hook", "--on-error", "refuse")
    state = json.dumps({"ociVersion": "1.0.2", "id": "c" * 64, "pid": 1, "bundle": "/hook"})

    told = bare.run(*words, given=state)
    assert (cgroup / "misc.max").read_text() == "sgx_epc 4096\n", told

    assert "nothing on stdin" in bare.run(*words, code=1)
    (cgroup / "misc.max").unlink()
    (cgroup / "misc.max").mkdir()
    assert "cannot write 'sgx_epc 4096' to /sys/fs/cgroup/kubepods" in bare.run(*words, given=state, code=1)
    assert "--on-error" in bare.run("nodeward-oci-hook", "--help")


def test_the_readme_states_glibc_and_lists_each_licence(bundle: Path) -> None:
    readme = (bundle / "README").read_text(encoding="utf-8")
    assert f"with glibc {(os.confstr('CS_GNU_LIBC_VERSION') or '').split()[-1]} or newer" in readme
    parts = re.findall(r"^    (\S+) \S.*  \S", readme.partition("What is in it")[2], re.MULTILINE)
    assert {"Python", "aiohttp", "pyinstaller", "nodeward"} < set(parts)
    for part in parts:
        assert [path for path in (bundle / "LICENSES" / part).iterdir() if path.stat().st_size > 100], part
    assert sorted(path.name for path in (bundle / "LICENSES").iterdir()) == sorted(parts)


def test_nothing_in_it_needs_a_newer_glibc_than_is_stated(bundle: Path) -> None:
    stated = tuple(map(int, re.findall(r"with glibc (\d+)\.(\d+)", (bundle / "README").read_text())[0]))
    programs = [path for path in (bundle / "bin").rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    said = subprocess.run(
        ["objdump", "-p", *programs], capture_output=True, text=True, timeout=scaled(60), check=True
    ).stdout
    wanted = {tuple(map(int, version.split("."))) for version in re.findall(r"\bGLIBC_(\d+\.\d+)\b", said)}
    assert max(wanted) <= stated
    assert "libreadline" not in " ".join(path.name for path in programs)  # GPL-3


def test_the_units_of_the_bundle_name_where_its_readme_puts_it(bundle: Path) -> None:
    units = sorted((bundle / "deploy/systemd").iterdir())
    assert [unit.name for unit in units] == ["nodeward-relay.service", "nodeward.service"]
    for unit in units:
        assert "ExecStart=/opt/nodeward/bin/nodeward " in unit.read_text(encoding="utf-8")
    assert "cp -r . /opt/nodeward\n" in (bundle / "README").read_text(encoding="utf-8")
    assert os.access(bundle / "bin/nodeward", os.X_OK)


def _metrics(port: int) -> str:
    try:
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=scaled(5))
        link.request("GET", "/metrics")
        answer = link.getresponse()
        return answer.read().decode() if answer.status == 200 else ""
    except OSError:
        return ""
