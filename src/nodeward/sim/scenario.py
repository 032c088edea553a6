"""Scenarios: small readable files that say what happens on the simulated node."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from nodeward.app.settings import SettingsError, read_yaml

SHIPPED = Path(__file__).parent / "scenarios"
ACTIONS = ("kill-daemon", "restart-runtime", "drift", "lose-api", "restore-api")


@dataclass(frozen=True, slots=True)
class Happening:
    """At `at_s` seconds, `do` this (one of ACTIONS); repeated every `every_s` seconds where that is not 0."""

    at_s: float
    do: str
    every_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario. Amounts in bytes, times in seconds."""

    title: str
    about: str = ""
    capacity: dict[str, int] = field(default_factory=lambda: {"sgx_epc": 512 * 1024 * 1024})
    pods: int = 6
    """How many pods are kept running."""
    life_s: tuple[float, float] = (4.0, 12.0)
    charge_every_s: float = 0.05
    greedy: float = 0.1
    """The share of charges that ask for more than the container may have."""
    late_spec_s: float = 0.0
    """How long after its containers a pod appears in the API server; 0 for before them."""
    grace_s: float = 6.0
    """Within this time after a pod's start, or after a disturbance, its limits must be in the kernel."""
    events: tuple[Happening, ...] = ()


def names() -> list[str]:
    """The scenarios that ship."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def load(name: str) -> Scenario:
    """A shipped scenario by its name, or any by its path. SettingsError says what is wrong."""
    path = SHIPPED / f"{name}.yaml" if name in names() else Path(name)
    if not path.exists():
        raise SettingsError([f"{name}: no such scenario; shipped are {', '.join(names())}, or give a file's path"])
    tree = read_yaml(str(path))
    unknown = [key for key in tree if key not in Scenario.__slots__]
    if unknown:
        known = ", ".join(Scenario.__slots__)
        raise SettingsError([f"{path}: unknown key {key!r}; known are {known}" for key in unknown])
    try:
        scenario = msgspec.convert(tree, type=Scenario, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError([f"{path}: {error}"]) from error
    wrong = [event.do for event in scenario.events if event.do not in ACTIONS]
    if wrong:
        raise SettingsError([f"{path}: events: {do!r} is not one of {', '.join(ACTIONS)}" for do in wrong])
    return scenario
