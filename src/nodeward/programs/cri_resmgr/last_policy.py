"""Keeps on disk which CPU policy `cri-resmgr` had last.

The note has a policy's name and no grant: grants are in the kernel and the runtime, where they are read again. It is
written whole and atomically. A relay that never had a policy writes nothing.
"""

import logging

from nodeward.core.errors import NodewardError
from nodeward.core.text import printable
from nodeward.host.hostfs import HostFiles, make_folders

MAX_BYTES = 256
NONE = "none"
log = logging.getLogger(__name__)


class PolicySwitchError(NodewardError):
    """The policy is another one than the last, and must not be; the text names both, and the remedy."""


def path_in(folder: str) -> str:
    """The note's path in the state folder."""
    return f"{folder.rstrip('/')}/cri-resmgr-policy"


def read(files: HostFiles, folder: str) -> str:
    """The last policy's name; empty where none is noted. OSError for a note that cannot be read."""
    try:
        return files.read(path_in(folder), MAX_BYTES).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return ""


def check(files: HostFiles, folder: str, active: str) -> None:
    """Raises PolicySwitchError where the last policy was another one, or its note cannot be read."""
    remedy = "start it once with --reset-policy, which ends at once and forgets the last one"
    try:
        last = read(files, folder)
    except OSError as error:
        why = f"{path_in(folder)} cannot be read ({error.strerror or error}), and --disable-policy-switch is given"
        raise PolicySwitchError(f"policy {active}: {why}; {remedy}") from error
    if last not in ("", active):
        why = f"the last one was {printable(last, 64)} ({path_in(folder)}), and --disable-policy-switch is given"
        raise PolicySwitchError(f"policy {active}: {why}; {remedy}, or choose {printable(last, 64)}")


def note(files: HostFiles, folder: str, active: str) -> None:
    """Notes that this policy is in force. What the disk does not take is said in the log."""
    try:
        last = read(files, folder)
        if last != active and (last or active != NONE):
            make_folders(folder)
            files.replace(path_in(folder), f"{active}\n".encode())
    except OSError as error:
        log.warning("last-policy=not-noted path=%s error=%s", path_in(folder), error)


def erase(files: HostFiles, folder: str) -> str:
    """Forgets the last policy, and returns its name; empty where none was noted. OSError where that cannot be done."""
    last = read(files, folder)
    if last:
        files.unlink(path_in(folder))
    return last
