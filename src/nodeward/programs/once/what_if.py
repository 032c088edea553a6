"""Finds which decisions of a record would differ under other settings.

Open-loop: the events are those that happened. What a node with the other settings would have met instead (a limit
that is not written is never read back; a container that is refused never starts) is in no record, so everything after
the first difference is marked hypothetical.

The other settings stand in for the first ones of each segment and for every later change of settings in it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from nodeward.core.decision import Decision
from nodeward.core.events import Event
from nodeward.features.all import apply
from nodeward.features.cpus import view as cpus
from nodeward.features.cpus.settings import PolicySettings
from nodeward.features.cpus.state import Cpus
from nodeward.features.root import SettingsChanged, State
from nodeward.features.settings import EngineSettings
from nodeward.people import decisions
from nodeward.people.plan import with_policy
from nodeward.programs.once import replay

MOST_KEPT = 1000
"""So many differences are kept in memory; the others are counted."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A decision that would have been another. `recorded` and `other` hold only what the two do not share."""

    segment: int
    seq: int
    wall_ns: int
    event: str
    about: str
    recorded: tuple[str, ...]
    other: tuple[str, ...]
    hypothetical: bool


@dataclass(frozen=True, slots=True)
class CpuDifference:
    """A container that would have had other CPUs, as it first was so."""

    container: str
    seq: int
    recorded: str
    other: str


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What the comparison found. `differences` are the first MOST_KEPT of `count`, and `cpus` has the first
    MOST_KEPT containers, each once."""

    segments: int
    events: int
    torn: int
    count: int
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    cpus: tuple[CpuDifference, ...] = ()


def what_if(lines: Iterable[bytes], other: EngineSettings | PolicySettings) -> WhatIf:
    """Compares the decisions under the recorded settings with those under `other`, settings or a CPU policy. Raises
    RecordError."""
    compared = _Compared(other)
    for step in replay.walk(lines):
        match step:
            case replay.Opened():
                compared.open(step.state)
            case replay.Lost():
                compared.torn += 1
            case replay.Again():
                compared.next(step)
    return WhatIf(
        compared.segments,
        compared.events,
        compared.torn,
        compared.count,
        tuple(compared.kept),
        tuple(compared.notes.values()),
        tuple(compared.cpus.values()),
    )


class _Compared:
    """The state under the other settings, beside the recorded one."""

    def __init__(self, other: EngineSettings | PolicySettings) -> None:
        self._asked, self._state = other, State()
        self._settings = EngineSettings()
        self.segments = self.events = self.torn = self.count = 0
        self.kept: list[Difference] = []
        self.notes: dict[str, str] = {}
        self.cpus: dict[str, CpuDifference] = {}
        self._seen = (Cpus(), Cpus())

    def open(self, state: State) -> None:
        """A segment: the checkpoint, with everything in it decided anew by the other settings. Any change of settings
        gives every standing goal again, so what the recorded ones would give again is no difference."""
        self.segments += 1
        self._settings = self._like(state.settings)
        if self._settings == state.settings:
            self._state = state
            return
        change = SettingsChanged(self._settings, at_ns=state.at_ns, seq=state.seq)
        again, recorded = apply(state, replace(change, settings=state.settings))
        changed, other = apply(state, change)
        self._state = _but_for_the_change(state, again, changed)
        for why in changed.cpus.refused:
            self._note("refused", f"the other CPU policy does not fit, and the recorded one goes on: {why}")
        self._compare(change, "the segment's begin", recorded, other)
        self._compare_cpus(state)

    def next(self, step: replay.Again) -> None:
        """One event of the segment."""
        self.events += 1
        if not step.is_same:
            self._note(
                "version",
                f"this version decides seq {step.event.seq} ({type(step.event).__name__}) otherwise than the "
                "record has it, with the recorded settings too; what is compared is all this version's",
            )
        event = step.event
        if isinstance(event, SettingsChanged):
            self._note("change", f"the record changes its settings (first at seq {event.seq}); the other ones hold on")
            self._state, decision = replace(self._state, seq=event.seq, at_ns=event.at_ns), Decision()
        else:
            self._state, decision = apply(self._state, event)
        self._compare(event, decisions.about(event), step.decision, decision)
        self._compare_cpus(step.state)

    def _compare_cpus(self, recorded: State) -> None:
        """Notes the containers that have other CPUs now, each once."""
        here, there = recorded.cpus, self._state.cpus
        both = zip((here, there), self._seen, strict=True)
        if all(now.pools is before.pools and now.unplaced is before.unplaced for now, before in both):
            return
        self._seen = (here, there)
        for key in dict.fromkeys((*here.pools.grants, *there.pools.grants, *here.unplaced, *there.unplaced)):
            one, two = cpus.in_words(here, key), cpus.in_words(there, key)
            if one != two and key not in self.cpus and len(self.cpus) < MOST_KEPT:
                name = "/".join(part for part in cpus.name_of(recorded, key) if part)
                self.cpus[key] = CpuDifference(name, recorded.seq, one, two)

    def _compare(self, event: Event, about: str, recorded: Decision, other: Decision) -> None:
        if recorded == other:
            return
        one, two = decisions.apart(recorded, other)
        if not one and not two:
            return  # calls are numbered otherwise, since one side made more of them before
        if len(self.kept) < MOST_KEPT:
            name = type(event).__name__
            found = Difference(
                self.segments, event.seq, event.wall_ns, name, about, one, two, hypothetical=self.count > 0
            )
            self.kept.append(found)
        self.count += 1

    def _like(self, recorded: EngineSettings) -> EngineSettings:
        """The other settings, but for what shaped the events themselves."""
        if isinstance(self._asked, PolicySettings):
            return with_policy(recorded, self._asked)
        if self._asked.limits.resources != recorded.limits.resources:
            self._note(
                "resources",
                "limits.resources stays as recorded: pods were read by it, and what it left out is not there",
            )
        if self._asked.period_ms != recorded.period_ms:
            self._note("period", "cgroups.period_s stays as recorded: the kernel was read at that pace")
        limits = replace(self._asked.limits, resources=recorded.limits.resources)
        return replace(self._asked, limits=limits, period_ms=recorded.period_ms)

    def _note(self, key: str, text: str) -> None:
        self.notes.setdefault(key, text)


def _but_for_the_change(state: State, again: State, changed: State) -> State:
    """`changed`, with what the other settings decide like the recorded ones (`again`) as it was in `state`: it had been
    reached, and nobody waits for it once more."""
    wanted = {
        path: replace(now, reached=before.reached, taken_back=before.taken_back)
        if (before := state.limits.wanted.get(path)) is not None and now == again.limits.wanted.get(path)
        else now
        for path, now in changed.limits.wanted.items()
    }
    changed = replace(changed, limits=replace(changed.limits, wanted=wanted))
    changed = replace(changed, cpus=state.cpus) if changed.cpus == again.cpus else changed
    return replace(changed, keys=state.keys) if changed.keys == again.keys else changed
