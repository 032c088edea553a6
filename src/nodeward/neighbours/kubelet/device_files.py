"""Reads the host's files about pods' devices: CDI specs, device nodes, and kubelet's checkpoints.

Synchronous, for one lane's thread. Nothing fails: what cannot be read becomes a fault of the evidence. Every file and
every number of files is bounded; a spec is decoded again only when its content has changed.
"""

import errno
import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import TypeVar

from nodeward.core.devices import CdiDevice, CdiFault, Evidence, kind_of
from nodeward.core.errors import WireError
from nodeward.host.hostfs import HostFiles
from nodeward.host.pace import paced
from nodeward.neighbours.formats import kubelet_claims
from nodeward.neighbours.kubelet import cdi_spec, checkpoint_file

FOLDERS = ("/etc/cdi", "/run/cdi")
"""Where Kata looks for CDI specs; /var/run is a link to /run. A device of the later one stands for one of the same name
in the earlier."""
MOST_SPECS = 256
MOST_BYTES = 16 * 1024 * 1024
"""Of all specs together."""
MOST_OF_GROUP = 64
"""PCI devices of an IOMMU group."""
SMALL = 4096
_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_GROUP = re.compile(r"/dev/vfio/([0-9]{1,9})")
_CDEV = re.compile(r"/dev/vfio/devices/(vfio[0-9]{1,9})")
_SLOT = re.compile(r"^PCI_SLOT_NAME=(.*)$", re.MULTILINE)
_Nodes = Mapping[str, tuple[str, ...]]
K = TypeVar("K")
V = TypeVar("V")


class DeviceFiles:
    """The files of one node. Belongs to one thread."""

    def __init__(self, files: HostFiles, kubelet_dir: str, root: str) -> None:
        self._files = files
        self._devices = f"{kubelet_dir.rstrip('/')}/{checkpoint_file.PLACE}"
        self._claims = f"{root.rstrip('/')}/{kubelet_claims.PLACE}"
        self._known: dict[str, tuple[bytes, _Nodes | CdiFault]] = {}

    def read(self, names: Collection[str]) -> Evidence:
        """What they say now; of CDI devices only those with these names."""
        faults: list[CdiFault] = []
        nodes = self._specs(faults)
        held = partial(checkpoint_file.holders, pieces=partial(paced, each=1))
        holders, holders_fault = self._checkpoint(self._devices, checkpoint_file.MAX_BYTES, held)
        claims, claims_fault = self._checkpoint(self._claims, kubelet_claims.MAX_BYTES, kubelet_claims.pods_by_claim)
        found = {name: self._device(*nodes[name]) for name in names if name in nodes}
        return Evidence(found, tuple(faults), holders, holders_fault, claims, claims_fault)

    def _checkpoint(self, path: str, most: int, decode: Callable[[bytes], Mapping[K, V]]) -> tuple[Mapping[K, V], str]:
        try:
            return decode(self._files.read(path, most)), ""
        except WireError as error:
            return {}, f"{path}: {error.fault}"
        except OSError as error:
            return {}, f"{path}: {error.strerror or error}"

    def _specs(self, faults: list[CdiFault]) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Each CDI device's spec and device nodes. Two specs of one folder that have the same device contradict each
        other, and neither counts."""
        found: dict[str, tuple[str, tuple[str, ...]]] = {}
        read: dict[str, tuple[bytes, _Nodes | CdiFault]] = {}
        left = MOST_BYTES
        for folder in FOLDERS:
            here: dict[str, tuple[str, tuple[str, ...]]] = {}
            twice: set[str] = set()
            for path in self._listed(folder, faults):
                try:
                    data = self._files.read(path, min(cdi_spec.MAX_BYTES, left))
                except OSError as error:
                    if error.errno not in _ABSENT:  # its driver has taken it away meanwhile
                        faults.append(CdiFault(path, error.strerror or str(error)))
                    continue
                left -= len(data)
                spec = read[path] = self._spec(path, data)
                if isinstance(spec[1], CdiFault):
                    faults.append(spec[1])
                    continue
                for name, nodes in spec[1].items():
                    if name in here:
                        faults.append(CdiFault(path, f"{here[name][0]} has this device too", kind_of(name)))
                        twice.add(name)
                    here[name] = (path, nodes)
            found |= here
            for name in twice:
                del found[name]
        self._known = read
        return found

    def _listed(self, folder: str, faults: list[CdiFault]) -> list[str]:
        try:
            names = [name for name in self._files.listdir(folder) if name.endswith(cdi_spec.ENDINGS)]
        except OSError as error:
            if error.errno not in _ABSENT:
                faults.append(CdiFault(folder, error.strerror or str(error)))
            return []
        if len(names) > MOST_SPECS:
            faults.append(CdiFault(folder, f"{len(names)} specs: at most {MOST_SPECS} are read"))
        return [f"{folder}/{name}" for name in names[:MOST_SPECS]]

    def _spec(self, path: str, data: bytes) -> tuple[bytes, _Nodes | CdiFault]:
        digest = hashlib.blake2b(data).digest()
        known = self._known.get(path)
        if known is not None and known[0] == digest:
            return known
        try:
            return digest, cdi_spec.decode(data, path.endswith(".yaml"))
        except WireError as error:
            return digest, CdiFault(path, error.fault, cdi_spec.kind(data))

    def _device(self, file: str, nodes: tuple[str, ...]) -> CdiDevice:
        pci = tuple(sorted({one for path in nodes for one in self._pci(path)}))
        numa = {node for one in pci for node in self._numa(one)}
        return CdiDevice(file, nodes, pci, tuple(sorted(numa)))

    def _pci(self, path: str) -> Iterator[str]:
        """The PCI devices behind a device node of VFIO: of an IOMMU group, or of a device."""
        try:
            if group := _GROUP.fullmatch(path):
                names = self._files.listdir(f"/sys/kernel/iommu_groups/{group[1]}/devices")[:MOST_OF_GROUP]
                yield from (name for name in names if _PCI.fullmatch(name))
            elif device := _CDEV.fullmatch(path):
                told = self._files.read(f"/sys/class/vfio-dev/{device[1]}/device/uevent", SMALL).decode(
                    "ascii", "replace"
                )
                yield from (name for name in _SLOT.findall(told)[:1] if _PCI.fullmatch(name))
        except OSError:
            return  # not known

    def _numa(self, pci: str) -> Iterator[int]:
        try:
            told = self._files.read(f"/sys/bus/pci/devices/{pci}/numa_node", SMALL).strip()
        except OSError:
            return
        if told.isdigit():  # -1: the firmware does not say
            yield int(told[:9])
