"""Given a record, its number of the format says what its lines look like; a change of their shapes is seen here."""

import hashlib
from dataclasses import is_dataclass
from enum import Enum
from types import UnionType
from typing import Union, get_args, get_origin, get_type_hints

from nodeward.core.decision import Decision
from nodeward.core.record import FORMAT
from nodeward.features.all import EVENTS
from nodeward.features.root import State

SHAPES = {7: "ffcca7699ead06e0"}
"""A digest of all that is recorded, by format. One entry is enough: of the newest."""

MEND = """the shapes of recorded events, decisions or state are not those of SHAPES here.
If `git log -1 -G'^FORMAT' -- src/nodeward/core/record.py` is older than the last release, raise FORMAT by one.
Then let SHAPES in tests/unit/formats/test_record_shapes.py be {%s: "%s"}."""


def shapes(*roots: object) -> str:
    """All classes that are written down where one of `roots` is, a line each, with their fields or values."""
    seen: dict[type, str] = {}
    for root in roots:
        _walk(root, seen)
    return "\n".join(sorted(seen.values()))


def _walk(kind: object, seen: dict[type, str]) -> None:
    for part in get_args(kind):
        _walk(part, seen)
    if not isinstance(kind, type) or kind in seen:
        return
    if issubclass(kind, Enum):
        seen[kind] = f"{kind.__name__} = {[one.value for one in kind]}"
    elif is_dataclass(kind) or hasattr(kind, "_fields"):
        hints = get_type_hints(kind)
        seen[kind] = f"{kind.__name__}: {[(name, _name(hint)) for name, hint in hints.items()]}"
        for hint in hints.values():
            _walk(hint, seen)


def _name(hint: object) -> str:
    """The type as written, whatever module it is from and whichever Python prints it."""
    names = [_name(part) for part in get_args(hint)]
    if isinstance(hint, UnionType) or get_origin(hint) is Union:
        return " | ".join(names)
    parts = ", ".join(names)
    plain: object = getattr(hint, "__name__", None) or getattr(hint, "_name", None) or hint
    return f"{plain}[{parts}]" if parts else str(plain)


def test_the_number_of_the_format_is_raised_when_shapes_change() -> None:
    text = shapes(*EVENTS.values(), Decision, State)
    now = hashlib.sha256(text.encode()).hexdigest()[:16]
    assert {FORMAT: now} == SHAPES, MEND % (FORMAT, now)
