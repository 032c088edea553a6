"""Findings of doctor on the cold-plug socket. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from nodeward.core.finding import Finding, Severity
from nodeward.features.sandboxes.findings import VmFacts
from nodeward.features.sandboxes.words import shown


@dataclass(frozen=True, slots=True)
class ColdPlugFacts:
    """The cold-plug socket. `listens`: None where that could not be seen; `there`: whether a file is at its path;
    `kube`: whether the settings have an API server, which tells the UIDs of pods."""

    enabled: bool = False
    socket: str = ""
    there: bool = False
    listens: bool | None = None
    kube: bool = True


OK, WARNING, ERROR = Severity.OK, Severity.WARNING, Severity.ERROR


def cold_plug(vms: VmFacts, facts: ColdPlugFacts) -> Iterator[Finding]:
    """Findings on the cold plug's socket; none where it is off and no handler names it."""
    handlers = vms.handlers or ()
    asking = [one for one in handlers if facts.socket and _path(one.pod_resources) == facts.socket]
    if facts.enabled and not facts.kube:
        what = "kube.enabled is false, so no pod's UID is known: the cold-plug socket refuses every pod with devices"
        yield Finding("cold-plug-no-api", WARNING, what, "cold_plug.enabled", "Set kube.enabled to true.")
    if facts.enabled:
        remedy = f'Set pod_resource_api_sock = "{facts.socket}" in section [runtime] (docs/pods.md).'
        for one in handlers:
            if one not in asking and not one.fault:
                what = f"cold_plug.enabled is true, and VMs boot without DRA's devices: {_says(one.pod_resources)}"
                where = f"handler {shown(one.name)}, {shown(one.config)}"
                yield Finding("cold-plug-not-asked", WARNING, what, where, remedy)
    if facts.listens is False and (asking or facts.enabled):
        outcome = "VMs do not boot" if facts.there else "VMs boot without their devices"
        names = ", ".join(shown(one.name) for one in asking)
        what = f", at which {names} asks: {outcome}" if asking else ""
        remedy = "Start nodeward node" if facts.enabled else "Remove pod_resource_api_sock from Kata's configuration"
        yield Finding(
            "cold-plug-silent",
            ERROR if asking else WARNING,
            f"nobody listens at the cold-plug socket{'' if facts.there else ', and it is not there'}{what}",
            facts.socket,
            f"{remedy}.",
        )
    elif facts.enabled and facts.listens and asking:
        names = ", ".join(shown(one.name) for one in asking)
        yield Finding("cold-plug", OK, f"answers; handlers that ask it: {names}", facts.socket)


def _path(address: str) -> str:
    return address.removeprefix("unix://").rstrip("/")


def _says(address: str) -> str:
    return f"Kata asks {shown(address)} for devices" if address else "Kata asks nobody for devices"
