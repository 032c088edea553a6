"""Which devices of a pod may be handed on to a VM runtime. Pure.

Rules:

- Each device must be of the pod's UID by kubelet's checkpoint: a name can have been reused, and PodResources has none.
- A name of DRA must be a CDI name that resolves; an id of a device plugin need not be one, and is left out then. Where
  a spec that may have it cannot be used, nothing is known, and the pod is refused.
- A device that several tell of is one: it is merged by PCI address, and handed on by one name. Devices that overlap in
  part contradict each other, and the pod is refused.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from nodeward.core.devices import CdiDevice, DeviceKind, Evidence, Judged, PodDevice, Told, kind_of
from nodeward.core.text import printable
from nodeward.core.workload import PodUid

MOST_SHOWN = 300
"""Characters of a name in a text."""
NO_CDI = "it is no CDI device"
SAYS_NUMA = "its plugin says NUMA node"
"""Where the kernel says another."""
MERGED = "handed on by another name"
_DRIVER = "the driver's specs must be in /etc/cdi or /var/run/cdi, where Kata reads"


def judged(told: Sequence[Told], uid: PodUid | None, evidence: Evidence) -> Judged:
    """The devices of the pod with this UID, None where no pod of its name is known, and whether they may go on."""
    rows = tuple(_merged(_row(one, name, evidence) for one in told for name in one.names or ("",)))
    refused = next(_refusals(told, uid, evidence), "") or next(_overlaps(rows), "")
    return Judged(uid, rows, refused)


def _row(one: Told, name: str, evidence: Evidence) -> PodDevice:
    found = evidence.devices.get(name)
    spec = found or CdiDevice("")
    name = "" if one.kind is DeviceKind.PLUGIN and found is None else name
    said = (f"{one.kind.value} {one.resource}", *((f"CDI {spec.file}",) if spec.file else ()))
    numa, left_out = spec.numa or one.numa, "" if name else NO_CDI
    if one.numa and numa != one.numa:
        said += (f"{SAYS_NUMA} {', '.join(map(str, one.numa))}",)
    return PodDevice(
        *(one.container, one.kind, one.resource, one.device, name, spec.paths, spec.pci, numa, said, left_out)
    )


def _merged(rows: Iterable[PodDevice]) -> Iterator[PodDevice]:
    """Each device once: those of one name, or of the same PCI devices, are one. A container that shares it with another
    is told of it too, but it is handed on once."""
    found: list[PodDevice] = []
    for row in rows:
        same = [at for at, one in enumerate(found) if _is_same(one, row)]
        mine = [at for at in same if found[at].container == row.container]
        if mine:
            one = found[mine[0]]
            sources = tuple(dict.fromkeys((*one.sources, *row.sources)))
            found[mine[0]] = replace(one, sources=sources, numa=one.numa or row.numa)
        else:
            found.append(replace(row, left_out=f"{MERGED}, {found[same[0]].name}") if same and row.name else row)
    yield from found


def _is_same(one: PodDevice, other: PodDevice) -> bool:
    if not one.name or not other.name:
        return (one.name, one.kind, one.resource, one.device) == (other.name, other.kind, other.resource, other.device)
    return one.name == other.name or (bool(one.pci) and one.pci == other.pci)


def _refusals(told: Sequence[Told], uid: PodUid | None, evidence: Evidence) -> Iterator[str]:
    if not told:
        return
    if uid is None:
        what = "no pod of this name is known here, so its devices cannot be told from those of an earlier one"
        yield f"{what}; pods are known where kube.enabled is true and the API server answers"
        return
    for one in told:
        what = f"{one.kind.value} {_shown(one.resource)}, {_shown(one.device)} of container {_shown(one.container)}"
        yield from _of_another(one, what, uid, evidence)
        for name in one.names:
            yield from _unresolved(one, name, what, evidence)


def _of_another(one: Told, what: str, uid: PodUid, evidence: Evidence) -> Iterator[str]:
    if one.kind is DeviceKind.PLUGIN:
        fault, holders = evidence.holders_fault, evidence.holders.get((one.resource, one.device), ())
        where = "kubelet's checkpoint of devices"
    else:
        fault, holders = evidence.claims_fault, evidence.claims.get(one.resource, ())
        where = "kubelet's checkpoint of claims"
    if fault:
        yield f"{what}: whose it is cannot be read: {fault}"
    elif uid not in holders or (one.kind is DeviceKind.PLUGIN and len(holders) > 1):
        whose = f"it is of pod UID {_shown(', '.join(holders))}" if holders else "it is of no pod"
        yield f"{what}: {whose} by {where}, and the pod of this name has UID {_shown(uid)}; a name may have been reused"


def _unresolved(one: Told, name: str, what: str, evidence: Evidence) -> Iterator[str]:
    kind = kind_of(name)
    if one.kind is DeviceKind.DRA and not kind:
        yield f"{what}: its driver names a CDI device {_shown(name)!r}, which is no VENDOR/CLASS=DEVICE"
    if not kind or name in evidence.devices:
        return
    for fault in evidence.faults:
        if fault.kind in ("", kind):
            yield f"{what}: whether it is a CDI device is unknown, for a spec cannot be used: {fault.file}: {fault.why}"
    if one.kind is DeviceKind.DRA:
        yield f"{what}: no CDI spec has a device {_shown(name)}; {_DRIVER}"


def _overlaps(rows: Sequence[PodDevice]) -> Iterator[str]:
    """Two devices that share a PCI device and are not the same."""
    given = [row for row in rows if row.name and row.pci]
    for at, one in enumerate(given):
        for other in given[:at]:
            both = [pci for pci in one.pci if pci in other.pci]
            if both and not _is_same(one, other):
                names = f"{_shown(other.name)} and {_shown(one.name)}"
                yield f"the CDI devices {names} both have PCI device {both[0]}, and are not the same device"


def _shown(text: str) -> str:
    return printable(text, MOST_SHOWN)
