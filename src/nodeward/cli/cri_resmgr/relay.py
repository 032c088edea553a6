"""`cri-resmgr`: the relay under CRI Resource Manager's name and with its options."""

import asyncio
import contextlib
import logging
import os
import random
import signal
import stat
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nodeward import __version__
from nodeward.cli import exits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodeward.features.settings import Settings
    from nodeward.programs.cri_resmgr.read import CommandLine

FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 30.0
"""Between starts of a daemon that ends."""
END_S = 8.0
"""How long it may take to end."""
log = logging.getLogger(__name__)
HELP = """\
cri-resmgr: CRI Resource Manager's relay, by Nodeward. Options have one dash or two.

  -policy NAME               the CPU policy, see -list-policies; null or none: relay and change nothing
  -reserved-resources cpu=AMOUNT, -available-resources cpu=AMOUNT
                             CPUs kept for the system, and those that containers may have: 1, 750m, cpuset:0-3
  -static-policy-relaxed-isolation
                             the policy static tries CPUs that the kernel isolates first
  -disable-policy-switch     do not start with another policy than the last one
  -runtime-socket SOCKET     the runtime; without it the first that is there of dockershim, containerd, CRI-O
  -image-socket SOCKET       an image service of its own; default: the runtime
  -relay-socket SOCKET       where kubelet connects (/var/run/cri-resmgr/cri-resmgr.sock)
  -dump RULES                which messages are dumped, and how much of them
  -dump-file FILE            where to; without it nothing is dumped
  -config FILE               options a line, as in the first releases, or YAML as in later ones
  -force-config FILE, -fallback-config FILE
                             YAML: policy.Active, policy.ReservedResources, policy.AvailableResources, the
                             policy's own section (as policy.balloons), dump.Config, dump.File, dump.Disabled,
                             logger.Level, logger.Debug and logger.Klog.v are read; not both files
  -force-config-signal SIGNAL
                             SIGUSR2 or SIGWINCH, which then reads the files again as SIGHUP does
  -pid-file FILE             the process's number, while it runs
  -logger-level debug|info|warn|error, -logger-debug SOURCES, -v NUMBER
                             on:SOURCES, and 4 or more, are debug
  -cgroup-mount FOLDER       where the cgroup trees are mounted (/sys/fs/cgroup)
  -kubelet-cgroup-root PATH  kubelet's --cgroup-root
  -version, -print-config, -list-policies, -list-loggers
                             print and end
  -config-socket SOCKET      take configurations of nodeward agent (cri-resmgr-agent) there, by default at
                             /var/run/cri-resmgr/cri-resmgr-config.sock; the last one is kept, and takes the place of
                             -fallback-config. Not with -force-config, nor by default with -policy null;
                             -config-socket disabled: take none
  -reset-policy, -reset-config
                             forget which policy was the last one, or the agent's last configuration, and end

All other options of CRI Resource Manager are known: what they mean here is said when they are given. Nodeward's own
settings that have no option here come from the environment, as NODEWARD_RUN_DIR. SIGUSR1 switches the log to debug and
back. The relay's own command is nodeward relay; what it writes is read by nodeward dump.

Examples, the first from CRI Resource Manager's first README:
  cri-resmgr -policy null -dump 'reset,full:.*' -dump-file /tmp/cri.dump
  cri-resmgr -policy static -reserved-resources cpu=1
"""


def main() -> None:
    """The console script. Errors that a person can act on end with 1 and one clear text."""
    from nodeward.core.errors import NodewardError

    try:
        _run(sys.argv[1:])
    except (NodewardError, OSError) as error:
        print(f"cri-resmgr: {error}", file=sys.stderr)
        sys.exit(exits.FAILED)


def _run(words: list[str]) -> None:
    from nodeward.programs.cri_resmgr import read as cri_resmgr

    chosen = first_choice(words)
    match chosen.asked:
        case "help":
            print(HELP, end="")
            return
        case "version":
            print(f"cri-resmgr, nodeward version {__version__}")
            return
        case "list-policies":
            _list_policies(chosen.historic)
            return
        case "list-loggers":
            print("fmt")
            return
        case "reset":
            _reset(chosen)
            return
        case "print-config":
            if chosen.faults:
                raise cri_resmgr.CriResmgrError("\n".join(chosen.faults))
            _settings(chosen)
            _remark(chosen)
            print(chosen.as_file(), end="")
            return
    from nodeward.cli import relay

    configured = Configured(words)
    first = configured.pushed.first()
    faults = chosen.faults if configured.pushed.config is None else ()
    if faults:
        chosen.notes.append("--fallback-config: not obeyed, calls pass untouched until a good configuration comes")
    _remark(chosen)
    beside = _Daemon(words) if first.relayed or first.agent.config_socket else None
    configured.is_told = beside is None or not first.agent.config_socket

    with contextlib.ExitStack() as told:

        def started() -> None:
            configured.start(first)
            told.enter_context(_pid_in(chosen.pid_file))

        reload_by = chosen.reload_by
        relay.run(configured.read, chosen.log_level, started, reload_by, faults=faults, first=first, beside=beside)


def first_choice(words: list[str]) -> "CommandLine":
    """What the words mean. Without its relay a node has no runtime: a fault of the fallback file alone does not end
    it."""
    from nodeward.core.errors import NodewardError

    try:
        chosen = _choose(words)
        if not chosen.asked:
            _settings(chosen)
    except NodewardError as error:
        plain = _choose(words, fallback=False)
        _settings(plain)
        plain.faults = tuple(str(error).splitlines())
        return plain
    return chosen


