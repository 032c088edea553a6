"""Which CRI methods a dump shows, and how much of them: CRI Resource Manager's rules, in both of their grammars.

The final one (its pkg/dump/flags.go, v0.9) is `[level:]method[,...]`; the historic one (pkg/dump/dump.go of 2019)
`[target:]method[,...]` with the words `reset`, `enable`, `on`, `disable`, `off` between. In both a level holds for what
follows it too, and a method is a name, `*`, or an expression where it has any of `.*?+()[]|`. An expression may match
anywhere in a name, and of several the last decides. They differ in what else decides: a name at once and `*` like an
expression in the final grammar; a name, then `*`, then expressions in the historic one.

Expressions are RE2's, as in Go, and take time in proportion to the name: none of them can stall the relay.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

import re2

from nodeward.wire.errors import WireError

FINAL_DEFAULT = "off:.*,short:((Create)|(Start)|(Run)|(Update)|(Stop)|(Remove)).*,off:.*Image.*"
HISTORIC_DEFAULT = "full:.*,off:Version,.*List.*,.*Status.*,.*Info.*,.*Log.*,.*Reopen.*"
SECRETS = ("credentials", "environment")
"""What is blanked unless it is named."""
MAX_SPEC = 64 * 1024
MAX_RULES = 1024
MAX_METHOD = 256
"""A longer method name is no method's; it is not looked at."""
_EXPRESSION = frozenset(".*?+()[]|")
_SWITCHES = {"enable": True, "on": True, "disable": False, "off": False}


class Level(IntEnum):
    """How much of a call is shown."""

    OFF = 0
    NAME = 1
    """One line, when it has ended."""
    FULL = 2
    """Both messages."""


_LEVELS = {"off": Level.OFF, "suppress": Level.OFF, "name": Level.NAME, "short": Level.NAME, "count": Level.NAME}
_LEVELS |= {"full": Level.FULL, "verbose": Level.FULL}


class Expression(Protocol):
    """A compiled expression of RE2's."""

    def search(self, text: str) -> object | None: ...


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `expression` is None for a name and for `*`."""

    method: str
    level: Level
    expression: Expression | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules of a dump, in their order. `historic`: which grammar's precedence they follow."""

    rules: tuple[Rule, ...] = ()
    historic: bool = False
    enabled: bool = True
    _known: dict[str, Level] = field(default_factory=dict, compare=False, repr=False)

    def level(self, method: str) -> Level:
        """How much of this method is shown. `method` is its bare name."""
        found = self._known.get(method)
        if found is None:
            found = self._level(method) if self.enabled and len(method) <= MAX_METHOD else Level.OFF
            if len(self._known) < MAX_RULES:
                self._known[method] = found
        return found

    def _level(self, method: str) -> Level:
        named = next((rule.level for rule in _last_first(self.rules, self.historic) if rule.method == method), None)
        if named is not None:
            return named
        if self.historic:
            for rule in reversed(self.rules):
                if rule.method == "*":
                    return rule.level
        found = Level.OFF
        for rule in self.rules:
            if rule.method == "*" or (rule.expression is not None and rule.expression.search(method)):
                found = rule.level
        return found


def _last_first(rules: tuple[Rule, ...], historic: bool) -> Iterable[Rule]:
    """In the historic grammar a rule for the same name replaces the one before it; in the final the first decides."""
    return reversed(rules) if historic else rules


def parse(spec: str) -> Rules:
    """The rules of a specification in either grammar; which one, its words tell. Raises WireError that names the rule.

    What begins with `reset`, or has a switch, is historic, and starts from the historic defaults."""
    if len(spec) > MAX_SPEC:
        raise WireError("dump", f"{len(spec)} characters of rules; at most {MAX_SPEC} are read")
    items = [item.strip() for item in spec.split(",")]
    if len(items) > MAX_RULES:
        raise WireError("dump", f"{len(items)} rules; at most {MAX_RULES} are read")
    if any(item == "reset" or item in _SWITCHES or item.startswith("count:") for item in items):
        return _parse_historic(items)
    return Rules(tuple(_rules(items)))


def _parse_historic(items: list[str]) -> Rules:
    rules = list(_rules(HISTORIC_DEFAULT.split(",")))
    enabled, level = True, Level.FULL
    for item in items:
        if item == "reset":
            rules.clear()
        elif item in _SWITCHES:
            enabled = _SWITCHES[item]
        else:
            rule = _rule(item, level)
            level = rule.level
            rules.append(rule)
    return Rules(tuple(rules), historic=True, enabled=enabled)


def _rules(items: Iterable[str]) -> Iterable[Rule]:
    level = Level.FULL
    for item in items:
        rule = _rule(item, level)
        level = rule.level
        yield rule


def _rule(item: str, before: Level) -> Rule:
    word, colon, method = item.partition(":")
    if not colon:
        word, method = "", item
    level = _LEVELS.get(word.lower()) if colon else before
    if level is None:
        raise WireError(f"dump rule {item!r}", f"{word!r} is no level; write off, short or full before the colon")
    if not method:
        raise WireError(
            f"dump rule {item!r}", "names no method; write a name, * or an expression such as .*Container.*"
        )
    if method == "*" or not _EXPRESSION.intersection(method):
        return Rule(method, level)
    try:
        return Rule(method, level, _compiled(method))
    except (re2.error, UnicodeEncodeError) as error:
        raise WireError(f"dump rule {item!r}", f"{method!r} is no expression ({_text(error)})") from error


def _compiled(expression: str) -> Expression:
    options = re2.Options()
    options.log_errors = False
    compiled: Expression = re2.compile(expression, options)
    return compiled


def _text(error: Exception) -> str:
    first = error.args[0] if error.args else error
    return first.decode("utf-8", "replace") if isinstance(first, bytes) else str(first)
