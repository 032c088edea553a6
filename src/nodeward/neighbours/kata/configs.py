"""Reads the runtime handlers that start VMs, each with Kata's configuration and its drop-ins.

Nothing fails here: what is missing, broken or too large becomes the handler's `fault`: file, line and remedy.
A configuration that is a symbolic link to another folder has its drop-ins beside its target for Kata; here those beside
the link are read.
"""

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nodeward.core.errors import WireError
from nodeward.core.vms import Handler, Profile
from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.kata import config_file
from nodeward.neighbours.kata.config_file import Source, Table

MAX_BYTES = 1024 * 1024
"""Kata's file has some 40 KiB, most of it comments."""
MOST_DROP_INS = 100
_ABSENT = (errno.ENOENT, errno.ENOTDIR)


class _FaultError(Exception):
    """What is wrong with a handler's configuration, as it is told."""


def read(
    files: HostFiles, containerd: Sequence[Table], crio: Sequence[Table], profiles: Mapping[str, Profile]
) -> tuple[Handler, ...]:
    """The handlers, by the settings of containerd and CRI-O and by Nodeward's own `profiles`."""
    found = config_file.handlers(containerd, crio, profiles)
    return tuple(_with_config(files, one, profiles.get(one.name)) for one in found)


def _with_config(files: HostFiles, handler: Handler, told: Profile | None) -> Handler:
    if told is Profile.DOCUMENT:
        return handler  # it has no configuration of Kata
    found, fault = sources(files, handler)
    if not found:
        return replace(handler, profile=told or handler.profile, fault=fault)
    return replace(config_file.with_kata(handler, found, told), fault=fault)


def sources(files: HostFiles, handler: Handler) -> tuple[list[Source], str]:
    """Kata's configuration of this handler and its drop-ins, as far as they can be read, and what is wrong."""
    found = list[Source]()
    try:
        main = _main(files, handler)
        found.append(main)
        for path in _drop_ins(files, main.path):
            found.append(_source(files, path, is_drop_in=True))
    except _FaultError as error:
        return found, str(error)
    return found, ""


def _main(files: HostFiles, handler: Handler) -> Source:
    tried = (handler.config,) if handler.config else config_file.defaults(handler)
    for path in tried:
        try:
            return _source(files, path)
        except FileNotFoundError:
            continue
    remedy = "install Kata's configuration there, or name its file in the runtime's configuration"
    option = "`options.ConfigPath` (CRI-O: `runtime_config_path`)"
    raise _FaultError(f"no configuration of handler {handler.name}: {', '.join(tried)} not found; {remedy}, {option}")


def _drop_ins(files: HostFiles, main: str) -> list[str]:
    """Everything in the folder `config.d` beside the file, by name: Kata asks for no ending."""
    folder = f"{main.rpartition('/')[0]}/config.d"
    try:
        names = files.listdir(folder)
    except OSError as error:
        if error.errno in _ABSENT:
            return []
        raise _FaultError(
            f"{folder}: {_why(error)}; Kata cannot start a sandbox: make it a folder it can read"
        ) from error
    if len(names) > MOST_DROP_INS:
        raise _FaultError(
            f"{folder} has {len(names)} files, more than the {MOST_DROP_INS} read here; join some of them"
        )
    return [f"{folder}/{name}" for name in names]


def _source(files: HostFiles, path: str, is_drop_in: bool = False) -> Source:
    """FileNotFoundError only for a main file; a drop-in was listed, so a missing one is a link to nothing."""
    try:
        return Source(path, config_file.parse(files.read(path, MAX_BYTES)))
    except WireError as error:
        raise _FaultError(f"{path}: {error.fault}; correct the line: Kata starts no sandbox with this file") from error
    except ValueError as error:
        raise _FaultError(f"{path}: {error}") from error
    except OSError as error:
        if error.errno in _ABSENT and not is_drop_in:
            raise FileNotFoundError(path) from error
        if error.errno == errno.EFBIG:
            raise _FaultError(
                f"{path} is larger than the {MAX_BYTES} bytes read here; it is no configuration"
            ) from error
        what = "is a link to a file that is not there" if error.errno in _ABSENT else _why(error)
        raise _FaultError(f"{path}: {what}; remove it or make it a plain file that Kata can read") from error


def _why(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "links lead round in a circle"
    return os.strerror(error.errno) if error.errno else str(error)
