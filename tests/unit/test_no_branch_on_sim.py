"""Nothing outside `nodeward_sim` and `nodeward_sim.doubles` can tell that it is simulated: no import, name or text.

The rule is stricter than "no branch": what is never named cannot be asked for. Docstrings and comments may speak of the
simulation. One place names it because it is its door: the list of sub-commands.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import nodeward
from nodeward.cli.main import COMMANDS, ELSEWHERE, LEFT_OUT

HOUSE = Path(nodeward.__file__).parent
LISTED = {"cli/main.py": sorted(["sim", COMMANDS["sim"], ELSEWHERE, LEFT_OUT, "sim"])}
"""File to what it may name, each once: the sub-command, its line in the list of sub-commands, and where it is."""
_MAY = re.compile("sim", re.IGNORECASE)
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def speaks_of_sim(text: str) -> bool:
    """Whether a word of `text` (parts of CamelCase and snake_case count) is `sim` or one of its family."""
    if "nodeward_sim" in text:
        return True
    words = (word.lower() for word in _WORDS.findall(text))
    return any(word in ("sim", "sims") or word.startswith("simulat") for word in words)


def mentions(source: str) -> list[str]:
    """Everything in the code, docstrings apart, that speaks of the simulation."""
    tree = ast.parse(source)
    prose = [
        node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    said = [text for node in ast.walk(tree) if node not in prose for text in _texts(node)]
    return [text for text in said if speaks_of_sim(text)]


def _texts(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Constant(value=bytes(data)):
            yield data.decode("latin-1")
        case ast.ImportFrom():
            yield node.module or ""
        case _:
            for field in ("id", "attr", "arg", "name", "asname", "rest", "kwd_attrs"):
                value = getattr(node, field, None)
                yield from [value] if isinstance(value, str) else value if field == "kwd_attrs" and value else []


def test_no_code_outside_the_simulation_speaks_of_it() -> None:
    sources = {file: file.read_text(encoding="utf-8") for file in HOUSE.rglob("*.py")}
    assert len(sources) > 500
    said = {str(file.relative_to(HOUSE)): sorted(mentions(text)) for file, text in sources.items() if _MAY.search(text)}
    assert {name: found for name, found in said.items() if found} == LISTED
