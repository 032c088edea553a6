"""The guest's first file tree: busybox, the few modules that reach the host's files and network, ours, and `init`.

Modules are put in the order of their dependencies, which each carries in its own .modinfo section; one that is not
there as a file is taken to be built into the kernel. The archive is cpio "newc"
(Documentation/driver-api/early-userspace/ buffer-format.rst), written here so that no further tool is needed, and has
no times: the same input gives the same bytes.
"""

import gzip
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_WANTED: Final = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_net")
_OURS: Final = ("98-miscnames.ko", "99-fakemisc.ko")
_FOLDERS: Final = ("bin", "dev", "lower", "modules", "proc", "sys", "tree", "upper")
_FOLDER_MODE: Final = 0o040755
_PROGRAM_MODE: Final = 0o100755


def initramfs(busybox: Path, init: Path, modules: tuple[Path, Path] | None = None) -> bytes:
    """The gzipped archive. `modules` are the kernel's folder, and that where those of the tests were built; None for a
    kernel that has all it needs compiled in."""
    files = {"bin/busybox": busybox.read_bytes(), "init": init.read_bytes()}
    if modules is not None:
        theirs, ours = modules
        files |= {f"modules/{name}": (ours / name.split("-", 1)[1]).read_bytes() for name in _OURS}
        for number, (name, content) in enumerate(_in_order(theirs).items()):
            files[f"modules/{number:02}-{name}.ko"] = content
    return gzip.compress(_cpio(files), compresslevel=1, mtime=0)


def _in_order(modules: Path) -> Mapping[str, bytes]:
    found = {path.name.split(".ko", 1)[0].replace("-", "_"): path for path in modules.rglob("*.ko*")}
    ordered: dict[str, bytes] = {}

    def add(name: str) -> None:
        if name in ordered or name not in found:
            return
        content = _unpacked(found[name])
        for needed in _dependencies(content):
            add(needed)
        ordered[name] = content

    for name in _WANTED:
        add(name)
    return ordered


def _unpacked(module: Path) -> bytes:
    if module.suffix == ".xz":
        return lzma.decompress(module.read_bytes())
    if module.suffix == ".ko":
        return module.read_bytes()
    raise ValueError(f"{module} is packed in a way unknown here; .ko and .ko.xz are known")


def _dependencies(content: bytes) -> list[str]:
    for entry in content.split(b"\0"):
        if entry.startswith(b"depends="):
            return [name.replace("-", "_") for name in entry.removeprefix(b"depends=").decode().split(",") if name]
    return []


def _cpio(files: Mapping[str, bytes]) -> bytes:
    entries = [(name, _FOLDER_MODE, b"") for name in _FOLDERS]
    entries += [(name, _PROGRAM_MODE, content) for name, content in files.items()]
    entries.append(("TRAILER!!!", 0, b""))
    return b"".join(_entry(number, name, mode, content) for number, (name, mode, content) in enumerate(entries, 1))


def _entry(inode: int, name: str, mode: int, content: bytes) -> bytes:
    fields = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08X" % number for number in fields) + name.encode() + b"\0"
    return _padded(head) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
