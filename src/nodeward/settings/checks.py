"""What settings must be that a type cannot say."""

import dataclasses
import posixpath
import re
from collections.abc import Iterator, Mapping

from nodeward.core.annotations import CPU_REQUESTS
from nodeward.core.errors import WireError
from nodeward.core.gating import CONDITIONS, MOST_HANDLERS, listed
from nodeward.core.modes import EPC_RESOURCE, NFD_NUMBERS, Mode
from nodeward.core.setting import is_absolute, meanings
from nodeward.features.cpus.pool_settings import ClaimNames
from nodeward.features.cpus.settings import MOST_LATE_MS, Driver
from nodeward.features.keys.settings import Attestation, CapacitySource, KeyKind, Publisher, Share
from nodeward.features.limits.settings import GivenBy
from nodeward.features.sandboxes.settings import unlimited
from nodeward.features.settings import SECRETS, DumpSection, KubeSection, Settings
from nodeward.neighbours.formats.cgroup_paths import kubepods

MOST_UIDS, MOST_UID = 64, 2**32 - 1
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


def check(settings: Settings, faults: list[str]) -> None:
    """Rules that a type cannot say."""
    webhook, driver = settings.webhook, settings.cpus.driver
    faults += [f"{path}: {fault}" for path, fault in _beyond(settings)]
    if not 1 <= settings.cpus.late_ms <= MOST_LATE_MS[driver]:
        faults.append(
            f"cpus.late_ms: {settings.cpus.late_ms} is not between 1 and {MOST_LATE_MS[driver]} milliseconds with "
            f"cpus.driver {driver.value}"
        )
    try:
        kubepods(settings.cgroups.kubelet_root)
    except WireError as error:
        faults.append(f"cgroups.kubelet_root: {error.fault}")
    name, plugin = settings.nri.plugin_name, webhook.required_plugin
    if plugin and not _is_plugin(plugin):
        faults.append(f"webhook.required_plugin: {plugin!r} is no plugin's name, such as nodeward")
    for key in webhook.annotate:
        if key not in CPU_REQUESTS:
            faults.append(f"webhook.annotate: {key!r} is none of {', '.join(CPU_REQUESTS)}")
    if not _is_plugin(name):
        faults.append(f"nri.plugin_name: {name!r} may only have letters, digits and any of . _ + -, such as nodeward")
    index = settings.nri.plugin_index
    if not (len(index) == 2 and index.isascii() and index.isdigit()):
        faults.append(f"nri.plugin_index: {index!r} is not two digits, such as 90")
    if address(settings.metrics.listen) is None:
        faults.append(
            f"metrics.listen: {settings.metrics.listen!r} is no address with a port from 0 to 65535, such as "
            "127.0.0.1:9743, [::1]:9743 or :9743 for every address"
        )
    for path, uids in (("podapi.uids", settings.podapi.uids), ("gate.uids", settings.gate.uids)):
        if not 1 <= len(uids) <= MOST_UIDS or any(not 0 <= uid < MOST_UID for uid in uids):
            faults.append(f"{path}: {list(uids)} is not 1 to {MOST_UIDS} user ids from 0 to {MOST_UID - 1}")
    # root is let in all the same: by the gRPC socket
    if outside := sorted({*settings.gate.uids} - {0, *settings.podapi.uids})[:MOST_UIDS]:
        faults.append(
            f"gate.uids: {outside} are not in podapi.uids, so that the Pod API refuses their SetGate: add them to "
            "podapi.uids, or remove them here"
        )
    _check_resources(settings.limits.resources, faults)
    _check_keys(settings, faults)
    _check_relay(settings, faults)
    _check_gate(settings.gate.handlers, faults)
    if unlimited(settings.sizing.unlimited) is None:
        faults.append(
            f"sizing.unlimited: {settings.sizing.unlimited!r} is none of request, all, a number of CPUs such as '2' "
            "(in quotes), or a part of the machine such as 50%"
        )
    if settings.pins_by(Driver.NRI) and not settings.nri.enabled:
        faults.append(
            "cpus.driver: nri carries no CPUs while nri.enabled is false: set nri.enabled to true, or cpus.driver "
            "to relay"
        )
    if driver is Driver.RELAY and settings.cpus.mode is not Mode.OFF and settings.nri.enabled:
        faults.append(
            "cpus.driver: relay, and NRI tells of the same containers: set nri.enabled to false, or cpus.driver to nri"
        )
    carried = settings.nri.enabled if driver is Driver.NRI else not settings.nri.enabled
    if settings.policy_objects.enabled and not (settings.kube.enabled and carried):
        faults.append(
            "policy_objects.enabled: objects come from the API server, and the policy is carried out by NRI or the "
            "relay: set kube.enabled to true, and nri.enabled to true with cpus.driver nri, to false with relay"
        )
    if settings.topology_objects.enabled and not settings.kube.enabled:
        faults.append("topology_objects.enabled: the object is in the API server: set kube.enabled to true")
    if settings.cpus.kubevirt_label and not settings.kube.enabled:
        faults.append("cpus.kubevirt_label: the node's labels are in the API server: set kube.enabled to true")
    if not _NAMESPACE.fullmatch(settings.policy_objects.namespace):
        faults.append(f"policy_objects.namespace: {settings.policy_objects.namespace!r} is no namespace's name")
    if settings.kube.url:
        _check_url(settings.kube, faults)


