"""Values are frozen: for mypy always, at run time in the interpreter's development mode."""

import os
import subprocess
import sys

WRITES = """
from dataclasses import FrozenInstanceError
from nodeward.model.decision import Reason
reason = Reason("declared")
try:
    setattr(reason, "code", "other")
except FrozenInstanceError:
    print("frozen")
else:
    print("plain")
assert hash(Reason("declared")) == hash(Reason("declared"))
"""


def outcome(*options: str) -> str:
    return subprocess.run(
        [sys.executable, *options, "-c", WRITES], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_values_are_frozen_in_development_mode_and_quick_elsewhere() -> None:
    assert outcome("-X", "dev") == "frozen"
    assert outcome() == "plain"


TELLS = """
import dataclasses, importlib, inspect, pkgutil, nodeward
from nodeward.model.value import replace, value
for package in ("aio", "app", "edges", "engine", "model", "shims", "transport", "wire"):
    for module in pkgutil.walk_packages([f"{nodeward.__path__[0]}/{package}"], f"nodeward.{package}."):
        found = vars(importlib.import_module(module.name))
        for cls in found.values() if found.get("value") is value else ():
            if not isinstance(cls, type) or not dataclasses.is_dataclass(cls) or cls.__module__ != module.name:
                continue
            parameters = inspect.signature(cls).parameters.values()
            every = {one.name: one.name for one in parameters}
            least = cls(**{one.name: one.name for one in parameters if one.default is one.empty})
            all_given = cls(**every)
            other = dataclasses.replace(all_given, **{one.name: "other" for one in list(parameters)[:1]})
            for new in ({}, *({one: "other"} for one in every)):
                assert replace(all_given, **new) == dataclasses.replace(all_given, **new)
            print(
                cls, cls.__mro__, cls.__slots__ if "__slots__" in vars(cls) else "", cls.__match_args__,
                [(one.name, one.kind, one.default is one.empty) for one in parameters],
                [(one.name, str(one.type), one.kw_only) for one in dataclasses.fields(cls)],
                [least, all_given, other, hash(all_given), all_given == cls(**every)],
                [all_given == other, least == all_given, all_given.__eq__(())],
            )
"""


def told(*options: str) -> list[str]:
    command = [sys.executable, *options, "-W", "ignore", "-c", TELLS]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.splitlines()


def test_a_value_is_what_its_dataclass_is() -> None:
    values, classes = told(), told("-X", "dev")
    assert len(values) > 100
    assert values == classes


FROZEN = """
import dataclasses, sys, pytest
from nodeward.model import value
value.value, value.field, value.replace = dataclasses.dataclass, dataclasses.field, dataclasses.replace
from nodeward.model.decision import Reason
try:
    setattr(Reason("declared"), "code", "other")
except dataclasses.FrozenInstanceError:
    sys.exit(pytest.main(sys.argv[1:]))
"""
"""As in development mode, whose debugging of memory and of asyncio takes three times as long."""
EXPLORATIONS = ("histories", "start_ends", "views", "without_api")
"""A hundred thousand times the steps that the others take once."""


def test_nothing_writes_to_a_value() -> None:
    """The engine's tests, with values that refuse it."""
    left = [f"--ignore=tests/unit/engine/ledger/test_{name}.py" for name in EXPLORATIONS]
    options = ["-q", "-x", "-p", "no:cacheprovider", "tests/unit/engine", "tests/unit/app", *left]
    command = [sys.executable, "-c", FROZEN, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed in " in done.stdout
