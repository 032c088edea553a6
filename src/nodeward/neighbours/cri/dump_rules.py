"""Which CRI methods a dump shows, and how much of them: CRI Resource Manager's rules, in both of their grammars.

The final one (its pkg/dump/flags.go, v0.9) is `[level:]method[,...]`; the historic one (pkg/dump/dump.go of 2019) has
the words `reset`, `enable`, `on`, `disable`, `off` between. docs/relay.md says what they mean. They differ in what
decides: a name at once and `*` like an expression in the final grammar; a name, then `*`, then expressions in the
historic one. Of several expressions the last that matches anywhere in a name decides.

Expressions are RE2's, as in Go, and take time in proportion to the name and to their programs, which are bounded one by
one and in all: none of them can stall the relay, nor all together.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

import re2

from nodeward.core.errors import WireError

FINAL_DEFAULT = "off:.*,short:((Create)|(Start)|(Run)|(Update)|(Stop)|(Remove)).*,off:.*Image.*"
HISTORIC_DEFAULT = "full:.*,off:Version,.*List.*,.*Status.*,.*Info.*,.*Log.*,.*Reopen.*"
MAX_SPEC = 64 * 1024
MAX_RULES = 1024
MAX_EXPRESSION_BYTES = 1 << 18
"""What RE2 may take for one expression; `.{999}` has room in it, a hundred times any letter has not."""
MAX_PROGRAM = 1 << 16
"""Instructions of all expressions together, as RE2 compiles them; those of a usual one are some dozens."""
MAX_METHOD = 256
"""A longer method name is no method's; it is not looked at."""
_EXPRESSION = frozenset(".*?+()[]|")
_SWITCHES = {"enable": True, "on": True, "disable": False, "off": False}
_WORDS = ("reset", *_SWITCHES)
"""Of the historic grammar; in the final one they would be names of methods, and there are no such."""


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

    programsize: int

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
        # in the historic grammar a rule for the same name replaces the one before it; in the final the first decides
        by_weight = self.rules[::-1] if self.historic else self.rules
        named = next((rule.level for rule in by_weight if rule.method == method), None)
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


def parse(spec: str) -> Rules:
    """The rules of a specification in either grammar; which one, its words tell. Raises WireError that names the rule.

    What begins with `reset`, or has a switch, is historic, and starts from the historic defaults."""
    if len(spec) > MAX_SPEC:
        raise WireError("dump", f"{len(spec)} characters of rules; at most {MAX_SPEC} are read")
    items = _items(spec)
    count = sum(item not in _WORDS for item in items)
    if count > MAX_RULES:
        raise WireError("dump", f"{count} rules; at most {MAX_RULES} are read")
    if _is_historic(items):
        return _parse_historic(items)
    return Rules(tuple(map(_Reader().rule, items)))


def historic(spec: str, before: str = "") -> str:
    """What `parse` reads as the historic option, whatever words it has: it adds to the historic defaults and to such
    options before it, and takes the place of rules of the final grammar."""
    items = _items(spec)
    if not _is_historic(_items(before)):
        return spec if _is_historic(items) else f"on,{spec}"
    return f"{before},{spec if items[0] in _WORDS or ':' in items[0] else f'full:{spec}'}"


def final(spec: str) -> str:
    """What `parse` reads by the final grammar, whatever words it has. Raises WireError for a level that is historic."""
    items = [item for item in _items(spec) if item not in _WORDS]
    counted = next((item for item in items if _is_historic([item])), "")
    if counted:
        raise _no_level(counted, "count")
    return ",".join(items) or "off:.*"


def _items(spec: str) -> list[str]:
    return [item.strip() for item in spec.split(",")]


def _is_historic(items: Iterable[str]) -> bool:
    return any(item in _WORDS or item.startswith("count:") for item in items)


def _parse_historic(items: list[str]) -> Rules:
    rules = list(map(_Reader().rule, HISTORIC_DEFAULT.split(",")))
    enabled, reader = True, _Reader()
    for item in items:
        if item == "reset":
            rules.clear()
        elif item in _SWITCHES:
            enabled = _SWITCHES[item]
        else:
            rules.append(reader.rule(item))
    return Rules(tuple(rules), historic=True, enabled=enabled)


class _Reader:
    """Reads rules in their order: a level holds for those that follow, and expressions share what there is for all."""

    def __init__(self) -> None:
        self._level, self._program = Level.FULL, 0

    def rule(self, item: str) -> Rule:
        """The next one. Raises WireError that names it."""
        word, colon, method = item.partition(":")
        if not colon:
            word, method = "", item
        level = _LEVELS.get(word.lower()) if colon else self._level
        if level is None:
            raise _no_level(item, word)
        if not method:
            raise WireError(
                f"dump rule {item!r}", "names no method; write a name, * or an expression such as .*Container.*"
            )
        self._level = level
        if method == "*" or not _EXPRESSION.intersection(method):
            return Rule(method, level)
        try:
            expression = _compiled(method)
        except (re2.error, UnicodeEncodeError) as error:
            raise WireError(f"dump rule {item!r}", f"{method!r} is no expression ({_text(error)})") from error
        self._program += expression.programsize
        if self._program > MAX_PROGRAM:
            raise WireError(
                f"dump rule {item!r}",
                f"with it the expressions have {self._program} instructions; at most {MAX_PROGRAM} are taken",
            )
        return Rule(method, level, expression)


def _no_level(item: str, word: str) -> WireError:
    return WireError(f"dump rule {item!r}", f"{word!r} is no level; write off, short or full before the colon")


def _compiled(expression: str) -> Expression:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_EXPRESSION_BYTES
    compiled: Expression = re2.compile(expression, options)
    return compiled


def _text(error: Exception) -> str:
    first = error.args[0] if error.args else error
    return first.decode("utf-8", "replace") if isinstance(first, bytes) else str(first)