def _beyond(section: object, above: str = "") -> Iterator[tuple[str, str]]:
    """The settings whose field says that they cannot be what they are, and why."""
    kind = type(section)
    assert dataclasses.is_dataclass(kind)
    told, default = dict(meanings(kind)), kind()
    for one in dataclasses.fields(kind):
        path, value = f"{above}{one.name}", getattr(section, one.name)
        if one.name in told:
            if fault := told[one.name].fault(value, getattr(default, one.name)):
                yield path, fault
            for key, row in value.items() if isinstance(value, Mapping) else ():
                if dataclasses.is_dataclass(row):
                    yield from _beyond(row, f"{path}.{key}.")
        elif dataclasses.is_dataclass(value):
            yield from _beyond(value, f"{path}.")


def _check_resources(resources: Mapping[str, str], faults: list[str]) -> None:
    first: dict[str, str] = {}
    for extended, resource in resources.items():
        if "/" not in extended or not resource.replace("_", "").isalnum():
            faults.append(f"limits.resources: {extended!r}: {resource!r} is not an extended resource and a misc name")
        other = first.setdefault(resource, extended)
        if other != extended:
            faults.append(f"limits.resources: {other!r} and {extended!r} both mean {resource}: keep one of them")


def _check_gate(handlers: Mapping[str, tuple[str, ...]], faults: list[str]) -> None:
    if len(handlers) > MOST_HANDLERS:
        faults.append(f"gate.handlers: {len(handlers)} are more than {MOST_HANDLERS}")
    for handler, words in handlers.items():
        where = f"gate.handlers.{handler}"
        if not _is_label(handler):
            faults.append(
                f"{where}: {handler!r} is no runtime handler: a RuntimeClass takes lower case letters, digits and '-'"
            )
        if not words:
            faults.append(f"{where}: names no condition; write some of {listed()}, or leave the handler out")
        faults += [f"{where}: {word!r} is no condition; one of {listed()}" for word in words if word not in CONDITIONS]


def _is_label(name: str) -> bool:
    """Whether it is a DNS label, as the API server wants of a RuntimeClass's handler."""
    inside = all(letter in "abcdefghijklmnopqrstuvwxyz0123456789-" for letter in name)
    return inside and 1 <= len(name) <= 63 and "-" not in (name[0], name[-1])


DRIVER_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


def _is_device(path: str) -> bool:
    return path.startswith("/dev/") and posixpath.normpath(path) == path


def _check_devices(settings: Settings, faults: list[str]) -> None:
    if settings.limits.devices is not GivenBy.NRI:
        return
    where = "limits.devices: is nri, and"
    if not (settings.nri.enabled or settings.relay.limits):
        faults.append(f"{where} neither nri.enabled nor relay.limits is true: nobody could give a container its device")
    if not settings.kube.enabled:
        faults.append(f"{where} kube.enabled is false: the device goes by the pod's spec in the API server")
    if EPC_RESOURCE not in settings.limits.resources:
        faults.append(f"{where} limits.resources has no sgx.intel.com/epc, by which the device is given")


