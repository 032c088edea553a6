"""Given the edges that there are, then the contract that keeps them apart names each of them."""

import tomllib
from pathlib import Path

from nodeward import edges

ROOT = Path(__file__).resolve().parents[3]


def test_every_edge_is_in_the_contract_that_edges_do_not_know_one_another() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (apart,) = [one for one in contracts if one["type"] == "independence"]
    folder = Path(edges.__file__).parent
    there = {path.parent.name for path in folder.glob("*/__init__.py")} | {path.stem for path in folder.glob("*.py")}

    assert sorted(apart["modules"]) == sorted(f"nodeward.edges.{name}" for name in there - {"__init__"})
