"""Finds out whether `nodeward-oci-hook` is installed, and whether the files that name it are right.

Reads the files in the folders of hooks.d (oci-hooks(5)) that CRI-O or podman looks into, and of CDI, and the base specs
that containerd's settings name. A file that is no JSON, or too large, is left out: it is somebody else's.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress

from nodeward.features.settings import Settings
from nodeward.host.hostfs import HostFiles, is_there
from nodeward.neighbours.hook import install
from nodeward.neighbours.kata import handlers
from nodeward.people.doctor.facts import HookFacts

MOST_FILES = 1000
_DEFAULT = "/usr/share/containers/oci/hooks.d"
"""Where CRI-O and podman look if their settings name no folder."""
_OFTEN = (_DEFAULT, "/etc/containers/oci/hooks.d")
"""Where people put hooks, whether anybody looks there or not."""
_CDI = ("/etc/cdi", "/var/run/cdi")


def hook(files: HostFiles, settings: Settings) -> HookFacts:
    """The hook's socket and installations. Connects to nothing."""
    socket = f"{settings.hook.folder.rstrip('/')}/hook.sock"
    of_crio, of_podman = handlers.hook_folders(files)
    looked_into = dict.fromkeys((*([_DEFAULT] if of_crio is None else of_crio), *(of_podman or ())))
    found = _naming(files, (*_in_folders(files, (*looked_into, *_CDI)), *_base_specs(files)))
    unread = _naming(files, _in_folders(files, (folder for folder in _OFTEN if folder not in looked_into)))
    programs = {program for named in found.values() for program in named}
    missing = sorted(program for program in programs if not is_there(files, program))
    there = is_there(files, socket)
    return HookFacts(settings.hook.enabled, socket, there, tuple(found), tuple(missing), tuple(unread))


def _naming(files: HostFiles, paths: Iterable[str]) -> dict[str, set[str]]:
    """The files that call the hook, with the programs that they name for it."""
    found: dict[str, set[str]] = {}
    for path in paths:
        with suppress(OSError, ValueError, RecursionError):
            programs = set(install.programs(json.loads(files.read(path, install.MAX_SPEC))))
            if programs:
                found[path] = programs
    return found


def _in_folders(files: HostFiles, folders: Iterable[str]) -> list[str]:
    found: list[str] = []
    for folder in folders:
        with suppress(FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a name that no path can have
            found += [f"{folder}/{name}" for name in sorted(files.listdir(folder)) if name.endswith(".json")]
    return found[:MOST_FILES]


def _base_specs(files: HostFiles) -> list[str]:
    """The specs that containerd's settings name, wherever the version of the settings has them."""
    specs: list[str] = []
    for _, tree in handlers.containerd(files):
        with suppress(RecursionError):
            specs += [text for text in _values(tree, "base_runtime_spec") if text.startswith("/")]
    return list(dict.fromkeys(specs))


def _values(tree: object, key: str) -> Iterator[str]:
    """The texts under this key, anywhere in the tree."""
    if isinstance(tree, dict):
        if isinstance(text := tree.get(key), str):
            yield text
        for part in tree.values():
            yield from _values(part, key)