def _check_claims(settings: Settings, faults: list[str]) -> None:
    dra, epc = settings.keys.dra, settings.limits.dra
    if dra.share not in ("all", "none") and not (dra.share.isascii() and dra.share.isdecimal()):
        faults.append(f"keys.dra.share: {dra.share!r} is not all, none or a number of keys")
    cpu = settings.cpus.dra
    sellers = (
        ("keys", settings.keys.mode, dra),
        ("limits", settings.limits.mode, epc),
        ("cpus", settings.cpus.mode, cpu),
    )
    for where, mode, by_claim in sellers:
        name = by_claim.driver
        if len(name) > 63 or not DRIVER_NAME.fullmatch(name):
            faults.append(
                f"{where}.dra.driver: {name!r} is no DNS name of up to 63 small letters, digits, dots, dashes"
            )
        if by_claim.mode is not Mode.OFF and not settings.kube.enabled:
            faults.append(f"{where}.dra.mode: claims are in the API server: set kube.enabled to true")
        if by_claim.mode is Mode.ENFORCE and mode is not Mode.ENFORCE:
            faults.append(f"{where}.dra.mode: is enforce, and {where}.mode is {mode.value}: set that to enforce too")
    if len(dict.fromkeys((dra.driver, epc.driver, cpu.driver))) < 3:
        faults.append("keys.dra.driver, limits.dra.driver and cpus.dra.driver: each needs a name of its own")
    is_theirs = settings.policy.claims.names is ClaimNames.DRA_DRIVER_CPU
    if settings.policy.active == "claims" and is_theirs and cpu.driver != "dra.cpu":
        faults.append(
            f"cpus.dra.driver: is {cpu.driver!r}, and policy.claims.names is dra-driver-cpu: set it to dra.cpu"
        )
    if settings.policy.active == "claims" and cpu.mode is not Mode.ENFORCE and settings.cpus.mode is Mode.ENFORCE:
        faults.append("policy.active: is claims, and cpus.dra.mode is not enforce: set that to enforce too")
    _check_devices(settings, faults)
    if settings.limits.node_epc and not settings.kube.enabled:
        faults.append("limits.node_epc: the node's status is in the API server: set kube.enabled to true")
    if settings.limits.node_epc and epc.mode is Mode.ENFORCE:
        faults.append(
            "limits.node_epc: limits.dra.mode is enforce, so EPC goes by claim; sold both ways it is sold twice"
        )
    for path in epc.devices:
        if not _is_device(path):
            faults.append(
                f"limits.dra.devices: {path!r} is not the absolute path of a device node, such as /dev/sgx_enclave"
            )


def _check_keys(settings: Settings, faults: list[str]) -> None:
    _check_claims(settings, faults)
    first: dict[str, str] = {}
    for key, row in settings.keys.kinds.items():
        where = f"keys.kinds.{key}"
        if not (key.isascii() and key.replace("_", "").isalnum()):
            faults.append(f"{where}: {key!r} is no name of the misc controller, such as tdx or sev_es")
        _check_publisher(where, row, settings.keys.dra.mode, faults)
        _check_share(where, row, settings.kube.enabled, faults)
        for name in row.resources:
            other = first.setdefault(name, where)
            if "/" not in name:
                faults.append(f"{where}.resources: {name!r} is no extended resource, such as devices.kubevirt.io/tdx")
            elif other != where:
                faults.append(f"{where}.resources: {name!r} stands in {other} too: it can promise only one thing")
            elif settings.keys.mode is not Mode.OFF and settings.limits.resources.get(name, key) != key:
                faults.append(
                    f"{where}.resources: {name!r} is {settings.limits.resources[name]} in limits.resources: it can "
                    "promise only one thing"
                )


MOST_DEVICES = 16
"""Of a container with a key; a VM needs one or two."""
OTHERS_DOMAINS = ("intel.com", "amd.com", "kubernetes.io", "katacontainers.io")
"""Extended resources below these are other people's: NFD's rules and Kata's charts put theirs on the node."""


