"""Finds which containers would have other CPUs under another policy.

Promises: the state stays as it is; nothing is written anywhere. Must not: run on the loop's thread of a daemon, since
all containers are placed anew.
"""

from dataclasses import dataclass, replace

from nodeward.core.modes import Mode
from nodeward.features.all import apply
from nodeward.features.cpus import view
from nodeward.features.cpus.settings import PolicySettings
from nodeward.features.root import SettingsChanged, State
from nodeward.features.settings import EngineSettings


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """A container, and what it may run on now and then; empty for all CPUs."""

    container: str
    now: str
    then: str


@dataclass(frozen=True, slots=True)
class CpuPlan:
    """What a policy would do. `refused`: why it would not be in force. `staying` have the same CPUs then."""

    refused: tuple[str, ...] = ()
    moved: tuple[PlannedRow, ...] = ()
    staying: tuple[PlannedRow, ...] = ()


def with_policy(settings: EngineSettings, policy: PolicySettings) -> EngineSettings:
    """The settings with another CPU policy, decided even where the feature is off."""
    mode = Mode.OBSERVE if settings.cpus.mode is Mode.OFF else settings.cpus.mode
    return replace(settings, policy=policy, cpus=replace(settings.cpus, mode=mode))


def plan(state: State, policy: PolicySettings) -> CpuPlan:
    """What `policy` would do with the containers of `state`."""
    if state.cpus.machine is None:
        return CpuPlan(("the machine's CPUs are not known yet; ask again in a second",))
    change = SettingsChanged(with_policy(state.settings, policy), at_ns=state.at_ns, seq=state.seq + 1)
    after, _ = apply(state, change)
    if after.cpus.refused:
        return CpuPlan(after.cpus.refused)
    here, there = state.cpus, after.cpus
    rows = [
        PlannedRow(
            "/".join(part for part in view.name_of(after, key) if part),
            view.in_words(here, key),
            view.in_words(there, key),
        )
        for key in dict.fromkeys((*here.pools.grants, *here.unplaced, *there.pools.grants, *there.unplaced))
    ]
    rows.sort(key=lambda row: row.container)
    moved = tuple(row for row in rows if row.now != row.then)
    return CpuPlan((), moved, tuple(row for row in rows if row.now == row.then))
