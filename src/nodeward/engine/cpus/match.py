"""Whether an expression of the settings holds for a container, and what a text with `${key}` becomes for it.

As nri-plugins has them, but for tags and ids, which no container has here: settings with these keys are refused. Must
not raise for any expression that the settings' reader accepts.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase

from nodeward.engine.tables import kept
from nodeward.model.cpus import Ask
from nodeward.model.labels import PREFIXES
from nodeward.model.policy_rule import PolicySettings
from nodeward.model.pool_rule import BalloonsSettings, Expression

KEYS: Mapping[str, Callable[[Ask], str]] = {
    "name": lambda ask: ask.container,
    "namespace": lambda ask: ask.namespace,
    "qosclass": lambda ask: ask.qos.value,
    "pod/name": lambda ask: ask.pod,
    "pod/namespace": lambda ask: ask.namespace,
    "pod/qosclass": lambda ask: ask.qos.value,
    "pod/uid": lambda ask: ask.pod_uid,
}
"""The keys but for labels, and what each is of a container."""
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
_NEGATED = ("NotEqual", "NotIn", "MatchesNot", "MatchesNone", "NotExist", "NotExists")
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")


def holds(one: Expression, ask: Ask) -> bool:
    """Whether the expression is true for the container."""
    if one.operator == "AlwaysTrue":
        return True
    found = value_of(one.key, ask)
    match one.operator:
        case "Exists" | "NotExist" | "NotExists":
            is_so = found is not None
        case "Equals" | "NotEqual" | "In" | "NotIn":
            is_so = found is not None and any(value in (found, "*") for value in one.values)
        case _:
            is_so = found is not None and any(globs(value, found) for value in one.values)
    return is_so != (one.operator in _NEGATED)


def value_of(key: str, ask: Ask) -> str | None:
    """What the key is of the container; None where it has no such thing. A joint key is `:a:b`, or with other
    separators `:<between keys><between values>a<between keys>b`."""
    split = keys_of(key)
    if split is None:
        if key.startswith(PREFIXES):
            return ask.labels.get(key)  # a label may be there and empty
        return KEYS[key](ask) or None if key in KEYS else None
    between, keys = split
    values = [value_of(one, ask) or "" if not one.startswith(":") else "" for one in keys]
    return between.join(values) if any(values) else None


def keys_of(key: str) -> tuple[str, list[str]] | None:
    """What is between values, and the keys, of a joint key; None of a plain one."""
    if not key.startswith(":"):
        return None
    if len(key) > 3 and not (key[1].isalnum() or key[2].isalnum()):
        return key[2], key[3:].split(key[1])
    return ":", key[1:].split(":")


def filled(text: str, ask: Ask) -> str:
    """The text with each `${key}` replaced by the key's value."""
    return _REFERENCE.sub(lambda found: value_of(found[1], ask) or "", text)


def references(text: str) -> list[str]:
    """The keys that the text refers to."""
    return _REFERENCE.findall(text)


def labels_in(keys: Iterable[str]) -> tuple[str, ...]:
    """The labels that these keys name, joint ones too."""
    split = ((keys_of(key) or ("", [key]))[1] for key in keys)
    return tuple(dict.fromkeys(one for ones in split for one in ones if one.startswith(PREFIXES)))


@kept
def labels_of(rules: PolicySettings) -> tuple[str, ...]:
    """The labels that the settings of the active policy name, as their keys are written."""
    return labels_named(rules.balloons) if rules.active == "balloons" else ()


def labels_named(balloons: BalloonsSettings) -> tuple[str, ...]:
    """The labels that these expressions name."""
    lists = (balloons.preserve, *(one.match_expressions for one in balloons.balloon_types))
    keys = [one.key for expressions in lists for one in expressions]
    return labels_in([*keys, *(key for one in balloons.balloon_types for key in references(one.group_by))])


def are_told(labels: Iterable[str], ask: Ask) -> bool:
    """Whether it is known of each of these labels if the container has it."""
    return all(label in ask.labels for label in labels)


def globs(pattern: str, value: str) -> bool:
    """As Go's path matching: neither `*` nor `?` crosses a slash."""
    patterns, values = pattern.replace("[^", "[!").split("/"), value.split("/")
    return len(patterns) == len(values) and all(map(fnmatchcase, values, patterns))
