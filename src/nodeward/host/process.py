"""One place for signals, logs and the lock of a program."""

import asyncio
import fcntl
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

from nodeward.core.errors import NodewardError
from nodeward.core.text import printable
from nodeward.host.hostfs import make_folders, open_own

log = logging.getLogger(__name__)
_OURS = logging.getLogger("nodeward")

LOCK_PATIENCE_S = 2.0
"""How long the next instance waits for the last one to end: a restarted runtime starts its plugins at once."""
LOCK_TRY_S = 0.05
_MOST_NAME = 512
"""Bytes of who holds a lock or waits for it: two names of Kubernetes."""


class LockedError(NodewardError):
    """The lock cannot be had: another instance holds it, or its file cannot be made; the text says which."""


class ListenError(NodewardError):
    """The address or port cannot be had."""


def set_up_logs(level: str) -> None:
    """One event a line on standard error. Libraries say warnings only: some log headers, and so tokens, at debug."""
    _OURS.setLevel(level.upper())
    least = max(_OURS.level, logging.WARNING)
    logging.basicConfig(level=least, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    for handler in logging.getLogger().handlers:
        handler.addFilter(_in_one_line)


def _in_one_line(record: logging.LogRecord) -> bool:
    """Whatever a runtime or the API server put into its text."""
    try:
        text = record.getMessage()
    except (TypeError, ValueError):  # a call with the wrong values ends nobody's work
        text = f"{record.msg} {record.args!r}"
    record.msg, record.args = printable(text), ()
    return True


def raise_descriptor_limit() -> int:
    """Raises the limit of open files as far as the process may (six are open for each cgroup), and returns it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def end_with_parent() -> None:
    """Turns the end of standard input, a pipe that the parent process holds, into a SIGTERM, from now on: however the
    parent went, this process ends in good order."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def hold_lock(folder: str, program: str, sleep: Callable[[float], None] = time.sleep) -> int:
    """Takes the program's lock in `folder` for the life of the returned descriptor; LockedError names the holder."""
    path = Path(folder) / f"{program}.lock"
    rule = f"one nodeward {program} a node. Stop that one, or give this one another run_dir"
    fd = _opened(path)
    for tries_left in range(round(LOCK_PATIENCE_S / LOCK_TRY_S), -1, -1):
        if _is_ours(fd):
            break
        if tries_left:
            sleep(LOCK_TRY_S)
            continue
        holder = _written(fd) or "unknown"
        os.close(fd)
        raise LockedError(f"{path} is held by process {holder}: {rule}")
    _write(fd, path, str(os.getpid()))
    return fd


def wait_for_lock(folder: str, program: str, name: str) -> tuple[int, bool]:
    """As `hold_lock`, but waits until the holder ends, while `waiting` returns `name`; also whether it had to. SIGTERM
    ends the process."""
    lock_path, queue_path = (Path(folder) / f"{program}.{end}" for end in ("lock", "waits"))
    lock = _opened(lock_path)
    queue = _opened(queue_path)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # process 1 of a container has no default action
    try:
        waits = not _is_ours(lock)
        if waits:
            log.warning("lock=waits path=%s holder=%s why='one nodeward %s a node'", lock_path, _written(lock), program)
            fcntl.flock(queue, fcntl.LOCK_EX)
            _write(queue, queue_path, name)
            fcntl.flock(lock, fcntl.LOCK_EX)
            log.warning("lock=taken path=%s why='the other one ended'", lock_path)
        _write(lock, lock_path, str(os.getpid()))
    finally:
        signal.signal(signal.SIGTERM, before)
    os.close(queue)
    return lock, waits


def waiting(folder: str, program: str) -> str:
    """The name of the process that waits for the program's lock, empty for none; "unknown" if that cannot be read."""
    try:
        fd = os.open(Path(folder) / f"{program}.waits", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    except OSError:
        return "unknown"
    try:
        return "" if _is_ours(fd) else _written(fd) or "unknown"
    finally:
        os.close(fd)


def _opened(path: Path) -> int:
    try:
        make_folders(str(path.parent))
        return open_own(str(path), os.O_RDWR)
    except OSError as error:
        raise LockedError(
            f"{path} cannot be made: {error.strerror}. Run as root, or set run_dir to a folder of yours"
        ) from error


def _is_ours(fd: int) -> bool:
    """Takes the file's lock if nobody else has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _written(fd: int) -> str:
    return printable(os.pread(fd, _MOST_NAME, 0).decode("utf-8", "replace").strip())


def _write(fd: int, path: Path, name: str) -> None:
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{name}\n".encode(), 0)
    except OSError as error:
        os.close(fd)
        raise LockedError(f"{path} cannot be written: {error.strerror}. Make room there") from error


def debug_switch(level: str) -> Callable[[], None]:
    """Each call switches the log between `level` and everything that is ours."""

    def switch() -> None:
        _OURS.setLevel(level.upper() if _OURS.level == logging.DEBUG else logging.DEBUG)
        log.log(_OURS.level, "log level=%s", logging.getLevelName(_OURS.level).lower())

    return switch


def run(
    work: Coroutine[object, object, None],
    hangup: Callable[[], None] | None = None,
    debug: Callable[[], None] | None = None,
    hangup_too: signal.Signals = signal.SIGHUP,
) -> None:
    """`until_signal` on the loop of the programs that others wait for."""
    from nodeward.host import loop  # uvloop is loaded by those programs only

    with asyncio.Runner(loop_factory=loop.new_loop) as runner:
        runner.run(until_signal(work, hangup, debug, hangup_too))


async def until_signal(
    work: Awaitable[None],
    hangup: Callable[[], None] | None = None,
    debug: Callable[[], None] | None = None,
    hangup_too: signal.Signals = signal.SIGHUP,
) -> None:
    """Runs `work` until it ends or SIGTERM or SIGINT comes, which ends it in good order. SIGHUP and `hangup_too` call
    `hangup`, SIGUSR1 `debug`."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    if hangup is not None:
        for number in (signal.SIGHUP, hangup_too):
            loop.add_signal_handler(number, hangup)
    if debug is not None:
        loop.add_signal_handler(signal.SIGUSR1, debug)
    try:
        await task
    except asyncio.CancelledError:
        log.info("stopped by signal")


def cannot_listen(wanted: str, error: OSError) -> ListenError:
    """The error for that address, with the setting that names it. Only why, without the address once more, which
    Python's own texts repeat; a name that cannot be looked up has no errno of the system's."""
    number = error.errno or 0
    why = os.strerror(number) if number > 0 else error.strerror or str(error)
    return ListenError(f"{wanted}: {why}; choose another, or stop who holds it")
