"""What both chains do inside the guest: read and charge cgroups as enclaves would, and run the real daemon.

The daemon is a process of its own that can be killed: the console script, or what `tests.vm.forked` makes of it.
"""

import errno
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Final, TypeVar
from unittest.mock import patch

import msgspec

from nodeward.cli.main import main as nodeward
from nodeward.features.limits.rows import CgroupRow, ResourceRow
from nodeward.people import client
from nodeward.people.rows import NodeView
from tests import patience
from tests.vm.forked import Process, started

CGROUPS: Final = Path("/sys/fs/cgroup")
DEVICE: Final = "/dev/fakemisc"
EPC: Final = "sgx.intel.com/epc"
RESOURCE: Final = "sgx_epc"
SECOND_RESOURCE: Final = "sev_es"
KIB: Final = 1024
_N = TypeVar("_N")
_RESOURCE_NUMBERS: Final = {RESOURCE: 0, SECOND_RESOURCE: 1}
_FOLDER: Final = Path("/run/chain")
RUN_DIR: Final = _FOLDER / "run"
"""The daemon's `run_dir`."""
_WITHIN_S: Final = 6.0
_STARTS_WITHIN_S: Final = 20.0
_SETTINGS: Final = """
node_name: {name}
state_dir: {folder}/state
run_dir: {folder}/run
nri: {{socket: {nri}}}
"""


def named(*cases: Callable[[_N], None]) -> Mapping[str, Callable[[_N], None]]:
    return {case.__name__: case for case in cases}


def without(
    cases: Mapping[str, Callable[[_N], None]], *nightly: Callable[[_N], None]
) -> Mapping[str, Callable[[_N], None]]:
    """Those that are not for the night."""
    return {name: case for name, case in cases.items() if case not in nightly}


def until(true: Callable[[], bool], what: str, within_s: float = _WITHIN_S) -> None:
    patience.until(true, what, within_s)


def cgroup(path: str) -> Path:
    """A cgroup, which is made, with the misc controller handed down to it."""
    place = CGROUPS
    for name in path.strip("/").split("/"):
        (place / "cgroup.subtree_control").write_text("+misc")
        place /= name
        place.mkdir(exist_ok=True)
    return place


def limit(cgroup: Path, resource: str = RESOURCE) -> str:
    """What the kernel's limit of the resource is in this cgroup; empty where there is no misc controller."""
    path = cgroup / "misc.max"
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.split()[1] for line in lines if line.split()[0] == resource), "")


def amount(file: Path, resource: str) -> int:
    lines = file.read_text().splitlines() if file.exists() else []
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{resource} ")), 0)


def limits(*cgroups: Path) -> list[int | str]:
    return [int(found) if (found := limit(cgroup)).isdigit() else found for cgroup in cgroups]


def charge(cgroup: Path, amount: int, root: Path = CGROUPS, resource: str = RESOURCE) -> int:
    """Takes so much as a process of that cgroup; an open file that holds it. OSError if the kernel refuses.

    The device is opened outside, since a container's device filter would forbid it.
    """
    fd = os.open(DEVICE, os.O_WRONLY | os.O_CLOEXEC)
    (cgroup / "cgroup.procs").write_text(str(os.getpid()))
    try:
        os.write(fd, f"take {_RESOURCE_NUMBERS[resource]} {amount}".encode())
    except OSError:
        os.close(fd)
        raise
    finally:
        (root / "cgroup.procs").write_text(str(os.getpid()))
    return fd


def refused(cgroup: Path, amount: int, resource: str = RESOURCE, root: Path = CGROUPS) -> None:
    try:
        charge(cgroup, amount, root, resource)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
    else:
        raise AssertionError(f"the kernel let {cgroup} take {amount}")


def played(arguments: Sequence[str], daemon: str) -> tuple[str | int | None, str, str]:
    """How a user's command ends that asks the daemon at this socket, and what it prints on both streams. It is played
    in this process: to begin one more and import the same takes seconds here."""
    with patch.dict(os.environ, NODEWARD_SOCKET=daemon), patch.object(sys, "argv", ["nodeward", *arguments]):
        said, complained = io.StringIO(), io.StringIO()
        status: str | int | None = 0
        with redirect_stdout(said), redirect_stderr(complained):
            try:
                nodeward()
            except SystemExit as end:
                status = end.code
    return status, said.getvalue(), complained.getvalue()


class Found(msgspec.Struct):
    """A finding of doctor's."""

    code: str
    severity: str
    what: str
    where: str = ""


class _Diagnosed(msgspec.Struct):
    findings: list[Found]


