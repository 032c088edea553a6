"""Finds out where `nodeward-oci-hook` is installed: which files name it, and whether the program they name is there.

Reads the files in the usual folders of hooks.d (oci-hooks(5)) and CDI, and the base specs that containerd's settings
name. A file that is no JSON, or too large, is left out: it is somebody else's.
"""

import json
import tomllib
from collections.abc import Iterator
from contextlib import suppress

from nodeward.aio.hostfs import HostFiles
from nodeward.model.doctor import HookFacts
from nodeward.model.settings import Settings
from nodeward.wire import hook_install

MOST_FILES = 1000
_FOLDERS = ("/etc/containers/oci/hooks.d", "/usr/share/containers/oci/hooks.d", "/etc/cdi", "/var/run/cdi")
_CONTAINERD = "/etc/containerd/config.toml"


def hook(files: HostFiles, settings: Settings) -> HookFacts:
    """The hook's socket and installations. Connects to nothing."""
    socket = f"{settings.hook.folder.rstrip('/')}/hook.sock"
    found: dict[str, set[str]] = {}
    for path in (*_in_folders(files), *_base_specs(files)):
        with suppress(OSError, ValueError, RecursionError):
            programs = set(hook_install.programs(json.loads(files.read(path, hook_install.MAX_SPEC))))
            if programs:
                found[path] = programs
    programs = {program for named in found.values() for program in named}
    missing = sorted(program for program in programs if not _is_there(files, program))
    return HookFacts(settings.hook.enabled, socket, _is_there(files, socket), tuple(found), tuple(missing))


def _in_folders(files: HostFiles) -> list[str]:
    found: list[str] = []
    for folder in _FOLDERS:
        with suppress(FileNotFoundError, NotADirectoryError):
            found += [f"{folder}/{name}" for name in sorted(files.listdir(folder)) if name.endswith(".json")]
    return found[:MOST_FILES]


def _base_specs(files: HostFiles) -> list[str]:
    """The specs that containerd's settings name, wherever the version of the settings has them."""
    try:
        tree = tomllib.loads(files.read(_CONTAINERD, hook_install.MAX_SPEC).decode())
        specs = [text for text in _values(tree, "base_runtime_spec") if text.startswith("/")]
    except (OSError, ValueError, RecursionError):
        return []
    return list(dict.fromkeys(specs))


def _values(tree: object, key: str) -> Iterator[str]:
    """The texts under this key, anywhere in the tree."""
    if isinstance(tree, dict):
        if isinstance(text := tree.get(key), str):
            yield text
        for part in tree.values():
            yield from _values(part, key)


def _is_there(files: HostFiles, path: str) -> bool:
    try:
        files.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