def _choose(words: list[str], fallback: bool = True) -> "CommandLine":
    from nodeward.programs.cri_resmgr import read as cri_resmgr

    return cri_resmgr.choose(words, os.environ, _read, _is_socket, fallback)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


class Configured:
    """The settings that the words mean, and what an agent pushed over them."""

    def __init__(self, words: list[str]) -> None:
        from nodeward.host.hostfs import OsFiles
        from nodeward.settings.pushed import Pushed

        self._words, self._files, self._started = words, OsFiles(), False
        self._keeps_policy = first_choice(words).keeps_policy
        self.is_told = True
        """Whether this process knows which policy is in force once it runs. The daemon beside it may have been pushed
        another by an agent."""
        self.pushed = Pushed(self._overlaid, self._files, self._check, self._note)

    def start(self, first: "Settings") -> None:
        """The process has begun with these."""
        self._started = True
        self._note(first)

    def read(self) -> "Settings":
        """Those that are wanted now."""
        settings = self.pushed.read()
        if self._started:
            self._note(settings)
        return settings

    def _overlaid(self, config: "Mapping[str, str] | None") -> "Settings":
        from nodeward.programs.cri_resmgr import pushed as cri_resmgr_pushed

        is_later = self._started or config is not None
        now = _choose(self._words, config is None) if is_later else first_choice(self._words)
        own = {path: value for path, value in now.pairs.items() if not path.startswith("policy.")}

        def by(pushed: "Mapping[str, str]") -> "Settings":
            now.pairs = {**own, **pushed}
            return _settings(now, dict.fromkeys(pushed, cri_resmgr_pushed.WHERE))

        return _settings(now) if config is None else cri_resmgr_pushed.over(config, by)

    def _check(self, settings: "Settings") -> None:
        from nodeward.programs.cri_resmgr import last_policy

        if self._keeps_policy and self.is_told:
            last_policy.check(self._files, settings.state_dir, settings.policy.active)

    def _note(self, settings: "Settings") -> None:
        from nodeward.programs.cri_resmgr import last_policy

        if self.is_told:
            last_policy.note(self._files, settings.state_dir, settings.policy.active)


class _Daemon:
    """The node daemon beside the relay: a process with the same options, which ends with this one."""

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        """Keeps it running until cancelled."""
        from nodeward.host.backoff import Backoff

        pauses = Backoff(FIRST_PAUSE_S, LAST_PAUSE_S, random.random)
        module = "nodeward.cli.cri_resmgr.daemon"
        while True:
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, *self._words, stdin=asyncio.subprocess.PIPE
            )
            began = time.monotonic()
            try:
                status = await process.wait()
            finally:
                if process.returncode is None:
                    process.terminate()
                    await asyncio.wait((asyncio.ensure_future(process.wait()),), timeout=END_S)
            if time.monotonic() - began > LAST_PAUSE_S:
                pauses.reset()
            pause_s = pauses.next_s()
            log.error("daemon=ended status=%d: starts again in %.1f s", status, pause_s)
            await asyncio.sleep(pause_s)

    def reload(self) -> None:
        """Has it read its settings again."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGHUP)


def _list_policies(historic: bool) -> None:
    """The first releases wrote a line of each, without head and bullets."""
    from nodeward.features.cpus.spelling import listed

    if not historic:
        print("Available policies:")
    bullet = "" if historic else "  * "
    for row in listed.rows():
        print(f"{bullet}{row.name}: {row.about}")
        for alias in row.aliases:
            print(f"{bullet}{alias}: the same as {row.name}")


def _reset(chosen: "CommandLine") -> None:
    from nodeward.host.hostfs import OsFiles
    from nodeward.programs.cri_resmgr import last_policy
    from nodeward.settings import pushed

    last = ""
    if chosen.resets_policy:
        last = last_policy.erase(OsFiles(), _settings(chosen).state_dir)
    forgot = chosen.resets_config and pushed.forget(OsFiles(), _settings(chosen).state_dir)
    if forgot:
        print("cri-resmgr: forgot the last configuration of the agent")
    if last:
        print(f"cri-resmgr: forgot the last policy, {last}")
    elif not forgot:
        print("cri-resmgr: nothing to erase: no policy is noted, and no configuration is kept")
    print("cri-resmgr: containers keep the CPUs that they have until a policy gives them others")


def _remark(chosen: "CommandLine") -> None:
    """Says what is otherwise than one would think."""
    for note in chosen.notes:
        print(f"cri-resmgr: {note}", file=sys.stderr)


def _settings(chosen: "CommandLine", given_by: "Mapping[str, str] | None" = None) -> "Settings":
    from nodeward.programs.cri_resmgr import read as cri_resmgr
    from nodeward.settings import load as settings

    return settings.load(None, os.environ, chosen.pairs, {**cri_resmgr.GIVEN_BY, **(given_by or {})})


def _read(path: str) -> str:
    """A configuration file's text; one of more than a mebibyte is none."""
    from nodeward.host.hostfs import OsFiles
    from nodeward.programs.cri_resmgr.read import CriResmgrError

    try:
        return OsFiles().read(os.path.abspath(path), 1024 * 1024).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise CriResmgrError(f"{path}: {why}") from error


@contextlib.contextmanager
def _pid_in(path: str) -> Iterator[None]:
    """This process's number is in that file meanwhile, if one is named."""
    if path:
        with open(path, "w", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")
    try:
        yield
    finally:
        if path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
