"""Kubelet's checkpoint of devices: which pod has which ids of a device plugin, and which ids are registered.

The file is kubelet's own (features/keys, L4) and has no version: unknown fields are passed over, null and absent
are the same, and ids may be a list (kubelet 1.19 and older) or a table by NUMA node.

Promises: only what concerns the asked-for resources is kept. `AllocResp`, the plugin's answer with environment and
mounts, goes into the checksum as bytes and is never looked into. Every input is bounded, and whatever is wrong with it
is a WireError that names the place.

`Checksum` is FNV-1a of how Go prints kubelet's own types (k8s.io/kubernetes, pkg/util/hash and the types in
pkg/kubelet/cm/devicemanager/checkpoint); tried with what the code of 1.20 to 1.37 writes, and with the form of 1.19
(tests/corpus). A kubelet with other types would be refused here, as these kubelets would refuse its file.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from msgspec import Struct, field
from msgspec.json import Decoder

from nodeward.core.errors import WireError
from nodeward.neighbours.formats.kube_objects import decode_bounded

PLACE = "device-plugins/kubelet_internal_checkpoint"
"""Below kubelet's folder."""
MAX_BYTES = 16 * 1024 * 1024
MAX_IDS = 65536
"""Of the asked-for resources, registered or held."""
MAX_CHECKED_BYTES = 1024 * 1024
"""A larger file is told by its JSON only, since its checksum would take seconds; kubelet replaces it whole."""
MAX_ID_LENGTH = 253
MAX_UID_LENGTH = 128

_FNV_START, _FNV_PRIME = 2166136261, 16777619
_PIECE = 4096
_Ids = tuple[str, ...]
_K = TypeVar("_K", int, str)


class Entry(Struct, frozen=True):
    """The ids of one resource in one container."""

    pod_uid: str = field(name="PodUID", default="")
    container: str = field(name="ContainerName", default="")
    resource: str = field(name="ResourceName", default="")
    ids: dict[int, _Ids | None] | _Ids | None = field(name="DeviceIDs", default=None)
    answer: bytes | None = field(name="AllocResp", default=None)


class Data(Struct, frozen=True):
    """What kubelet's checksum is of."""

    entries: tuple[Entry, ...] | None = field(name="PodDeviceEntries", default=None)
    registered: dict[str, _Ids | None] | None = field(name="RegisteredDevices", default=None)


class File(Struct, frozen=True):
    """The whole file, as far as it is read."""

    data: Data = field(name="Data")
    checksum: int = field(name="Checksum")


class Checkpoint(NamedTuple):
    """What kubelet says. `pods`: UID to resource to ids, each id once; `registered`: the healthy ids of each resource
    that has had a plugin. Ids are in natural order."""

    pods: Mapping[str, Mapping[str, tuple[str, ...]]]
    registered: Mapping[str, tuple[str, ...]]


_DECODER = Decoder(File)
Pieces = Callable[[Iterator[bytes]], Iterable[bytes]]
"""Passes on what it is given, and may rest in between."""


def decode(data: bytes, resources: Iterable[str], pieces: Pieces = iter) -> Checkpoint:
    """What the file says of these resources; WireError for a torn, foreign or too large one. `pieces` is handed to
    `checksum`."""
    wanted = dict.fromkeys(resources)
    file = decode_bounded(_DECODER, data, "kubelet's checkpoint of devices", MAX_BYTES)
    found = file.data
    pods: dict[str, dict[str, dict[str, None]]] = {}
    count = 0
    for number, entry in enumerate(found.entries or ()):
        if entry.resource not in wanted:
            continue
        where = f"Data.PodDeviceEntries[{number}]"
        if not _is_name(entry.pod_uid, MAX_UID_LENGTH):
            raise WireError("kubelet checkpoint", f"{where}.PodUID is no pod's UID")
        ids = tuple(_checked(_flat(entry.ids), f"{where}.DeviceIDs"))
        count += len(ids)
        if ids:
            pods.setdefault(entry.pod_uid, {}).setdefault(entry.resource, {}).update(dict.fromkeys(ids))
    registered = {
        name: _ordered(_checked(ids or (), f"Data.RegisteredDevices[{name}]"))
        for name, ids in (found.registered or {}).items()
        if name in wanted
    }
    count += sum(map(len, registered.values()))
    if count > MAX_IDS:
        raise WireError("kubelet checkpoint", f"{count} ids of these resources: at most {MAX_IDS} are read")
    _check(file, len(data), pieces)
    return Checkpoint(
        {uid: {name: _ordered(ids) for name, ids in held.items()} for uid, held in pods.items()}, registered
    )


