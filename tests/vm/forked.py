"""Starts our programs in a guest out of a process that has imported them already: to import them anew takes six of the
eight seconds of a start there.

Each is a process of its own all the same: it is given its arguments, environment and log, runs the console script's
function, and can be killed. The first of a guest is the console script itself, exec and all.
"""

import os
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Final, NoReturn, Protocol

from nodeward.cli.main import main

NODEWARD: Final = str(Path(sys.executable).parent / "nodeward")
_EVERY_S: Final = 0.05
_ran: Final[set[str]] = set()
"""The commands that ran as the console script."""
_server: Connection | None = None


class Process(Protocol):
    """What is used of `subprocess.Popen`."""

    pid: int

    def poll(self) -> int | None:
        """How it ended, as `subprocess` counts it; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """The same, when it has ended."""

    def send_signal(self, sig: int) -> None:
        """Does nothing where it has ended."""


def prepare() -> None:
    """Forks the process out of which programs come. To be called before there are threads, since these would be missing
    in it while their locks are held."""
    global _server
    _server, requests = Pipe()
    if os.fork() == 0:
        _server.close()
        _serve(requests)


def started(arguments: Sequence[str], log: Path, environ: Mapping[str, str], changed: str = "") -> Process:
    """A process of `nodeward` with these arguments; what it says is added to the log. `changed` names a function
    (`module:function`) that changes the program before it runs."""
    if _server is not None and (changed or arguments[0] in _ran):
        return _Forked(_server, [*arguments], str(log), dict(environ), changed)
    assert not changed, "only a process out of the prepared one can be changed"
    _ran.add(arguments[0])
    with log.open("ab") as file:
        return subprocess.Popen([NODEWARD, *arguments], stdout=file, stderr=file, env=environ)


class _Forked:
    def __init__(
        self, server: Connection, arguments: list[str], log: str, environ: dict[str, str], changed: str
    ) -> None:
        server.send((arguments, log, environ, changed))
        self.pid = int(server.recv())
        self._server = server
        self._status: int | None = None

    def poll(self) -> int | None:
        if self._status is None:
            self._server.send(self.pid)
            self._status = self._server.recv()
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            time.sleep(_EVERY_S)
        return status

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)


def _serve(requests: Connection) -> NoReturn:
    """Starts who is asked for and tells who has ended, as long as the runner lives."""
    for name in ("programs.node.run", "programs.relay.run", "host.process", "settings.load"):
        import_module(f"nodeward.{name}")
    with suppress(EOFError):
        while True:
            asked = requests.recv()
            if isinstance(asked, int):
                requests.send(_ended(asked))
            elif pid := os.fork():
                requests.send(pid)
            else:
                _become(*asked)
    os._exit(0)


def _ended(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _become(arguments: list[str], log: str, environ: dict[str, str], changed: str) -> NoReturn:
    """The console script, in this process."""
    said = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for fd in (1, 2):
        os.dup2(said, fd)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = [NODEWARD, *arguments]
    status = 1
    try:
        if changed:
            module, function = changed.split(":")
            getattr(import_module(module), function)()
        main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
