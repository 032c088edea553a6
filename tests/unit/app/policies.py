"""Policies that settings can name in tests, whatever the engine's table has."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from nodeward.engine.cpus.policies import table
from nodeward.engine.cpus.policies.none import NONE
from nodeward.engine.cpus.policy import Policy

NAMED: Mapping[str, Policy] = {name: replace(NONE, name=name, about=f"{name}!") for name in ("static", "static-plus")}


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> None:
    """`static` and `static-plus` are there."""
    monkeypatch.setattr(table, "POLICIES", {"none": NONE, **NAMED})
