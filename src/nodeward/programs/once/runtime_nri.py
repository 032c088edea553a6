"""Switches NRI on in the settings of containerd or CRI-O, and back.

containerd has it on by default since 2.0 and CRI-O since 1.30; a file can switch it off, and containerd 1.7 needs a
word. containerd's is set in the file that decides, and a copy of that file is kept beside it; CRI-O gets a drop-in.
All is looked at before anything is written, and a result that TOML reads otherwise than meant is not written. No
runtime is restarted. Sources: containerd's docs/NRI.md, crio.conf.d(5).
"""

import copy
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Final

from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.kata.handlers import containerd as containerd_files
from nodeward.programs.once.kubelet_endpoint import Edit, PointError, read_text
from nodeward.programs.once.kubelet_endpoint import write as write_all

CONTAINERD: Final = "/etc/containerd/config.toml"
CRIO: Final = "/etc/crio/crio.conf"
DROP_IN: Final = "99-nodeward-nri.conf"
COPY: Final = ".before-nodeward"
PLUGIN: Final = "io.containerd.nri.v1.nri"
NEW: Final = "version = 2\n"
"""A file of containerd's that is not there; 2.x reads that version too."""
_HEADER: Final = re.compile(rf"""^\s*\[\s*plugins\s*\.\s*(["']){re.escape(PLUGIN)}\1\s*\]\s*(#.*)?$""")
_ANY_HEADER: Final = re.compile(r"^\s*\[")
_DISABLE: Final = re.compile(r"^(\s*)disable\s*=.*$")
_CRIO_TEXT: Final = "# by `nodeward setup runtime`\n[crio.nri]\nenable_nri = true\n"


def prepare_containerd(files: HostFiles) -> list[Edit]:
    """What switches NRI on; nothing where it is on by word."""
    path, is_on = CONTAINERD, False
    for name, settings in containerd_files(files):
        _parsed(name, read_text(files, name) or "")  # a file that containerd cannot read is said here too
        _fit(name, settings)
        said = _nri(settings).get("disable")
        if isinstance(said, bool):
            path, is_on = name, not said
    if is_on:
        return []
    before = read_text(files, path)
    after = enabled(path, before if before is not None else NEW)
    kept = f"{path}{COPY}"
    if read_text(files, kept) is not None:
        raise PointError(f"{kept} is there already, from an earlier change; take it away, or undo that change first")
    return [*([Edit(kept, None, before, path)] if before is not None else []), Edit(path, before, after)]


def undo_containerd(files: HostFiles) -> list[Edit]:
    """What puts the file back as it was; nothing where there is no copy. PointError where it was changed since."""
    paths = [path for path, _ in containerd_files(files)]
    kept = next((path for path in paths if read_text(files, f"{path}{COPY}") is not None), "")
    if not kept:
        now = read_text(files, CONTAINERD)
        return [Edit(CONTAINERD, now, None)] if now == enabled(CONTAINERD, NEW) else []
    before, now = read_text(files, f"{kept}{COPY}") or "", read_text(files, kept)
    if now != enabled(kept, before):
        raise PointError(
            f"{kept} was changed since NRI was switched on in it; nothing was changed. Set disable = true for "
            f"{PLUGIN} by hand; {kept}{COPY} has the file as it was"
        )
    return [Edit(kept, now, before), Edit(f"{kept}{COPY}", before, None)]


def prepare_crio(files: HostFiles) -> list[Edit]:
    """A drop-in that switches NRI on. PointError where a later one switches it off."""
    folder = f"{CRIO}.d"
    try:
        later = [name for name in files.listdir(folder) if name > DROP_IN]
    except OSError:
        later = []
    for name in sorted(later):
        path = f"{folder}/{name}"
        section = _parsed(path, read_text(files, path) or "").get("crio")
        nri = section.get("nri") if isinstance(section, dict) else None
        if isinstance(nri, dict) and nri.get("enable_nri") is False:
            raise PointError(f"{path} counts more than our {DROP_IN} and switches NRI off; set enable_nri = true there")
    before = read_text(files, f"{folder}/{DROP_IN}")
    return [] if before == _CRIO_TEXT else [Edit(f"{folder}/{DROP_IN}", before, _CRIO_TEXT)]


