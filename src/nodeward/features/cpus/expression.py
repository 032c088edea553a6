"""Parses an expression of the settings: keys, operators and values."""

import re
from collections.abc import Iterable, Mapping

from nodeward.core.workload import PREFIXES
from nodeward.features.cpus.pool_settings import BalloonsSettings

KEYS = ("name", "namespace", "qosclass", "pod/name", "pod/namespace", "pod/qosclass", "pod/uid")
"""The keys but for labels."""
ONE, SOME, NO = (1, 1), (1, 256), (0, 0)
OPERATORS: Mapping[str, tuple[int, int]] = {
    "Equals": ONE,
    "NotEqual": ONE,
    "In": SOME,
    "NotIn": SOME,
    "Matches": ONE,
    "MatchesNot": ONE,
    "MatchesAny": SOME,
    "MatchesNone": SOME,
    "Exists": NO,
    "NotExist": NO,
    "NotExists": NO,
    "AlwaysTrue": NO,
}
"""The operators, with the least and the largest number of values."""
_PIECES = re.compile(r"\$\{(?P<braced>[^${}]+)\}|\$(?P<dollar>\$)|\$(?P<plain>[^${}]++)(?![{}])|(?P<text>[^$]+)")
"""Of a text with references: `${key}`; `$$` for a dollar; `$key` up to the next dollar or the end; else text."""


def keys_of(key: str) -> tuple[str, list[str]] | None:
    """The separators and keys of a joint key; None of a plain one."""
    if not key.startswith(":"):
        return None
    if len(key) > 3 and not (key[1].isalnum() or key[2].isalnum()):
        return key[2], key[3:].split(key[1])
    return ":", key[1:].split(":")


def pieces(text: str) -> list[tuple[str, bool]]:
    """The text in pieces, each with whether it is a key that is referred to. As nri-plugins' Expand reads it
    (pkg/apis/resmgr/v1alpha1/expression.go). ValueError says what is malformed."""
    found, at = list[tuple[str, bool]](), 0
    while at < len(text):
        one = _PIECES.match(text, at)
        if one is None:
            raise ValueError(
                f"{text[at:][:64]!r} is no reference to a key; write ${{pod/namespace}}, or $$ for a dollar"
            )
        key = one["braced"] or one["plain"]
        found.append((key, True) if key else (one["dollar"] or one["text"], False))
        at = one.end()
    return found


def references(text: str) -> list[str]:
    """The keys that the text refers to; none of one that is malformed."""
    try:
        return [key for key, is_key in pieces(text) if is_key]
    except ValueError:
        return []


def labels_in(keys: Iterable[str]) -> tuple[str, ...]:
    """The labels that these keys name, joint ones too."""
    split = ((keys_of(key) or ("", [key]))[1] for key in keys)
    return tuple(dict.fromkeys(one for ones in split for one in ones if one.startswith(PREFIXES)))


def labels_named(balloons: BalloonsSettings) -> tuple[str, ...]:
    """The labels that these expressions name."""
    lists = (balloons.preserve, *(one.match_expressions for one in balloons.balloon_types))
    keys = [one.key for expressions in lists for one in expressions]
    return labels_in([*keys, *(key for one in balloons.balloon_types for key in references(one.group_by))])
