"""What a change touches: files by git, source modules by the import graph, cases by the text of their files.

Changed is what differs from where the branch left its base (`BASE`, else origin/main, else main), with what is not
committed. Imports are read from the text, wherever they stand in a module.
"""

import os
import re
import subprocess
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from tests.peers.recipes import RECIPES
from tests.running.parts import HUBS, Part

_NAME = r"(?:nodeward|tests)[\w.]*"
_IMPORT = re.compile(rf"^\s*(?:from ({_NAME}) import (\([^)]*\)|[^#\n]*)|import ({_NAME}))", re.M)
_TEST = re.compile(r"^(?:async )?def (test_\w+)", re.M)
_TEST_FILE = re.compile(r"tests/.*/(test_\w+|\w+_test)\.py")
Graph = Mapping[str, Set[str]]
"""Module -> the modules that it imports."""


@dataclass(frozen=True, slots=True)
class Change:
    """What differs from the base."""

    root: Path
    base: str = ""
    """The commit; empty where git knows none."""
    files: frozenset[str] = frozenset()


def git(root: Path, *words: str) -> str:
    """What git prints; empty where it fails."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def change(root: Path) -> Change:
    """Of a checkout."""
    given = os.environ.get("BASE")
    for name in [given] if given else ["origin/main", "main"]:
        if base := git(root, "merge-base", "HEAD", name).strip():
            listed = git(root, "diff", "--name-only", base) + git(root, "ls-files", "--others", "--exclude-standard")
            return Change(root, base, frozenset(listed.splitlines()))
    if given:
        raise SystemExit(f"BASE={given}: git knows no such commit in {root}")
    return Change(root)


def module(path: str) -> str:
    """The name of a Python file's module; empty for another file."""
    if not path.endswith(".py") or not path.startswith(("src/", "tests/")):
        return ""
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def graph(root: Path) -> Graph:
    """The imports of source and tests."""
    files = [path for place in ("src/nodeward", "tests") for path in (root / place).rglob("*.py")]
    texts = {module(str(path.relative_to(root))): path.read_text() for path in files}
    return {name: imported(text, texts) for name, text in texts.items()}


def imported(text: str, modules: Collection[str]) -> frozenset[str]:
    """The modules that a text imports."""
    found = set[str]()
    for package, names, whole in _IMPORT.findall(text):
        found.add(package or whole)
        found |= {f"{package}.{name}" for name in re.findall(r"\w+", names)}
    return frozenset(found.intersection(modules))


def importers(imports: Graph, changed: Set[str]) -> frozenset[str]:
    """The changed modules, and all that import one of them, also by others."""
    found = set(changed)
    while more := {name for name, of in imports.items() if name not in found and not found.isdisjoint(of)}:
        found |= more
    return frozenset(found)


def is_below(name: str, prefix: str, by: str = ".") -> bool:
    """Whether this is the package, module or folder, or lies in it."""
    return name == prefix or name.startswith(prefix + by)


def touched(part: Part, files: Set[str], imports: Graph) -> bool:
    """Whether a part covers what changed: source by the import graph, its own files and their support, its peers."""
    found = set[str]()
    for package in ("nodeward", "tests"):
        of_package = {name: of for name, of in imports.items() if is_below(name, package) and name not in HUBS}
        found |= importers(of_package, {name for name in map(module, files) if is_below(name, package)})
    mine = tuple(f"tests.{part.tier}.{file.removesuffix('.py')}" for file in part.files)
    built = {place for peer in part.peers for place in RECIPES[peer].places()}
    return any(is_below(name, prefix) for name in found for prefix in (*part.covers, *mine)) or any(
        is_below(path, prefix, "/") for path in files for prefix in (*part.covers, *built)
    )


def is_of(case: str, files: Set[str], imports: Graph) -> bool:
    """Whether the change touches a case's file, or a module that the file imports."""
    path = case.partition("::")[0]
    changed = {module(file) for file in files}
    return path in files or not changed.isdisjoint(imports.get(module(path), ()))


def new_cases(now: Change) -> list[str]:
    """Functions of test files that the base's text defines neither there nor in a file that has gone, for pytest.

    None of a guest, whose cases share a boot of minutes."""
    tests = sorted(path for path in now.files if now.base and _TEST_FILE.fullmatch(path) and path[:9] != "tests/vm/")
    present = {path: set(_TEST.findall((now.root / path).read_text())) for path in tests if (now.root / path).exists()}
    before = {path: set(_TEST.findall(git(now.root, "show", f"{now.base}:{path}"))) for path in tests}
    moved = set[str]().union(*(names for path, names in before.items() if path not in present))
    return [f"{path}::{name}" for path, names in present.items() for name in sorted(names - before[path] - moved)]
