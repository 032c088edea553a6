"""Model and engine have nothing in them that differs from run to run: no clock, chance, system, or order of a set."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import nodeward

HOUSE = Path(nodeward.__file__).parent
PURE = [file for part in ("model", "engine") for file in sorted((HOUSE / part).rglob("*.py"))]
MODULES = (
    *("collections", "dataclasses", "datetime", "enum", "fnmatch", "fractions", "functools", "itertools", "json"),
    *("math", "re", "sys", "types", "typing"),
    "nodeward",
)
"""What may be imported; import-linter says which rooms of `nodeward`."""
NAMES = ("set", "frozenset", "hash", "id", "open", "input", "print", "eval", "exec", "__import__")
"""Builtins whose result, or order, is another in the next process, or that reach the system."""
CLOCKS = ("now", "today", "utcnow", "environ", "argv", "stdin", "getrandom")
"""Attributes that reach a clock or the system through a module that may be imported for its values."""
OF_THIS_PLACE = {"fromtimestamp": 2, "astimezone": 1}
"""Methods of `datetime` that ask for this machine's time zone unless they get so many arguments."""


def impurities(source: str) -> list[str]:
    """What of `source` may differ from run to run, each with its line."""
    tree = ast.parse(source)
    return [f"line {getattr(node, 'lineno', 0)}: {what}" for node in ast.walk(tree) for what in _impure(node)]


def _impure(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Set() | ast.SetComp():
            yield "a set"
        case ast.Import():
            yield from (name for name in (alias.name for alias in node.names) if name.split(".")[0] not in MODULES)
        case ast.ImportFrom() if node.level or (node.module or "").split(".")[0] not in MODULES:
            yield f"from {node.module}"
        case ast.ImportFrom():
            yield from (alias.name for alias in node.names if alias.name in CLOCKS)
        case ast.Name(ctx=ast.Load()) if node.id in NAMES:
            yield node.id
        case ast.Attribute() if node.attr in CLOCKS:
            yield node.attr
        case ast.Call(func=ast.Attribute(attr=name)) if name in OF_THIS_PLACE:
            if len(node.args) + len(node.keywords) < OF_THIS_PLACE[name]:
                yield f"{name} in the zone of this machine"
        case _:
            pass


MADE_OF_NAMES = HOUSE / "model" / "value.py"
"""The decorator of values writes their methods from the names of their fields, as `dataclasses` does."""


@pytest.mark.parametrize("file", PURE, ids=lambda file: str(file.relative_to(HOUSE)))
def test_nothing_differs_from_run_to_run(file: Path) -> None:
    found = [what.partition(": ")[2] for what in impurities(file.read_text(encoding="utf-8"))]
    assert found == (["exec"] if file == MADE_OF_NAMES else [])
