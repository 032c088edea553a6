"""Model and engine have nothing in them that differs from run to run."""

import ast
from pathlib import Path

import pytest

import nodeward

HOUSE = Path(nodeward.__file__).parent
PURE = [file for part in ("model", "engine") for file in sorted((HOUSE / part).rglob("*.py"))]


@pytest.mark.parametrize("file", PURE, ids=lambda file: str(file.relative_to(HOUSE)))
def test_no_sets_and_no_clock_chance_or_system(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text())):
        assert not isinstance(node, ast.Set | ast.SetComp)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("set", "frozenset")
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not [name for name in names if name.split(".")[0] in ("os", "random", "time")]
