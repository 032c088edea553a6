"""What the containers of a claim get, as files by which the runtime finds it (Container Device Interface 0.6.0).

One file for each claim, whose devices have the claim's UID in their names, so that no runtime finds an old one. Kubelet
never looks whether a file is still there, and a container whose file is gone is not created: `keep` puts it back.
Must not: decide what a claim gets.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from nodeward.core.claims import ClaimUid
from nodeward.host.hostfs import HostFiles, ensure_folder

VERSION = "0.6.0"


@dataclass(frozen=True, slots=True)
class Edits:
    """What a container gets: device nodes to read and write, folders read-only, and variables."""

    nodes: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None

    def __bool__(self) -> bool:
        """Whether there is anything: a CDI device without edits is refused by runtimes."""
        return bool(self.nodes or self.folders or self.env)


class CdiFolder:
    """The files of one driver. Calls may sleep: for a lane's thread."""

    def __init__(self, files: HostFiles, path: str, driver: str) -> None:
        self._files, self._path, self._driver = files, path.rstrip("/"), driver

    def name(self, uid: str, device: str) -> str:
        """The name by which the runtime is told of a claim's device."""
        return f"{self._driver}/claim={uid}-{device}"

    def write(self, uid: str, devices: Mapping[str, Edits]) -> None:
        """The claim's file, in the place of an older one. OSError where it cannot be written."""
        every = [{"name": f"{uid}-{device}", "containerEdits": _edits(edits)} for device, edits in devices.items()]
        spec = {"cdiVersion": VERSION, "kind": f"{self._driver}/claim", "devices": every}
        ensure_folder(self._files, self._path)
        self._files.replace(self._file(uid), json.dumps(spec).encode())

    def restore(self, claims: Mapping[ClaimUid, Mapping[str, Edits]]) -> tuple[ClaimUid, ...]:
        """Writes the files of these claims that are not there; the UIDs of those that were lost."""
        there = dict.fromkeys(self._listed())
        lost = tuple(uid for uid in claims if self._file(uid).rpartition("/")[2] not in there)
        for uid in lost:
            self.write(uid, claims[uid])
        return lost

    def remove(self, uid: str) -> None:
        """Without the claim's file."""
        with suppress(FileNotFoundError):
            self._files.unlink(self._file(uid))

    def _listed(self) -> list[str]:
        try:
            return self._files.listdir(self._path)
        except FileNotFoundError:
            return []

    def _file(self, uid: str) -> str:
        return f"{self._path}/{self._driver}-{uid}.json"


def _edits(of: Edits) -> dict[str, object]:
    found: dict[str, object] = {}
    if of.nodes:
        found["deviceNodes"] = [{"path": path, "permissions": "rw"} for path in of.nodes]
    if of.folders:
        options = ["ro", "rbind", "rprivate"]
        found["mounts"] = [{"hostPath": path, "containerPath": path, "options": options} for path in of.folders]
    if of.env:
        found["env"] = [f"{name}={value}" for name, value in of.env.items()]
    return found
