"""`cri-resmgr`: the relay under CRI Resource Manager's name and with its options."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nodeward import __version__
from nodeward.cli import exits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodeward.features.settings import Settings
    from nodeward.programs.cri_resmgr.read import CommandLine

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
    import stat

    from nodeward.core.errors import NodewardError
    from nodeward.programs.cri_resmgr import read as cri_resmgr

    def is_socket(path: str) -> bool:
        try:
            return stat.S_ISSOCK(os.stat(path).st_mode)
        except OSError:
            return False

    def choose(fallback: bool = True) -> cri_resmgr.CommandLine:
        return cri_resmgr.choose(words, os.environ, _read, is_socket, fallback)

    def first_choice() -> cri_resmgr.CommandLine:
        """Without its relay a node has no runtime: a fault of the fallback file alone does not end it."""
        try:
            chosen = choose()
            if not chosen.asked:
                _settings(chosen)
        except NodewardError as error:
            plain = choose(fallback=False)
            _settings(plain)
            plain.faults = tuple(str(error).splitlines())
            return plain
        return chosen

    chosen = first_choice()
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
    from nodeward.host.hostfs import OsFiles
    from nodeward.programs.cri_resmgr import last_policy
    from nodeward.programs.cri_resmgr import pushed as cri_resmgr_pushed
    from nodeward.settings.pushed import Pushed

    files, is_started = OsFiles(), False

    def overlaid(config: "Mapping[str, str] | None") -> "Settings":
        now = choose(config is None) if is_started or config is not None else first_choice()
        own = {path: value for path, value in now.pairs.items() if not path.startswith("policy.")}

        def by(pushed: "Mapping[str, str]") -> "Settings":
            now.pairs = {**own, **pushed}
            return _settings(now, dict.fromkeys(pushed, cri_resmgr_pushed.WHERE))

        return _settings(now) if config is None else cri_resmgr_pushed.over(config, by)

    def check(settings: "Settings") -> None:
        if chosen.keeps_policy:
            last_policy.check(files, settings.state_dir, settings.policy.active)

    def note(settings: "Settings") -> None:
        last_policy.note(files, settings.state_dir, settings.policy.active)

    def read() -> "Settings":
        settings = pushed.read()
        if is_started:
            note(settings)
        return settings

    pushed = Pushed(overlaid, files, check, note)
    first = pushed.first()
    faults = chosen.faults if pushed.config is None else ()
    if faults:
        chosen.notes.append("--fallback-config: not obeyed, calls pass untouched until a good configuration comes")
    _remark(chosen)

    with contextlib.ExitStack() as told:

        def started() -> None:
            nonlocal is_started
            is_started = True
            told.enter_context(_pid_in(chosen.pid_file))
            note(first)

        relay.run(read, chosen.log_level, started, chosen.reload_by, pushed, faults)


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