class Daemon:
    """`nodeward node`, told what a user tells it. Each life leaves a record of its own in `records`."""

    def __init__(self, nri_socket: Path, settings: str, name: str = "guest") -> None:
        _FOLDER.mkdir(exist_ok=True)  # a relay makes it too
        self.records: list[Path] = []
        self.config = _FOLDER / "nodeward.yaml"
        self.config.write_text(_SETTINGS.format(folder=_FOLDER, nri=nri_socket, name=name).lstrip() + settings)
        self._socket = f"{_FOLDER}/run/nodeward.sock"
        self.changed = ""
        """What changes the program of its next lives, see `forked.started`; nothing but in a test of what a fault of
        ours would do."""
        self._process: Process | None = None
        self._beside_relay = False

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def start(self, api: str = "answers", *flags: str) -> None:
        self.records.append(_FOLDER / f"node-{len(self.records)}.record")
        line = ["node", "--config", str(self.config), "--record", str(self.records[-1]), *flags]
        self._process = started(line, _FOLDER / "daemon.log", os.environ, self.changed)
        until(lambda: self._connected(api), f"the daemon is connected, and its API server {api}", _STARTS_WITHIN_S)

    def start_beside_relay(self, api: str = "answers", *flags: str) -> None:
        """As `start`, without NRI: it is there when it decides for the relay, and knows what the runtime has."""
        self._beside_relay = True
        self.start(api, *flags)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """While the block runs it does nothing, as on a machine that swaps."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def end(self, how: signal.Signals) -> int:
        if self._process is None:
            return 0
        self._process.send_signal(how)
        return self._process.wait(60)

    def view(self) -> NodeView | None:
        try:
            return msgspec.json.decode(client.get("/v1/status", self._socket), type=NodeView)
        except client.DaemonError:
            return None

    def runtime(self) -> str:
        view = self.view()
        return view.runtime if view is not None else ""

    def lines(self) -> str:
        """What it says of `nri.multi_line`: the state, and why."""
        view = self.view()
        return f"{view.lines.state}: {view.lines.why}" if view is not None else ""

    def row(self, pod: str, container: str = "", view: NodeView | None = None) -> CgroupRow | None:
        shown = view or self.view()
        rows = shown.rows if shown is not None else ()
        level = "container" if container else "pod"
        return next((row for row in rows if (row.level, row.pod, row.container) == (level, pod, container)), None)

    def resource(self, pod: str, container: str = "", view: NodeView | None = None) -> ResourceRow:
        row = self.row(pod, container, view)
        assert row is not None, f"no row of {pod}/{container or '(pod)'}"
        return next(one for one in row.resources if one.resource == RESOURCE)

    def state(self, pod: str, container: str = "") -> str:
        row = self.row(pod, container)
        return row.state if row is not None else ""

    def enforced(self, pod: str, *containers: str) -> None:
        shown = ", ".join(f"{pod}/{container or '(pod)'}" for container in containers)
        until(lambda: {self.state(pod, one) for one in containers} == {"enforced"}, f"shown as enforced: {shown}")

    def ask(self, *arguments: str) -> str:
        status, said, complained = played(arguments, self._socket)
        if status:
            raise AssertionError(f"nodeward {' '.join(arguments)}: status {status}: {complained}")
        return said

    def configure(self, more: str) -> None:
        """Adds to its settings, for the next start."""
        self.config.write_text(self.config.read_text() + more)

    def settle(self, **limits: str) -> None:
        """Has it take up these settings of `limits`, as `systemctl reload` does; returns when it has."""
        before = self.view()
        assert before is not None
        text = self.config.read_text()
        for key, value in limits.items():
            text = re.sub(rf"^(limits: \{{.*?)\b{key}: \w+, ", r"\1", text, flags=re.MULTILINE)
            text = text.replace("limits: {", f"limits: {{{key}: {value}, ", 1)
            assert f"{key}: {value}" in text, text
        self.config.write_text(text)
        os.kill(self.pid, signal.SIGHUP)
        since = before.settings.accepted_wall_ns
        what = f"settings are taken up: {limits}"
        until(lambda: (view := self.view()) is not None and view.settings.accepted_wall_ns > since, what)

    def findings(self, *flags: str) -> list[Found]:
        _, said, _ = played(["doctor", "--config", str(self.config), "-o", "json", *flags], self._socket)
        return msgspec.json.decode(said, type=_Diagnosed).findings

    def log(self) -> str:
        return f"view: {self.view()}\nlog:\n{self.logged()[-9000:]}"

    def logged(self) -> str:
        path = _FOLDER / "daemon.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def replayed(self) -> None:
        """Ends it well, and has the record of every life decided again, byte for byte."""
        status = self.end(signal.SIGTERM)
        assert status == 0, f"status {status} at SIGTERM"
        for record in self.records:
            said = self.ask("replay", str(record)).splitlines()
            assert said[-1].startswith("every decision is the same, byte for byte"), said
            assert " 0 event(s)" not in said[0], said

    def uninstall(self, *more: str) -> list[str]:
        return self.ask("uninstall", "--config", str(self.config), *more).splitlines()

    def _connected(self, api: str) -> bool:
        if self._process is not None and (status := self._process.poll()) is not None:
            raise AssertionError(f"the daemon ended with {status}: {self.log()}")
        view = self.view()
        if view is None or view.api != api:
            return False
        if self._beside_relay:
            return any(one.name == "relay" and one.ready for one in view.components)
        return view.runtime.startswith("containerd")


class CriRelay:
    def __init__(self, config: Path, log: Path) -> None:
        self._config, self._log = config, log
        self._process: Process | None = None
        log.touch()

    def start(self) -> None:
        """Starts it; it listens then."""
        before = self._listens()
        process = started(["relay", "--config", str(self._config)], self._log, os.environ)
        self._process = process
        until(lambda: self._listens() > before or process.poll() is not None, "the relay listens", 30)
        assert process.poll() is None, self.log()

    def end(self, how: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(how)
            self._process.wait(patience.scaled(60))

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def _listens(self) -> int:
        return self._log.read_text().count("relaying listen=")
