"""The classes that a container is created in.

What an RDT or block I/O class means is the runtime's to know. A scheduling class is of the settings of balloons.
"""

import re

from nodeward.core import annotations as keys
from nodeward.core.decision import Adjustment, SchedulingClass
from nodeward.features.cpus.policies.pools_with_rules import type_of
from nodeward.features.cpus.requested import scoped
from nodeward.features.cpus.settings import PolicySettings
from nodeward.features.cpus.values import Ask, Grant

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", re.ASCII)
"""Without a slash: of an RDT class the runtime makes the path of a group of resctrl."""


def classes_of(ask: Ask, grant: Grant, rules: PolicySettings) -> tuple[Adjustment, tuple[str, ...]]:
    """The classes for a container that is granted this, and what is wrong with those that its pod's annotations name,
    in sentences. A wrong one counts as none. The runtime refuses a container whose class it does not know."""
    found, faults = dict[str, str](), list[str]()
    for kind, spellings in (("rdt", keys.RDT_CLASSES), ("blockio", keys.BLOCKIO_CLASSES)):
        given = ((key, scoped(ask.annotations, key, ask.container)) for key in spellings)
        key, said = next(((key, said[0]) for key, said in given if said is not None), ("", ""))
        if _NAME.fullmatch(said):
            found[kind] = said
        elif key:
            remedy = "write 1 to 63 letters, digits and any of _ . -"
            faults.append(f"annotation {key}: {said[:64]!r} is no name of a class; {remedy}")
    scheduling = None
    if rules.active == "balloons" and grant.pool:
        scheduling, fault = _scheduling(ask, grant, rules)
        faults += [fault] if fault else []
    rdt, blockio = found.get("rdt", ""), found.get("blockio", "")
    return Adjustment(rdt_class=rdt, blockio_class=blockio, scheduling=scheduling), tuple(faults)


def _scheduling(ask: Ask, grant: Grant, rules: PolicySettings) -> tuple[SchedulingClass | None, str]:
    """By the annotation; else by the balloon's type."""
    classes = {one.name: one for one in rules.balloons.scheduling_classes}
    fault = ""
    said = scoped(ask.annotations, keys.SCHEDULING_CLASS, ask.container)
    if said is not None:
        if said[0] in classes:
            return classes[said[0]], ""
        known = ", ".join(classes) or "none"
        fault = f"annotation {keys.SCHEDULING_CLASS}: {said[0][:64]!r} is no scheduling class; classes are {known}"
    names = (one.scheduling_class for one in rules.balloons.balloon_types if one.name == type_of(grant.pool))
    return classes.get(next(names, "")), fault
