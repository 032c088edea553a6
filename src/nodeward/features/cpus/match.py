"""Matches an expression of the settings against a container, and expands `${key}` for it.

As nri-plugins has them, but for tags and ids, which no container has here: settings with these keys are refused. Must
not raise for any expression that the settings' reader accepts.
"""

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase

from nodeward.core.tables import kept
from nodeward.core.workload import PREFIXES
from nodeward.features.cpus.expression import keys_of, labels_named, pieces
from nodeward.features.cpus.pool_settings import Expression
from nodeward.features.cpus.settings import PolicySettings
from nodeward.features.cpus.values import Ask

_OF: Mapping[str, Callable[[Ask], str]] = {
    "name": lambda ask: ask.container,
    "namespace": lambda ask: ask.namespace,
    "qosclass": lambda ask: ask.qos.value,
    "pod/name": lambda ask: ask.pod,
    "pod/namespace": lambda ask: ask.namespace,
    "pod/qosclass": lambda ask: ask.qos.value,
    "pod/uid": lambda ask: ask.pod_uid,
}
"""What each key of `features.cpus.expression.KEYS` is of a container."""
_NEGATED = ("NotEqual", "NotIn", "MatchesNot", "MatchesNone", "NotExist", "NotExists")


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
        return _OF[key](ask) or None if key in _OF else None
    between, keys = split
    values = [value_of(one, ask) or "" if not one.startswith(":") else "" for one in keys]
    return between.join(values) if any(values) else None


def filled(text: str, ask: Ask) -> str:
    """The text with each reference replaced by the key's value; nothing for what the container does not have."""
    return "".join((value_of(piece, ask) or "") if is_key else piece for piece, is_key in pieces(text))


@kept
def labels_of(rules: PolicySettings) -> tuple[str, ...]:
    """The labels that the settings of the active policy name, as their keys are written."""
    if rules.active == "topology-aware":
        return tuple(f"{whose}{label}" for label in rules.topology_aware.affinity_labels for whose in PREFIXES)
    return labels_named(rules.balloons) if rules.active == "balloons" else ()


def are_told(labels: Iterable[str], ask: Ask) -> bool:
    """Whether it is known of each of these labels if the container has it."""
    return all(label in ask.labels for label in labels)


def globs(pattern: str, value: str) -> bool:
    """Whether the pattern matches, as Go's path matching decides: neither `*` nor `?` crosses a slash."""
    patterns, values = pattern.replace("[^", "[!").split("/"), value.split("/")
    return len(patterns) == len(values) and all(map(fnmatchcase, values, patterns))
