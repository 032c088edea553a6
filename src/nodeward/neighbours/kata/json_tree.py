"""Checks JSON files strictly: collects every fault, each with its path.

Must not: repeat a value in a fault, which may be a secret. Pure.
"""

import json
import re
from collections.abc import Collection, Mapping

from nodeward.core.errors import WireError

Table = Mapping[str, object]
_MOST_FAULTS = 100
_MOST_SHOWN = 64
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET = re.compile(
    r"secret|passw|pwd|passphrase|token|credential|private|cookie|bearer|keyfile|(?:crypt|api|access)\w*key"
    r"|_(?:auth(?!ors?_)|(?:[dkm]ek|psk|jwt|otp|creds?)_)"
    r"|(?<!by)(?<!com)pass_"
    r"|(?<!don|hoc|joc|mon|tur|his)keys?_(?!(?:algorithm|bits|id|length|size|slot|type)_)"
)
"""Of a name in small letters, with `_` before and after each of its words."""
_SECRET_VALUE = re.compile(r"sealed\.|[a-z][a-z0-9+.-]*://[^/]*@|(?:Bearer|Basic) |-----BEGIN |eyJ[\w-]+\.eyJ", re.I)
_PARTS = re.compile(r"[,;&]")


def is_secret(name: str, value: str = "") -> bool:
    """Whether a value looks like one that must not lie in a file in the clear: by the words of its name, in any case
    and spelling, or by its shape; also where it is only a part, as in `vers=3,password=x`."""
    if _SECRET.search(f"_{'_'.join(_WORDS.findall(name)).lower()}_") or _SECRET_VALUE.match(value):
        return True
    return any(is_secret(*part.partition("=")[::2]) for part in _PARTS.split(value)[1:])


def parse(what: str, data: bytes, most: int) -> tuple[object, tuple[str, ...]]:
    """The value, and each name that one object has twice. WireError for what no reader takes for JSON."""
    if len(data) > most:
        raise WireError(what, f"{len(data)} bytes: at most {most} are read; this is no such file")
    twice = list[str]()

    def table(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice.extend(shown(name) for name in found if names.count(name) > 1)
        return found

    try:
        tree: object = json.loads(data.decode("utf-8"), object_pairs_hook=table, parse_constant=_no_constant)
        json.dumps(tree, ensure_ascii=False).encode("utf-8")  # half a surrogate pair is no text
    except json.JSONDecodeError as error:
        raise WireError(what, f"no JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (UnicodeError, ValueError, RecursionError) as error:
        raise WireError(what, f"no JSON: {type(error).__name__}; write it again as UTF-8 JSON") from None
    return tree, tuple(twice[:_MOST_FAULTS])


def _no_constant(name: str) -> object:
    raise ValueError(name)


def shown(name: str) -> str:
    """A field's name for a fault: printable, and not long."""
    return "".join(one if one.isprintable() else "?" for one in name[:_MOST_SHOWN])


class Reading:
    """Takes values out of a tree. What is missing or wrong is a fault; then the value is empty."""

    def __init__(self) -> None:
        self.faults = list[str]()

    def fault(self, path: str, rule: str) -> None:
        """Notes one; of very many the first."""
        if len(self.faults) < _MOST_FAULTS:
            self.faults.append(f"{path}: {rule}" if path else rule)

    def table(self, value: object, path: str, known: Collection[str] = ()) -> Table:
        """An object. With `known` each other name in it is a fault."""
        if not isinstance(value, dict):
            self.fault(path, "is missing; give an object" if value is None else f"must be an object, is {_kind(value)}")
            return {}
        for name in value if known else ():
            if name not in known:
                right = next((one for one in known if one.casefold() == name.casefold()), None)
                rule = (
                    f"runtime-rs does not read it; write {right}"
                    if right
                    else "no reader knows it; remove or correct it"
                )
                self.fault(f"{path}.{shown(name)}".lstrip("."), rule)
        return value

    def rows(self, table: Table, name: str, path: str, most: int, *, needed: bool = False) -> list[object]:
        """A list of at most `most` values."""
        value = table.get(name)
        where = f"{path}.{name}".lstrip(".")
        if name not in table:
            if needed:
                self.fault(where, "is missing; give a list")
            return []
        if not isinstance(value, list):
            self.fault(where, f"must be a list, is {_kind(value)}")
            return []
        if len(value) > most:
            self.fault(where, f"has {len(value)} entries, at most {most} are read; remove some")
        return value[:most]

    def text(self, value: object, path: str, shape: re.Pattern[str] | None = None, rule: str = "") -> str:
        """A text; one that has not the shape is a fault that says `rule`, and is empty."""
        if not isinstance(value, str):
            self.fault(path, "is missing; give a text" if value is None else f"must be a text, is {_kind(value)}")
            return ""
        if shape is not None and not shape.fullmatch(value):
            self.fault(path, rule)
            return ""
        return value

    def number(self, table: Table, name: str, path: str, most: int, least: int = 0) -> int:
        """A whole number from `least` to `most`; 0 where it is not there."""
        value = table.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            said = "another number" if isinstance(value, int | float) and not isinstance(value, bool) else _kind(value)
            self.fault(f"{path}.{name}", f"must be a whole number from {least} to {most}, is {said}")
            return 0
        return value


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            return "an object"
