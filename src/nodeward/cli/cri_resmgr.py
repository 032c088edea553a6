"""`cri-resmgr`: the relay under CRI Resource Manager's name and with its options."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nodeward import __version__

if TYPE_CHECKING:
    from nodeward.app.tools.cri_resmgr import Chosen
    from nodeward.model.settings import Settings

HELP = """\
cri-resmgr: CRI Resource Manager's relay, by Nodeward. Options have one dash or two.

  -policy null|none          relay and change nothing; other policies are not built yet
  -runtime-socket SOCKET     the runtime; without it the first that is there of dockershim, containerd, CRI-O
  -image-socket SOCKET       an image service of its own; default: the runtime
  -relay-socket SOCKET       where kubelet connects (/var/run/cri-resmgr/cri-resmgr.sock)
  -dump RULES                which messages are dumped, and how much of them
  -dump-file FILE            where to; without it nothing is dumped
  -config FILE               options a line, as in the first releases, or YAML as in later ones
  -force-config FILE, -fallback-config FILE
                             YAML: policy.Active, dump.Config, dump.File, dump.Disabled, logger.Level, logger.Debug and
                             logger.Klog.v are read; not both files
  -force-config-signal SIGNAL
                             SIGUSR2 or SIGWINCH, which then reads the files again as SIGHUP does
  -pid-file FILE             the process's number, while it runs
  -logger-level debug|info|warn|error, -logger-debug SOURCES, -v NUMBER
                             on:SOURCES, and 4 or more, are debug
  -cgroup-mount FOLDER       where the cgroup trees are mounted (/sys/fs/cgroup)
  -kubelet-cgroup-root PATH  kubelet's --cgroup-root
  -version, -print-config, -list-policies, -list-loggers
                             print and end
  -reset-policy, -reset-config
                             say that there is nothing to erase, and end

All other options of CRI Resource Manager are known: what they mean here is said when they are given. Nodeward's own
settings that have no option here come from the environment, as NODEWARD_RUN_DIR. SIGUSR1 switches the log to debug and
back. The relay's own command is nodeward relay; what it writes is read by nodeward dump.

Example, from CRI Resource Manager's first README:
  cri-resmgr -policy null -dump 'reset,full:.*' -dump-file /tmp/cri.dump
"""


def main() -> None:
    """The console script. Errors that a person can act on end with 1 and one clear text."""
    from nodeward.model.errors import NodewardError

    try:
        _run(sys.argv[1:])
    except (NodewardError, OSError) as error:
        print(f"cri-resmgr: {error}", file=sys.stderr)
        sys.exit(1)


def _run(words: list[str]) -> None:
    import stat

    from nodeward.app.tools import cri_resmgr

    def is_socket(path: str) -> bool:
        try:
            return stat.S_ISSOCK(os.stat(path).st_mode)
        except OSError:
            return False

    def choose() -> cri_resmgr.Chosen:
        return cri_resmgr.choose(words, os.environ, _read, is_socket)

    chosen = choose()
    match chosen.asked:
        case "help":
            print(HELP, end="")
            return
        case "version":
            print(f"cri-resmgr, nodeward version {__version__}")
            return
        case "list-policies":
            print("Available policies:\n  * none: no policy; every message is relayed as it is\n  * null: the same")
            return
        case "list-loggers":
            print("fmt")
            return
        case "reset":
            print("cri-resmgr: nothing to erase: the relay keeps neither a policy nor a configuration")
            return
        case "print-config":
            _settings(chosen)
            _remark(chosen)
            print(chosen.as_file(), end="")
            return
    _settings(chosen)
    _remark(chosen)
    from nodeward.cli import relay

    with contextlib.ExitStack() as told:
        relay.run(
            lambda: _settings(choose()),
            chosen.log_level,
            lambda: told.enter_context(_pid_in(chosen.pid_file)),
            chosen.reload_by,
        )


def _remark(chosen: "Chosen") -> None:
    """Says what is otherwise than one would think."""
    for note in chosen.notes:
        print(f"cri-resmgr: {note}", file=sys.stderr)


def _settings(chosen: "Chosen") -> "Settings":
    from nodeward.app.settings import load as settings
    from nodeward.app.tools import cri_resmgr

    return settings.load(None, os.environ, chosen.pairs, cri_resmgr.GIVEN_BY)


def _read(path: str) -> str:
    """A configuration file's text; one of more than a mebibyte is none."""
    from nodeward.aio.hostfs import OsFiles
    from nodeward.app.tools.cri_resmgr import CriResmgrError

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
