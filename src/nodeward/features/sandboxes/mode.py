"""Whether `sandbox_cgroup_only` holds for a sandbox, who said so, and by whose rules its processes are placed."""

import re
from collections.abc import Mapping

from nodeward.core.annotations import KATA_ONLY
from nodeward.core.text import parse_bool
from nodeward.core.vms import Handler, Profile, VmReading
from nodeward.features.sandboxes.values import ANNOTATION, DEFAULT, DRAGONBALL, ModeSaid

OF_CONTAINERD = "io.containerd."
"""How containerd's runtime types begin."""
_RS = {"true": True, "false": False}
_MAX_SHOWN = 80


def mode(handler: Handler | None, annotation: str | None, profile: Profile | None) -> ModeSaid | None:
    """The annotation counts before the configuration with its drop-ins, and that before the runtime's default. None
    where nothing that was read tells."""
    said, fault = _by_annotation(handler, annotation, profile)
    if handler is not None and handler.hypervisor == DRAGONBALL:
        return ModeSaid(True, DRAGONBALL, fault)  # its VMM is the shim's own process
    if said is not None:
        return ModeSaid(said, ANNOTATION)
    if handler is not None and handler.only is not None:
        return ModeSaid(handler.only, handler.only_from or handler.config, fault)
    found = _default(handler, profile)
    return None if found is None else ModeSaid(found, DEFAULT, fault)


def recognised(
    name: str, profiles: Mapping[str, Profile], handler: Handler | None, reading: VmReading | None = None
) -> Profile | None:
    """The profile of the handler `name`: as the settings say, else as its configuration does, else by the cgroups that
    its processes are in. None where all of these fit several."""
    if (chosen := profiles.get(name)) is not None:
        return chosen
    if handler is not None and handler.profile is not None:
        return handler.profile
    return None if reading is None else _seen(reading)


def of_crio(handler: Handler) -> bool:
    """Whether the handler is one of CRI-O."""
    return bool(handler.runtime_type) and not handler.runtime_type.startswith(OF_CONTAINERD)


def handed_on(handler: Handler, key: str) -> bool:
    """Whether the container runtime hands Kata's annotation `key` of a pod on to this handler. containerd compares
    whole keys with patterns (path.Match of Go), but hands a shim that serves the sandbox all of them. CRI-O (1.34,
    pkg/annotations, and tried) keeps back none but those of a list of its own, in which Kata's are not."""
    if handler.serves or of_crio(handler):
        return True
    return any(re.fullmatch(_pattern(one), key) is not None for one in handler.passes if one)


def _by_annotation(handler: Handler | None, annotation: str | None, profile: Profile | None) -> tuple[bool | None, str]:
    """What the annotation says where it is obeyed, and why it is not."""
    if annotation is None:
        return None, ""
    if profile is not Profile.DOCUMENT and (handler is None or not handed_on(handler, KATA_ONLY)):
        return None, ""  # an annotation that never arrives, or of which that is not known, is no fault
    value = _RS.get(annotation.strip()) if profile is Profile.KATA_RS else parse_bool(annotation)
    if value is None:
        shown = annotation[:_MAX_SHOWN]
        return None, (
            f"annotation {KATA_ONLY} is {shown!r}, which is no truth value, so nothing obeys it: Kata refuses a new "
            "sandbox with it. Write 'true' or 'false'"
        )
    return value, ""


def _default(handler: Handler | None, profile: Profile | None) -> bool | None:
    """Of a runtime whose configuration does not say. runtime-rs reads false where the key is missing; the files that it
    ships all say true."""
    if handler is not None and handler.fault:
        return None
    match profile:
        case Profile.DOCUMENT:
            return False
        case Profile.KATA_GO if handler is not None:
            return False
        case Profile.KATA_RS if handler is not None:
            return not handler.config
    return None


def _seen(reading: VmReading) -> Profile | None:
    """By the names that only one profile gives."""
    if reading.vmm == DRAGONBALL:
        return Profile.KATA_RS
    places = [place for task in reading.tasks for place in (task.cgroup, task.cpu_cgroup)]
    places += [cgroup.path for cgroup in reading.cgroups]
    names = [part for place in places for part in place.split("/")]
    sandbox = reading.sandbox
    if f"kata-sandbox-{sandbox}" in names or "/kata" in places:
        return Profile.DOCUMENT
    if f"runtime-rs-{sandbox}.scope" in names or "kata_sandboxed_pod" in names:
        return Profile.KATA_RS
    if any(name.startswith("kata_") and name.endswith(sandbox) for name in names):
        return Profile.KATA_GO
    if any(name == sandbox or name == f"crio-{sandbox}" for name in _of_pods(places)):
        return Profile.KATA_RS
    return Profile.KATA_GO if any(name.endswith(f":{sandbox}") for name in names) else None


def _of_pods(places: list[str]) -> list[str]:
    """The names of cgroups that are not in Kata's overhead, where both runtimes use the sandbox's id."""
    return [place.rpartition("/")[2] for place in places if not place.startswith("/kata_overhead/")]


def _pattern(glob: str) -> str:
    """Go's path.Match as a regular expression, but for classes: `*` and `?` stop at a slash."""
    words = {"*": "[^/]*", "?": "[^/]"}
    return "".join(words.get(one) or re.escape(one) for one in glob)