def holders(data: bytes, pieces: Pieces = iter) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """The UIDs of the pods that have it, each once, by resource and id, of all resources; WireError as for `decode`."""
    file = decode_bounded(_DECODER, data, "kubelet's checkpoint of devices", MAX_BYTES)
    found: dict[tuple[str, str], dict[str, None]] = {}
    for number, entry in enumerate(file.data.entries or ()):
        for one in _checked(_flat(entry.ids), f"Data.PodDeviceEntries[{number}].DeviceIDs"):
            found.setdefault((entry.resource, one), {})[entry.pod_uid] = None
        if len(found) > MAX_IDS:
            raise WireError("kubelet checkpoint", f"more than {MAX_IDS} ids, which is the most that are read")
    _check(file, len(data), pieces)
    return {held: tuple(uids) for held, uids in found.items()}


def _check(file: File, size: int, pieces: Pieces) -> None:
    if size <= MAX_CHECKED_BYTES and file.checksum != checksum(file.data, pieces):
        raise WireError("kubelet checkpoint", "Checksum is not that of Data: torn, or written by an unknown kubelet")


def checksum(data: Data, pieces: Pieces = iter) -> int:
    """Kubelet's checksum of it. With 500 pods it takes 10 to 20 ms, which others may need the interpreter for: a piece
    takes some 0.3 ms."""
    found, text = _FNV_START, _printed(data).encode()
    for piece in pieces(text[at : at + _PIECE] for at in range(0, len(text), _PIECE)):
        for byte in piece:
            found = (found ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return found


def _printed(data: Data) -> str:
    """As Go prints it, with the names of types and fields, and the keys of tables in order."""
    entries = None if data.entries is None else map(_printed_entry, data.entries)
    registered = "<nil>" if data.registered is None else _map(data.registered)
    return (
        f"(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){_slice(entries)} "
        f"RegisteredDevices:(map[string][]string){registered}}}"
    )


def _printed_entry(entry: Entry) -> str:
    if isinstance(entry.ids, tuple):
        ids = f"([]string){_slice(entry.ids)}"
    else:
        ids = f"(checkpoint.DevicesPerNUMA){'<nil>' if entry.ids is None else _map(entry.ids)}"
    answer = None if entry.answer is None else map(str, entry.answer)
    return (
        f"{{PodUID:(string){entry.pod_uid} ContainerName:(string){entry.container} "
        f"ResourceName:(string){entry.resource} DeviceIDs:{ids} AllocResp:([]uint8){_slice(answer)}}}"
    )


def _map(table: Mapping[_K, _Ids | None]) -> str:
    return f"map[{' '.join(f'{key}:{_slice(table[key])}' for key in sorted(table))}]"


def _slice(items: Iterable[str] | None) -> str:
    return "<nil>" if items is None else f"[{' '.join(items)}]"


def _flat(ids: Mapping[int, _Ids | None] | _Ids | None) -> Iterator[str]:
    for one in ids.values() if isinstance(ids, Mapping) else (ids,):
        yield from one or ()


def _checked(ids: Iterable[str], where: str) -> Iterator[str]:
    """The ids; a person reads them on a terminal, so they are short and printable."""
    for number, one in enumerate(ids):
        if not _is_name(one, MAX_ID_LENGTH):
            raise WireError("kubelet checkpoint", f"{where}: id {number} is empty, too long or not printable")
        yield one


def _is_name(text: str, longest: int) -> bool:
    return 0 < len(text) <= longest and text.isprintable()


def _ordered(ids: Iterable[str]) -> tuple[str, ...]:
    """Each id once, `tdx2` before `tdx10`."""
    return tuple(sorted(dict.fromkeys(ids), key=lambda one: (len(one), one)))
