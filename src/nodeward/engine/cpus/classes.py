"""The names of classes that a container is created in. What a class means is the runtime's to know."""

import re
from collections.abc import Mapping

from nodeward.engine.cpus.requested import scoped
from nodeward.model import annotations as keys
from nodeward.model.decision import Adjustment

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", re.ASCII)
"""Without a slash: of an RDT class the runtime makes the path of a group of resctrl."""


def classes_of(annotations: Mapping[str, str], container: str) -> tuple[Adjustment, tuple[str, ...]]:
    """The classes that the pod's annotations name for the container, and what is wrong with others, in sentences. A
    wrong one counts as none. The runtime refuses a container whose class it does not know."""
    found, faults = dict[str, str](), list[str]()
    for key in (keys.RDT_CLASS, keys.BLOCKIO_CLASS):
        said = scoped(annotations, key, container)
        if said is None:
            continue
        if _NAME.fullmatch(said[0]):
            found[key] = said[0]
        else:
            faults.append(f"annotation {key}: {said[0][:64]!r} is no name of a class; {_REMEDY}")
    classes = Adjustment(rdt_class=found.get(keys.RDT_CLASS, ""), blockio_class=found.get(keys.BLOCKIO_CLASS, ""))
    return classes, tuple(faults)


_REMEDY = "write 1 to 63 letters, digits and any of _ . -"
