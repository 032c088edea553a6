"""A message of a dump, lines of YAML, as a tree of values.

Exists because a dump may come from a stranger, and YAML's own loaders believe all of it: they end the process where a
text is nested deeply enough, take minutes for `1:1:1:...`, and what an alias repeats grows tenfold a line. Promises:
WireError or a tree no deeper than `MAX_LEVEL` whose size is in proportion to the text; no alias, no key that is not
text, no tag that is believed. What is neither `true`, `false`, `null` nor a plain number stays text.
"""

import re
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Final

import yaml

from nodeward.core.errors import WireError

Value = bool | int | float | str | list["Value"] | dict[str, "Value"] | None

MAX_LEVEL: Final = 200
"""Lists and mappings within each other; what writes a dump ends at 64 messages, two each."""
PIECE: Final = 65_536
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where PyYAML has it: ten times as fast."""
_WORDS: Final = {"true": True, "false": False, "null": None, "": None, "~": None}
_WHOLE: Final = re.compile(r"-?[0-9]{1,20}")
_FLOAT: Final = re.compile(r"-?[0-9]{1,25}(?:\.[0-9]{1,25})?(?:[eE][-+]?[0-9]{1,3})?")


class _Stream:
    """The lines as YAML's reader asks for them, so that they are never together."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._pieces = _pieces(lines)

    def read(self, size: int = 0, /) -> str:
        """The next piece, whatever its size; nothing at the end."""
        return next(self._pieces, "")


def _pieces(lines: Iterable[bytes]) -> Iterator[str]:
    """The lines and their ends in pieces; what is no UTF-8 is shown as such."""
    decode = getincrementaldecoder("utf-8")("replace").decode
    for line in lines:
        for at in range(0, len(line), PIECE):
            if piece := decode(line[at : at + PIECE]):
                yield piece
        yield decode(b"\n")


def parse(lines: Iterable[bytes]) -> Value:
    """The one value of lines without their ends."""
    top: list[Value] = []
    within: list[list[Value] | dict[str, Value]] = [top]
    keys: list[str | None] = [None]
    """Of each of these that is a mapping the key whose value comes next."""
    try:
        for event in yaml.parse(_Stream(lines), Loader=_LOADER):
            if isinstance(event, yaml.CollectionEndEvent):
                within.pop()
                keys.pop()
            elif isinstance(event, yaml.NodeEvent):
                made = _begun(event)
                keys[-1] = _put(within[-1], keys[-1], made, event)
                if isinstance(made, list | dict):
                    if len(within) > MAX_LEVEL:
                        raise WireError("yaml", f"is nested more than {MAX_LEVEL} levels deep")
                    within.append(made)
                    keys.append(None)
    except yaml.YAMLError as error:
        raise WireError("yaml", " ".join(str(error).split())) from error
    if len(top) > 1:
        raise WireError("yaml", "has more than one document")
    return top[0] if top else None


def _put(into: list[Value] | dict[str, Value], key: str | None, made: Value, event: yaml.NodeEvent) -> str | None:
    """Puts it where it belongs; the key for what comes next, where this is one."""
    if isinstance(into, list):
        into.append(made)
    elif key is not None:
        into[key] = made
    elif isinstance(event, yaml.ScalarEvent):
        return event.value
    else:
        raise WireError("yaml", "has a key that is no text")
    return None


def _begun(event: yaml.NodeEvent) -> Value:
    """A value, still empty where it is a list or a mapping."""
    match event:
        case yaml.ScalarEvent():
            return _scalar(event)
        case yaml.SequenceStartEvent():
            return []
        case yaml.MappingStartEvent():
            return {}
    raise WireError("yaml", "has an alias (*name), which no dump has")


def _scalar(event: yaml.ScalarEvent) -> Value:
    text: str = event.value
    if not event.implicit[0]:  # in quotes, or with a tag
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and isfinite(number := float(text)):
        return number
    return text
