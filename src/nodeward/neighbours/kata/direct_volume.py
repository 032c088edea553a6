"""Kata's `mountInfo.json`: a block device that the VM mounts itself, in place of a folder shared with the host.

A CSI driver writes it before the sandbox starts; the shim reads it for each mount whose source is the volume's path.
Sources: kata-containers `src/runtime/pkg/direct-volume/utils.go` and `src/libs/kata-types/src/mount.rs`. Go takes any
JSON of the right types; runtime-rs needs each of the three texts by its exact name. What passes here passes both.

The file lies in the clear, so secrets are never written, and withheld when read.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from nodeward.core.errors import WireError
from nodeward.neighbours.kata.json_tree import Reading, is_secret, parse, shown

FORMAT: Final = "mountInfo.json"
FILE: Final = "mountInfo.json"
MAX_BYTES: Final = 64 * 1024
MOST_PATH: Final = 189
"""Bytes of a volume's path: the name of its folder is base64, and Linux takes 255 bytes."""
TYPES: Final = ("block", "directvol", "vfiovol", "spdkvol", "spoolvol")
"""`block` for Kata Go and runtime-rs, the others for runtime-rs."""
FS_GROUP, FS_GROUP_POLICY = "fsGroup", "fsGroupChangePolicy"
KNOWN_METADATA: Final = (FS_GROUP, FS_GROUP_POLICY, "createFilesystem")
"""The keys whose values are shown; those of others mean what their driver wants."""
SECRET_RULE: Final = (
    "looks like a secret, and this file is readable on the host: remove it; the guest can fetch a key itself"
)
_FIELDS = ("volume-type", "device", "fstype", "metadata", "options")
_MOST = 64
_PATH = re.compile(r"/[^\0\n]{1,4095}")
_FS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
_TEXT = re.compile(r"[^\0\n]{1,4096}")
_GID = re.compile(r"[0-9]{1,10}")
_MOST_GID = 2**32 - 1


@dataclass(frozen=True, slots=True)
class MountInfo:
    """What the guest mounts."""

    device: str
    fs_type: str
    volume_type: str = "block"
    metadata: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MountInfoRead:
    """A file as read. `info` is None where it is no object; a value with a fault is empty in it."""

    info: MountInfo | None
    faults: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    """Paths of values that are not shown."""


def folder_of(path: str) -> str:
    """The name of the folder of a volume's path. WireError for a path that cannot have one."""
    if not path.startswith("/") or "\0" in path or path != "/" + "/".join(_parts(path)) or ".." in _parts(path):
        raise WireError(
            "volume path", f"{shown(path)!r} is no clean absolute path; give the mount's source as the container has it"
        )
    try:
        data = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise WireError("volume path", "is no Unicode; give the mount's source as the container has it") from None
    if len(data) > MOST_PATH:
        raise WireError(
            "volume path", f"{len(data)} bytes; with more than {MOST_PATH} its folder's name is too long for Linux"
        )
    return base64.urlsafe_b64encode(data).decode("ascii")


def path_of(folder: str) -> str:
    """The volume's path of a folder's name. WireError for a name that Kata never looks for."""
    try:
        path = base64.b64decode(folder, b"-_", validate=True).decode("utf-8")
        if folder_of(path) == folder:
            return path
    except (binascii.Error, ValueError, WireError):
        pass
    raise WireError(
        "folder of a volume",
        f"{shown(folder)!r} is no URL-safe base64 with padding of a clean path, so Kata never finds it: remove it",
    )


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def read(data: bytes) -> MountInfoRead:
    """The file, with every fault. WireError where it is no JSON."""
    tree, twice = parse(FORMAT, data, MAX_BYTES)
    return _checked(tree, twice)


def encode(info: MountInfo) -> bytes:
    """The file's content. WireError with every fault; nothing that looks like a secret is written."""
    tree = {
        "volume-type": info.volume_type,
        "device": info.device,
        "fstype": info.fs_type,
        "metadata": dict(info.metadata),
        "options": list(info.options),
    }
    if faults := _checked(tree, ()).faults:
        raise WireError(FORMAT, "\n".join(faults))
    return json.dumps(tree, ensure_ascii=False, indent=2).encode("utf-8") + b"\n"


def _checked(tree: object, twice: tuple[str, ...]) -> MountInfoRead:
    reading, withheld = Reading(), list[str]()
    for name in twice:
        reading.fault(name, "is there twice; Go takes the last and runtime-rs none: keep one")
    table = reading.table(tree, "", _FIELDS)
    if not isinstance(tree, dict):
        return MountInfoRead(None, tuple(reading.faults))
    kind = reading.text(table.get("volume-type"), "volume-type")
    if kind and kind not in TYPES:
        reading.fault("volume-type", f"Kata knows {', '.join(TYPES)}; write block for a block device")
        kind = ""
    device = reading.text(table.get("device"), "device", _PATH, "must be an absolute path, such as /dev/sdb")
    fs = reading.text(table.get("fstype"), "fstype", _FS, "must be the name of a file system, such as ext4")
    metadata = _metadata(reading, withheld, table)
    options = list[str]()
    for number, value in enumerate(reading.rows(table, "options", "", _MOST)):
        path = f"options[{number}]"
        option = reading.text(value, path, _TEXT, "must be a text of 1 to 4096 characters in one line")
        name, _, its = option.partition("=")
        if is_secret(name, its):
            reading.fault(path, SECRET_RULE)
            withheld.append(path)
        elif option:
            options.append(option)
    return MountInfoRead(MountInfo(device, fs, kind, metadata, tuple(options)), tuple(reading.faults), tuple(withheld))


def _metadata(reading: Reading, withheld: list[str], table: Mapping[str, object]) -> dict[str, str]:
    """The values of known keys; each other is withheld, and one that looks like a secret is a fault."""
    kept = dict[str, str]()
    found = reading.table(table.get("metadata", {}), "metadata")
    if len(found) > _MOST:
        reading.fault("metadata", f"has {len(found)} keys, at most {_MOST} are read; remove some")
    for name, value in list(found.items())[:_MOST]:
        path = f"metadata.{shown(name)}"
        text = reading.text(value, path, _TEXT, "must be a text of 1 to 4096 characters in one line")
        if is_secret(name, text):
            reading.fault(path, SECRET_RULE)
        if name in KNOWN_METADATA:
            kept[name] = text
        else:
            withheld.append(path)
    group, policy = kept.get(FS_GROUP), kept.get(FS_GROUP_POLICY)
    if group and not (_GID.fullmatch(group) and int(group) <= _MOST_GID):
        reading.fault(f"metadata.{FS_GROUP}", f"must be a group's number as text, 0 to {_MOST_GID}")
    if policy and policy not in ("Always", "OnRootMismatch"):
        reading.fault(f"metadata.{FS_GROUP_POLICY}", "must be Always or OnRootMismatch")
    if policy and group is None:
        reading.fault(f"metadata.{FS_GROUP_POLICY}", f"has no effect without {FS_GROUP}; add it, or remove this")
    return kept
