"""Keeps the last accepted settings on disk, for a start with a broken file.

Written when settings are accepted; validated again when they are read, together with the
environment and flags of that start, so what an older version wrote and this one does not know is not used.
"""

import dataclasses
import enum
import logging
from collections.abc import Mapping
from typing import Any

from nodeward.features.settings import Settings
from nodeward.host.hostfs import HostFiles
from nodeward.host.state_file import StateFile
from nodeward.settings import load as loader
from nodeward.settings.load import SettingsError

log = logging.getLogger(__name__)
FILE = StateFile("settings.json", dict[str, Any], "last-good", loader.MAX_BYTES)


def plain(settings: Settings) -> dict[str, Any]:
    """The settings as a settings file has them."""
    tree = dataclasses.asdict(settings)
    amounts = {"available": str(settings.policy.available), "reserved": str(settings.policy.reserved)}
    tree["policy"] = tree["policy"] | amounts
    return {section: _plain(value) for section, value in tree.items()}


def read(
    files: HostFiles, folder: str, environ: Mapping[str, str], flags: Mapping[str, str] | None = None
) -> Settings | None:
    """The last good settings; None where there are none that this version accepts."""
    try:
        found = FILE.known(files, folder)
        return None if found is None else loader.from_tree(found, environ, flags)
    except SettingsError as error:
        log.warning("last-good=ignored path=%s error=%s", FILE.path_in(folder), "; ".join(error.faults))
        return None


def folder_of(path: str, environ: Mapping[str, str], flags: Mapping[str, str]) -> str:
    """The state folder that settings with faults mean: what can be read of them, else the default."""
    try:
        named = loader.read_yaml(path).get("state_dir")
    except SettingsError:
        named = None
    for text in (flags.get("state_dir"), environ.get("NODEWARD_STATE_DIR"), named):
        if isinstance(text, str) and text.startswith("/") and ".." not in text.split("/"):
            return text
    return Settings().state_dir


def _plain(value: object) -> object:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(inner) for inner in value]
    return value
