"""containerd's own CRI suite, run by name against any CRI socket of one containerd.

It runs in that containerd's namespaces, beside a registry that serves its images, so several can run at once. Which of
its tests are run, and why each other one is not, stands in cri_suite.yaml.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.patience import scaled
from tests.peers import registry
from tests.peers.cgroups import hierarchies, remove_cgroups
from tests.peers.containerd import Containerd
from tests.peers.find import require

ROOT = Path(__file__).resolve().parents[2]
PORT = 80
"""The registry's, in a network that is nobody else's: images of `localhost` are pulled from there, past CRI too."""
IMAGES = {
    "Alpine": "alpine",
    "BusyBox": "busybox",
    "Nginx": "nginx",
    "Pause": registry.PAUSE,
    "ResourceConsumer": "resource-consumer",
}
"""How the suite names them in the file of its flag -image-list."""
NRI_SOCKET = "/run/nri-test.sock"
"""Where it looks for NRI; without it it skips those tests."""
CGROUP = "/k8s.io"
"""Where containerd puts pods that name no cgroup, as those of the suite."""
TIMEOUT_S = scaled(480.0)
_RESULT = re.compile(r"^ *--- (PASS|FAIL|SKIP): (\S+) \(([\d.]+)s\)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Chosen:
    run: tuple[str, ...]
    left_out: dict[str, str]
    """By name: why."""
    quick: tuple[str, ...]
    """Those that are run with a CPU policy each time."""
    not_with_a_policy: dict[str, str]
    """Those that are not run with one, by name: why."""

    @property
    def with_a_policy(self) -> tuple[str, ...]:
        return tuple(name for name in self.run if name not in self.not_with_a_policy)


@dataclass(frozen=True, slots=True)
class Ran:
    results: dict[str, str]
    """PASS, FAIL or SKIP of every test and of every part of one."""
    seconds: dict[str, float]
    output: str

    def told(self) -> str:
        """What the suite said of the tests that did not pass; its end where none is named, as after a panic."""
        parts = re.split(r"^(?==== RUN   \w+$)", self.output, flags=re.MULTILINE)
        bad = [part for part in parts[1:] if self.results.get(part.split()[2]) != "PASS"]
        return "".join(bad or parts[-1:])[-16000:]


def chosen() -> Chosen:
    said = yaml.safe_load((Path(__file__).parent / "cri_suite.yaml").read_text())
    reasons, changed = (
        {name: why for why, names in said[key].items() for name in names} for key in ("left_out", "not_with_a_policy")
    )
    return Chosen(tuple(said["run"]), reasons, tuple(said["quick"]), changed)


@contextmanager
def cgroups_removed() -> Iterator[None]:
    """What the suite leaves in the machine's cgroups is removed after the block, unless something was there before."""
    before = any((root / CGROUP.lstrip("/")).exists() for root in hierarchies())
    try:
        yield
    finally:
        if not before:
            remove_cgroups(CGROUP)


def program() -> Path:
    return require("cri-suite") / "bin" / "cri-suite"


def has(containerd: Containerd) -> list[str]:
    """The names of all tests of the suite; it connects before it lists them."""
    command = [str(program()), f"-cri-endpoint=unix://{containerd.cri_socket}", "-test.list", ".*"]
    listed = subprocess.run(containerd.inside(*command), capture_output=True, text=True, timeout=scaled(60), check=True)
    return [line for line in listed.stdout.splitlines() if line.startswith("Test")]


@contextmanager
def images_served(containerd: Containerd) -> Iterator[None]:
    """The registry, in containerd's network for as long as the block, and what else the suite looks for there."""
    pause = containerd.peer / "bin" / "pause"
    hosts = containerd.folder / "certs.d" / "_default"
    hosts.mkdir(parents=True)
    (hosts / "hosts.toml").write_text(f'[host."http://127.0.0.1:{PORT}"]\n  capabilities = ["pull", "resolve"]\n')
    script = [sys.executable, str(Path(registry.__file__)), str(PORT), str(pause)]
    nri = ["ln", "-sf", str(containerd.nri_socket), NRI_SOCKET]
    subprocess.run(containerd.inside(*nri), timeout=scaled(30), check=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = containerd.inside("setpriv", "--pdeathsig", "KILL", *script)
    serving = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment)
    assert serving.stdout is not None
    try:
        assert serving.stdout.readline() == "up\n"
        yield
    finally:
        serving.terminate()  # nsenter; what it started ends with it
        serving.stdout.close()
        serving.wait(scaled(30))


def run(containerd: Containerd, cri: Path, names: tuple[str, ...]) -> Ran:
    listed = containerd.folder / "images.toml"
    listed.write_text("".join(f'{key} = "localhost/{name}:1"\n' for key, name in IMAGES.items()))
    flags = [f"-cri-endpoint=unix://{cri}", f"-image-list={listed}", "-test.v"]
    command = [str(program()), *flags, f"-test.run=^({'|'.join(names)})$", f"-test.timeout={TIMEOUT_S:.0f}s"]
    path = f"{containerd.programs}:/usr/sbin:/usr/bin:/sbin:/bin"
    done = subprocess.run(
        containerd.inside(*command),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=TIMEOUT_S + 30,
        check=False,
        env={**os.environ, "PATH": path},
    )
    found = _RESULT.findall(done.stdout)
    return Ran(
        {name: outcome for outcome, name, _ in found},
        {name: float(seconds) for _, name, seconds in found},
        done.stdout,
    )
