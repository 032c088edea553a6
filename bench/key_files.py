"""`nodeward node` on cgroups of our own whose counters of keys are played.

    python -m bench.key_files node --config ...

No machine of ours has keys. Each read of a `misc.current` is the same system call on a real cgroup's file that is as
short (bench/sampler.py says which), and what it says is replaced by what a node would say whose first pods hold a key
each, and somebody else one. The daemon is the whole product, in the same process; its cgroups are the ones that
`cgroups.root` names.
"""

import os
from pathlib import PurePosixPath

from bench import tree
from bench.sampler import LIKE, LikeFiles
from nodeward.cli.main import main as nodeward
from nodeward.features.settings import Settings
from nodeward.host.clock import Clock
from nodeward.host.hostfs import FileInfo, HostFiles
from nodeward.programs.node import run as node
from nodeward.settings.source import SettingsSource

KEYS, WITH_KEYS = 512, 100
FOREIGN = "/machine.slice"
"""The cgroup of one more that no pod has."""
CURRENT, CAPACITY = "misc.current", "misc.capacity"


class KeyFiles(LikeFiles):
    """The operating system's files, but for what the counters say."""

    __slots__ = ("_contents", "_played")

    def __init__(self, root: str) -> None:
        super().__init__()
        held = {tree.pod_path(number): 1 for number in range(WITH_KEYS)}
        above = [str(path) for path in PurePosixPath(tree.QOS).parents if path.name]
        held |= dict.fromkeys((tree.QOS, *above), WITH_KEYS) | {FOREIGN: 1, "": WITH_KEYS + 1}
        self._contents = {f"{root}{path}/{CURRENT}": _counter(amount) for path, amount in held.items()}
        self._played: dict[int, bytes] = {}

    def open(self, path: str) -> int:
        handle = super().open(path)
        if path.endswith(f"/{CURRENT}"):
            self._played[handle] = self._contents.get(path, _counter(0))
        return handle

    def pread(self, handle: int, max_bytes: int) -> bytes:
        content = os.pread(handle, max_bytes, 0)  # as OsFiles does, in one call less: it is not what is measured
        return self._played.get(handle, content)

    def close(self, handle: int) -> None:
        self._played.pop(handle, None)
        super().close(handle)

    def read(self, path: str, max_bytes: int, *, own: bool = False) -> bytes:
        folder, _, name = path.rpartition("/")
        if name not in (CURRENT, CAPACITY):
            return super().read(path, max_bytes, own=own)
        super().read(f"{folder}/{LIKE[CURRENT]}", max_bytes)
        return _counter(KEYS) if name == CAPACITY else self._contents.get(path, _counter(0))

    def stat(self, path: str) -> FileInfo:
        folder, _, name = path.rpartition("/")
        return super().stat(f"{folder}/{LIKE[CURRENT]}" if name == CAPACITY else path)


def _counter(amount: int) -> bytes:
    return f"sgx_epc 0\ntdx {amount}\n".encode()


def main() -> None:
    """The daemon with these arguments."""
    run = node.run

    async def played(settings: Settings, files: HostFiles, clock: Clock, source: SettingsSource | None = None) -> None:
        await run(settings, KeyFiles(settings.cgroups.root), clock, source)

    node.run = played
    nodeward()


if __name__ == "__main__":
    main()
