"""The pods as last known, on disk, for a start while the API server is away.

Written lazily, whole and atomically; read once at the start, when every pod in it is marked as coming from disk.
The file has a version; what is not understood is ignored, never guessed.
"""

import logging
from dataclasses import replace

import msgspec

from nodeward.aio.hostfs import HostFiles
from nodeward.model.workload import PodSpec, Source

log = logging.getLogger(__name__)
MAX_BYTES = 16 * 1024 * 1024
VERSION = 1
_decoder = msgspec.json.Decoder(tuple[int, tuple[PodSpec, ...]])


def path_in(folder: str) -> str:
    """The file's path in the state folder."""
    return f"{folder.rstrip('/')}/pods.json"


def encode(pods: tuple[PodSpec, ...]) -> bytes:
    """The file's content."""
    return msgspec.json.encode((VERSION, pods))


def read(files: HostFiles, folder: str) -> tuple[PodSpec, ...]:
    """The pods on disk; none where the file is missing, damaged or of another version."""
    try:
        version, pods = _decoder.decode(files.read(path_in(folder), MAX_BYTES))
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        log.warning("last-known=ignored path=%s error=%s", path_in(folder), error)
        return ()
    if version != VERSION:
        log.warning("last-known=ignored path=%s version=%s", path_in(folder), version)
        return ()
    return tuple(replace(pod, source=Source.DISK) for pod in pods)
