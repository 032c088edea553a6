"""What annotations say of hints: which kinds of things count, and which paths."""

import json
from collections.abc import Mapping

from nodeward.core.hints import HintKind
from nodeward.core.text import parse_bool

_WORDS: Mapping[str, tuple[HintKind, ...]] = {
    "mounts": (HintKind.MOUNT,),
    "devices": (HintKind.DEVICE,),
    "devs": (HintKind.DEVICE,),
    "pod-resources": (HintKind.POD_RESOURCE,),
    "all": tuple(HintKind),
    "enabled": tuple(HintKind),
    "none": (),
    "disabled": (),
}
HINT_WORDS = "mounts, devices, pod-resources, all, none"
MOST_PATHS = 64
PathRule = tuple[bool, tuple[str, ...]]
"""Whether the paths are globs, else beginnings; and the paths."""


def kinds_of(said: str) -> tuple[HintKind, ...] | None:
    """The kinds that the annotation `topologyhints` leaves; None for another value."""
    is_on = parse_bool(said)
    if is_on is not None:
        return tuple(HintKind) if is_on else ()
    words = [word.strip().lower() for word in said.split(",")]
    return tuple(kind for word in words for kind in _WORDS[word]) if all(word in _WORDS for word in words) else None


def path_rule(said: str | None) -> PathRule | None:
    """`{type: prefix, paths: [...]}`, or `glob`, as JSON; None for another value."""
    try:
        found = json.loads(said) if said is not None else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("type") not in ("prefix", "glob"):
        return None
    paths = found.get("paths")
    if not isinstance(paths, list) or len(paths) > MOST_PATHS or not all(isinstance(one, str) for one in paths):
        return None
    return found["type"] == "glob", tuple(paths)


def is_path_rule(said: str) -> bool:
    """Whether the annotation can be read."""
    return path_rule(said) is not None