def _check_publisher(where: str, row: KeyKind, by_claim: Mode, faults: list[str]) -> None:
    if row.capacity_from is CapacitySource.FIXED and row.capacity < 1:
        faults.append(f"{where}.capacity: is {row.capacity}, and capacity_from fixed needs how many keys there are")
    if row.split < 0 or (row.share is Share.SPLIT and row.split < 1):
        faults.append(f"{where}.split: is {row.split}, must be how many keys are ours, at least 1")
    elif row.capacity and row.share is Share.SPLIT and row.split > row.capacity:
        faults.append(f"{where}.split: {row.split} keys of {row.capacity} (capacity) cannot be ours")
    socket = row.attestation_socket
    if (socket or row.attestation is not Attestation.OFF) and not is_absolute(socket):
        faults.append(f"{where}.attestation_socket: {socket!r} is not an absolute path without '..'")
    for path in row.devices:
        if not _is_device(path):
            faults.append(f"{where}.devices: {path!r} is not the absolute path of a device node, such as /dev/sev")
    if len(row.devices) > MOST_DEVICES or len(dict.fromkeys(row.devices)) < len(row.devices):
        faults.append(f"{where}.devices: names one twice, or more than {MOST_DEVICES}; name each once")
    if row.publisher is Publisher.NONE:
        if row.devices and by_claim is Mode.OFF:
            faults.append(f"{where}.devices: our device plugin gives them out, or our claims, and neither is on")
        return
    if row.publish not in row.resources:
        faults.append(f"{where}.publish: {row.publish!r} is none of {where}.resources; name the one we are to publish")
    domain = row.publish.partition("/")[0]
    if any(domain == other or domain.endswith(f".{other}") for other in OTHERS_DOMAINS):
        faults.append(
            f"{where}.publish: {row.publish!r} is a name of NFD's, Kata's or Kubernetes' own: a device plugin never "
            "takes it over, since pods that ask for it by their overhead would end with kubelet's next start"
        )


def _check_share(where: str, row: KeyKind, kube: bool, faults: list[str]) -> None:
    """What NFD and the API server must be there for."""
    key = where.rpartition(".")[2]
    by_nfd, by_share = row.capacity_from is CapacitySource.NFD, row.share not in (Share.OWN, Share.AUTO)
    for field, asked in (("share", by_share), ("capacity_from", by_nfd)):
        if asked and key not in NFD_NUMBERS:
            faults.append(f"{where}.{field}: NFD has no number for {key}, only for {', '.join(NFD_NUMBERS)}")
    if not kube and (by_nfd or by_share):
        field = "capacity_from" if by_nfd else "share"
        faults.append(f"{where}.{field}: needs the API server, where NFD's objects are: set kube.enabled to true")


def _check_relay(settings: Settings, faults: list[str]) -> None:
    relay, dump = settings.relay, settings.dump
    if bool(relay.image) != bool(relay.image_listen):
        faults.append("relay.image: a separate image service needs both relay.image and relay.image_listen")
    if relay.limits and settings.nri.enabled:
        faults.append("relay.limits: NRI drives limits too, and one has to: set nri.enabled or relay.limits to false")
    if dump == DumpSection():
        return
    from nodeward.neighbours.cri import dump_rules  # only where a dump is chosen

    try:
        dump_rules.parse(dump.rules)
    except WireError as error:
        faults.append(f"dump.rules: {error}")
    for name in dump.show:
        if name not in SECRETS:
            faults.append(f"dump.show: {name!r} is none of {', '.join(SECRETS)}")


def _check_url(section: KubeSection, faults: list[str]) -> None:
    from nodeward.neighbours.kubernetes.auth import (
        endpoint_of,  # what the daemon itself would say, loaded only where it is asked
    )
    from nodeward.neighbours.kubernetes.errors import KubeConfigError

    try:
        endpoint_of(section, {})
    except KubeConfigError as error:
        faults.append(f"kube.url: {str(error).removeprefix('kube.url ')}")


def _is_plugin(name: str) -> bool:
    """Whether a runtime takes this as a plugin's name."""
    return bool(name) and all(letter in "._+-" or (letter.isascii() and letter.isalnum()) for letter in name)


def address(listen: str) -> tuple[str, int] | None:
    """Host and port of a `HOST:PORT`; the host is empty for every address. None if it is none."""
    host, colon, port = listen.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (colon and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        return None
    if (":" in bare and bare == host) or bare != bare.strip() or not bare.isascii():
        return None
    return bare, int(port)
