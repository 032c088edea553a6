"""Which containers a container wants to be near to, or far from, by its pod's annotations (`topology-aware`).

The long form is a list by container name, `{scope, match, weight}`, each with an expression: who fits both has the
weight. The short form is a list of names in the same pod, and holds in both directions. What cannot be read is a fault,
in a sentence, and counts as nothing. Must not raise for anything that a user wrote.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nodeward.core import annotations as keys
from nodeward.features.cpus.expression import KEYS, OPERATORS, labels_in
from nodeward.features.cpus.match import are_told, holds
from nodeward.features.cpus.pool_settings import Expression
from nodeward.features.cpus.values import Ask

MOST = 16
"""Wishes of one container that count: each is asked of every container that is there."""
MOST_WEIGHT = 1000
_OF_LONG = ("scope", "match", "weight")
_EXAMPLE = '{"web": ["db"]}'


@dataclass(frozen=True, slots=True)
class Wish:
    """To be near those that fit; below 0: far from them."""

    weight: int
    match: Expression
    scope: Expression | None = None
    """None: those of the same pod."""


def is_wished(ask: Ask) -> bool:
    """Whether its pod has one of the annotations."""
    return any(key in ask.annotations for key in (*keys.AFFINITY, *keys.ANTI_AFFINITY))


def wishes(ask: Ask) -> tuple[tuple[Wish, ...], tuple[str, ...]]:
    """Those of the container, and what is wrong with them."""
    found, faults = list[Wish](), list[str]()
    for spellings, sign in ((keys.AFFINITY, 1), (keys.ANTI_AFFINITY, -1)):
        key = next((key for key in spellings if key in ask.annotations), "")
        if key:
            try:
                found += list(_of(json.loads(ask.annotations[key]), ask, sign))
            except (ValueError, RecursionError) as error:
                is_none = isinstance(error, json.JSONDecodeError | RecursionError)
                why = "it is no YAML, or too long" if is_none else str(error)
                faults.append(f"annotation {key}: {why}; write such as {_EXAMPLE}")
    if len(found) > MOST:
        faults.append(f"annotations of affinity: {ask.container} has {len(found)} wishes, of which {MOST} count")
    for one in found[:MOST]:
        named = labels_in((one.match.key, *((one.scope.key,) if one.scope is not None else ())))
        faults += (
            f"annotation of affinity: {label!r} is not read; add the label to policy.topology_aware.affinity_labels"
            for label in named
            if not are_told((label,), ask)
        )
    return tuple(found[:MOST]), tuple(dict.fromkeys(faults))


def weight(given: tuple[Wish, ...], ask: Ask, other: Ask) -> int:
    """How much the container wants to be near the other one."""
    return sum(
        one.weight
        for one in given
        if (holds(one.scope, other) if one.scope is not None else other.pod_uid == ask.pod_uid)
        and holds(one.match, other)
    )


def _of(said: object, ask: Ask, sign: int) -> Iterator[Wish]:
    if not isinstance(said, dict):
        raise ValueError("it is no table by container names")
    mine = said.get(ask.container)
    if all(_is_names(ones) for ones in said.values()):
        near = [*(mine or ()), *(name for name, ones in said.items() if ask.container in ones)]
        yield from (Wish(sign, Expression("name", "Equals", (name,))) for name in dict.fromkeys(near))
        return
    if mine is None:
        return
    if not isinstance(mine, list):
        raise ValueError(f"{ask.container} has no list")
    for i, one in enumerate(mine):
        yield _long(one, f"{ask.container}[{i}]", sign)


def _is_names(ones: object) -> bool:
    return isinstance(ones, list) and all(isinstance(one, str) for one in ones)


def _long(one: object, where: str, sign: int) -> Wish:
    if not isinstance(one, dict) or "match" not in one or any(key not in _OF_LONG for key in one):
        raise ValueError(f"{where} must have match, and may have scope and weight")
    given = one.get("weight", 1)
    if not isinstance(given, int) or isinstance(given, bool) or abs(given) > MOST_WEIGHT:
        raise ValueError(f"{where}.weight is no number from -{MOST_WEIGHT} to {MOST_WEIGHT}")
    scope = one.get("scope")
    wanted = _expression(one["match"], f"{where}.match")
    return Wish(sign * given, wanted, _expression(scope, f"{where}.scope") if scope is not None else None)


def _expression(said: object, where: str) -> Expression:
    if not isinstance(said, Mapping):
        raise ValueError(f"{where} is no expression")
    key, operator, values = said.get("key", ""), said.get("operator"), said.get("values", [])
    if not isinstance(operator, str) or operator not in OPERATORS:
        raise ValueError(f"{where}.operator is none of {', '.join(OPERATORS)}")
    least, most = OPERATORS[operator]
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        raise ValueError(f"{where}.values is no list of texts")
    if not least <= len(values) <= most:
        raise ValueError(f"{where} has {len(values)} values; {operator} takes {least if least == most else 'some'}")
    if operator != "AlwaysTrue" and not _is_known(key):
        raise ValueError(f"{where}.key is none of {', '.join(KEYS)}, labels/..., pod/labels/...")
    return Expression(str(key), operator, tuple(values))


def _is_known(key: object) -> bool:
    if not isinstance(key, str) or not key:
        return False
    return key.startswith(":") or key in KEYS or bool(labels_in((key,)))
