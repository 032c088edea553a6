"""Translates a BalloonsPolicy or TopologyAwarePolicy object into the settings' section `policy`; keeps the last one.

Promises: an object is translated whole or refused whole, each fault with its path below `spec`. The kept one is read
again by the present rules, so a newer version that refuses it starts by the settings' own policy. Must not: judge what
only the machine can tell.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from nodeward.features.cpus.settings import PolicySettings
from nodeward.features.cpus.spelling import policy
from nodeward.features.settings import Settings
from nodeward.host.hostfs import HostFiles
from nodeward.host.state_file import MIB, StateFile
from nodeward.neighbours.kubernetes.policy_object import PolicyKind, PolicyObject
from nodeward.settings.load import SettingsError

log = logging.getLogger(__name__)
BESIDE: Mapping[str, str] = {
    "control": "RDT, block I/O and CPU classes are not set by Nodeward; a container's classes are the runtime's",
    "log": "Nodeward's log has one level, `nodeward node --log-level`",
    "instrumentation": "metrics are served as the settings' section metrics says",
    "agent": "topology_objects.enabled writes NodeResourceTopology objects; only podResourceAPI counts here",
}
"""Keys of every object beside the policy's own, which have no effect here, and why."""
POD_RESOURCES = "podResourceAPI"
"""The key of the section `agent` that counts: `policy.pod_resources`."""
_ABOVE = ("availableResources", "reservedResources")
_OF_KIND = {PolicyKind.BALLOONS: "balloons", PolicyKind.TOPOLOGY_AWARE: "topology-aware"}
"""The policy of each kind."""


@dataclass(frozen=True, slots=True)
class ChosenPolicy:
    """A policy that an object asks for."""

    named: PolicyObject
    policy: PolicySettings


def sections(
    spec: Mapping[str, object], kind: PolicyKind = PolicyKind.BALLOONS
) -> tuple[dict[str, object], dict[str, object]]:
    """An object's spec as the section `policy` in the words of a settings file; and the keys of BESIDE."""
    above = {key: value for key, value in spec.items() if key in _ABOVE and value not in (None, {})}
    own = {key: value for key, value in spec.items() if key not in _ABOVE and key not in BESIDE}
    name = _OF_KIND[kind]
    tree: dict[str, object] = {"active": name, **above, name: own}
    agent = spec.get("agent")
    if isinstance(agent, dict) and POD_RESOURCES in agent:
        tree["pod_resources"] = agent[POD_RESOURCES]
    return tree, {key: value for key, value in spec.items() if key in BESIDE}


def translated(found: PolicyObject) -> ChosenPolicy:
    """The policy that the object means. Raises SettingsError with every fault."""
    try:
        spec: object = msgspec.json.decode(found.spec)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError([f"spec: cannot be read: {error}"]) from error
    if not isinstance(spec, dict):
        raise SettingsError(["spec: is no mapping of settings"])
    faults = list[str]()
    tree, _ = sections(spec, found.kind)
    chosen = policy.read(*policy.respelled(tree, faults), faults)
    if faults:
        raise SettingsError([below_spec(fault) for fault in faults])
    return ChosenPolicy(found, chosen)


def below_spec(fault: str) -> str:
    """A fault of the section `policy`, with the path that the object has for it."""
    path, colon, what = fault.partition(": ")
    for above in (*(f"{policy.SECTION}.{name}" for name in _OF_KIND.values()), policy.SECTION):
        if path == above or path.startswith(f"{above}."):
            return f"spec{path.removeprefix(above)}{colon}{what}"
    return fault


def overlaid(settings: Settings, chosen: ChosenPolicy | None) -> Settings:
    """The settings with the object's policy in the place of their own."""
    return settings if chosen is None else replace(settings, policy=chosen.policy)


# ---- on disk


class Kept(msgspec.Struct, frozen=True):
    """An object, or that there is none."""

    named: PolicyObject | None = None


FILE = StateFile("policy-object.json", Kept, "policy-object", 4 * MIB)


def keeps(chosen: ChosenPolicy | None) -> Kept:
    """What the file is to hold."""
    return Kept(chosen.named if chosen is not None else None)


def kept(files: HostFiles, settings: Settings) -> ChosenPolicy | None:
    """The object that was in force last; None where there is none, or the settings want none."""
    found = FILE.known(files, settings.state_dir) if settings.policy_objects.enabled else None
    if found is None or found.named is None:
        return None
    try:
        return translated(found.named)
    except SettingsError as error:
        why, path = "; ".join(error.faults), FILE.path_in(settings.state_dir)
        log.warning("policy-object=ignored path=%s error=%s", path, why)
        return None