def undo_crio(files: HostFiles) -> list[Edit]:
    """Takes the drop-in away."""
    path = f"{CRIO}.d/{DROP_IN}"
    before = read_text(files, path)
    return [] if before is None else [Edit(path, before, None)]


def write(files: HostFiles, edits: Sequence[Edit]) -> None:
    """Writes all, or none; a folder of drop-ins that is not there is made."""
    for edit in edits:
        os.makedirs(os.path.dirname(edit.path), exist_ok=True)
    write_all(files, edits)


def _fit(path: str, settings: Mapping[str, object]) -> None:
    """PointError for a file in which NRI cannot be switched on by word."""
    disabled = settings.get("disabled_plugins")
    if isinstance(disabled, list) and PLUGIN in disabled:
        raise PointError(f"{path}: disabled_plugins names {PLUGIN}, which counts more; take it out there")
    version = settings.get("version", 1)
    if settings and not (isinstance(version, int) and version > 1):
        raise PointError(
            f"{path}: has no `version = 2`, so containerd 1.7 reads it as version 1, which has no word for NRI. Begin "
            "it anew from `containerd config default`; containerd 2.0 and newer have NRI on without a word"
        )


def enabled(path: str, text: str) -> str:
    """The file of containerd's with NRI on by word. PointError where that cannot be said in it."""
    wanted = copy.deepcopy(_parsed(path, text))
    if not wanted:
        text, wanted = f"{text}{NEW}", {"version": 2}
    _fit(path, wanted)
    if not isinstance(wanted.setdefault("plugins", {}), dict) or not isinstance(_plugin(wanted), dict):
        raise PointError(f"{path}: plugins.{PLUGIN!r} is no table; mend the file by hand")
    _plugin(wanted)["disable"] = False
    lines = text.splitlines()
    head = next((place for place, line in enumerate(lines) if _HEADER.match(line)), None)
    if head is None:
        made = [*lines, "", f'[plugins."{PLUGIN}"]', "  disable = false  # by `nodeward setup runtime`"]
    else:
        rest = range(head + 1, len(lines))
        end = next((place for place in rest if _ANY_HEADER.match(lines[place])), len(lines))
        there = next((place for place in range(head + 1, end) if _DISABLE.match(lines[place])), None)
        if there is None:
            made = [*lines[: head + 1], "  disable = false", *lines[head + 1 :]]
        else:
            made = [*lines[:there], _DISABLE.sub(r"\1disable = false", lines[there]), *lines[there + 1 :]]
    after = "\n".join(made) + "\n"
    try:
        same = tomllib.loads(after) == wanted
    except tomllib.TOMLDecodeError:
        same = False
    if not same:
        raise PointError(
            f"{path}: the plugin {PLUGIN} is set in a way that is not understood; set disable = false there"
        )
    return after


def _plugin(settings: dict[str, object]) -> dict[str, object]:
    plugins = settings["plugins"]
    assert isinstance(plugins, dict)
    found: dict[str, object] = plugins.setdefault(PLUGIN, {})
    return found


def _nri(settings: Mapping[str, object]) -> Mapping[str, object]:
    plugins = settings.get("plugins")
    found = plugins.get(PLUGIN) if isinstance(plugins, dict) else None
    return found if isinstance(found, dict) else {}


def _parsed(path: str, text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise PointError(f"{path}: is no TOML: {error}; mend it first, nothing was changed") from error


def there(files: HostFiles) -> list[str]:
    """Which runtimes have settings on this machine."""
    folders = {"containerd": os.path.dirname(CONTAINERD), "crio": os.path.dirname(CRIO)}
    found = list[str]()
    for name, folder in folders.items():
        try:
            files.listdir(folder)
        except OSError:
            continue
        found.append(name)
    return found
