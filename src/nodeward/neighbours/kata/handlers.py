"""Reads runtime handlers from container runtimes' settings files, as hints.

A file that is missing, too large or no TOML says nothing.
"""

import fnmatch
import posixpath
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress

from nodeward.core.vms import Handler, Profile
from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.kata import config_file, configs

_CONTAINERD = "/etc/containerd/config.toml"
_CRIO = "/etc/crio/crio.conf"
_NYDUS = ("/etc/nydus/config.toml", "/etc/nydus-snapshotter/config.toml")
_PODMAN = ("/usr/share/containers/containers.conf", "/etc/containers/containers.conf")
_LARGE = 1024 * 1024
_MOST_FILES = 100


def containerd(files: HostFiles) -> Iterator[tuple[str, dict[str, object]]]:
    """containerd's settings, by the files that they are in: its own, then those that `imports` names; later ones win.
    What a glob in a folder's name leads to is not followed."""
    left, seen = [_CONTAINERD], set[str]()
    while left and len(seen) < _MOST_FILES:
        path = left.pop(0)
        if path in seen:
            continue
        seen.add(path)
        settings = _toml(files, path)
        yield path, settings
        imports = settings.get("imports")
        for name in imports if isinstance(imports, list) else ():
            if isinstance(name, str):
                left += _matching(files, posixpath.normpath(posixpath.join(posixpath.dirname(path), name)))


def _matching(files: HostFiles, path: str) -> list[str]:
    folder, pattern = posixpath.split(path)
    if "*" not in pattern:
        return [path]
    with suppress(OSError, ValueError):
        return [posixpath.join(folder, name) for name in fnmatch.filter(files.listdir(folder), pattern)]
    return []


def crio(files: HostFiles) -> Iterator[tuple[str, dict[str, object]]]:
    """CRI-O's settings, by the files that they are in; later ones win."""
    for path in _with_parts(files, _CRIO):
        section = _toml(files, path).get("crio")
        if isinstance(section, dict):
            yield path, section


def nydus(files: HostFiles) -> Iterator[tuple[str, dict[str, object]]]:
    """The settings of nydus-snapshotter, where they are in a usual place."""
    for path in _NYDUS:
        yield path, _toml(files, path)


def read_handlers(files: HostFiles, profiles: Mapping[str, Profile]) -> tuple[Handler, ...]:
    """The handlers that start VMs, each with Kata's configuration; `profiles` as in the settings. May sleep."""
    settings = [found for _, found in containerd(files)]
    return configs.read(files, settings, [found for _, found in crio(files)], profiles)


def handler_names(files: HostFiles) -> frozenset[str]:
    """The runtime handlers that containerd's and CRI-O's files name, whatever they start; empty where none is named.
    May sleep."""
    return config_file.names(
        [config_file.Source(*one) for one in containerd(files)], [config_file.Source(*one) for one in crio(files)]
    )


def hook_folders(files: HostFiles) -> tuple[list[str] | None, list[str] | None]:
    """The folders of hooks.d that the settings of CRI-O and those of podman name; None where they name none at all."""
    of_crio = [settings.get("runtime") for _, settings in crio(files)]
    of_podman = [_toml(files, path).get("engine") for first in _PODMAN for path in _with_parts(files, first)]
    return _last_named(of_crio), _last_named(of_podman)


def _last_named(sections: list[object]) -> list[str] | None:
    named = [one["hooks_dir"] for one in sections if isinstance(one, dict) and "hooks_dir" in one]
    if not named:
        return None
    folders = named[-1] if isinstance(named[-1], list) else []
    return [folder.rstrip("/") or "/" for folder in folders if isinstance(folder, str) and folder.startswith("/")]


def _with_parts(files: HostFiles, path: str) -> list[str]:
    """The file, and those of the folder beside it."""
    parts: list[str] = []
    with suppress(OSError):
        parts = [f"{path}.d/{name}" for name in files.listdir(f"{path}.d")]
    return [path, *parts]


def _toml(files: HostFiles, path: str) -> dict[str, object]:
    try:
        return tomllib.loads(files.read(path, _LARGE).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
