"""Each judgement of the simulated histories fires: the product is broken in one place, and some seed must notice.

A mutant is played on seed after seed until its violation is found; one that lives through all of them fails.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from nodeward.aio import journal
from nodeward.aio.hostfs import HostFiles
from nodeward.app.host import core, record, slots
from nodeward.app.host.undo import UndoList
from nodeward.app.node import grants
from nodeward.edges.cgroups import sampler, writer
from nodeward.engine.apply import DOMAINS, Domains, apply
from nodeward.engine.ledger import asks, device_ids
from nodeward.engine.limits import readings, step, want
from nodeward.engine.state.ledger import Offer
from nodeward.engine.state.limits import Limits, Wanted
from nodeward.engine.state.root import State
from nodeward.model import events as ev
from nodeward.model.decision import Adjustment, Decision, Final, Goal, Reason, Special, Target
from nodeward.model.ports import Written
from nodeward.model.workload import ContainerId, PodSpec, PodUid
from tests.unit.simulated import history

KEYED = tuple(seed for seed in range(1, 100) if history.sells_keys(seed))
SEEDS = tuple(seed for seed in range(1, 100) if seed not in KEYED)
Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Mutant:
    """How the product is broken, and a word of the violation that must come."""

    breaks: Callable[[Patch], None]
    found: str
    seeds: Sequence[int] = SEEDS
    first: int = 0
    """A seed that is known to notice: those below it are played last. 0 where the very first one notices."""

    @property
    def order(self) -> list[int]:
        """Every seed, the likeliest to notice first."""
        return sorted(self.seeds, key=lambda seed: (seed < self.first, seed))


def limits_are_never_written(patch: Patch) -> None:
    patch.setattr(writer, "set_limit", lambda *_: Written(wrote=True, old="max"))


def limits_are_twice_too_large(patch: Patch) -> None:
    honest = writer.set_limit

    def doubled(files: HostFiles, root: str, path: str, resource: str, value: str) -> Written:
        return honest(files, root, path, resource, value if value == "max" else str(2 * int(value)))

    patch.setattr(writer, "set_limit", doubled)


def budgets_forget_the_init_containers(patch: Patch) -> None:
    def budget(spec: PodSpec, resource: str) -> int:
        return sum(one.declared.get(resource, 0) for one in spec.containers if one.role.value == "container")

    patch.setattr(want, "pod_budget", budget)


def drift_is_left_alone(patch: Patch) -> None:
    patch.setattr(readings, "_repair", lambda *_: [])


def nothing_is_tried_again(patch: Patch) -> None:
    honest = slots.Slots._try_again

    def never(slots: slots.Slots, target: Target, slot: slots._Slot, outcome: OSError) -> str:
        why = honest(slots, target, slot, outcome)
        slot.retry_at_ns += 10**15
        return why

    patch.setattr(slots.Slots, "_try_again", never)


def nothing_is_taken_back(patch: Patch) -> None:
    honest = slots.Slots.set

    def without_absent(slots: slots.Slots, given: Iterable[Goal], forget: Iterable[Target] = ()) -> None:
        honest(slots, [goal for goal in given if goal.value is not Special.ABSENT], forget)

    patch.setattr(slots.Slots, "set", without_absent)


def slots_are_never_forgotten(patch: Patch) -> None:
    honest = slots.Slots.set
    patch.setattr(slots.Slots, "set", lambda slots, given, forget=(): honest(slots, given))


def the_engine_forgets_no_cgroup(patch: Patch) -> None:
    def kept(
        state: State, limits: Limits, decision: Decision, paths: tuple[str, ...] | None = None
    ) -> tuple[Limits, Decision]:
        return limits, decision

    patch.setattr(step, "_prune", kept)


def descriptors_are_kept(patch: Patch) -> None:
    patch.setattr(sampler.Reader, "_release", lambda *_: None)


def the_undo_list_is_not_written(patch: Patch) -> None:
    patch.setattr(UndoList, "remember", lambda *_: None)


def uninstall_leaves_the_controller_on(patch: Patch) -> None:
    patch.setattr(writer, "disable_misc", lambda *_: 0)


def the_record_has_gaps(patch: Patch) -> None:
    honest = record.RecordWriter.__call__

    def gappy(self: record.RecordWriter, event: ev.Event, decision: Decision, state: State) -> None:
        if event.seq % 40:
            honest(self, event, decision, state)

    patch.setattr(record.RecordWriter, "__call__", gappy)


def decisions_depend_on_more_than_the_state(patch: Patch) -> None:
    honest, count = apply, [0]

    def moody(state: State, event: ev.Event, domains: Domains = DOMAINS) -> tuple[State, Decision]:
        count[0] += 1
        state, decision = honest(state, event, domains)
        return state, replace(decision, goals=decision.goals[::-1]) if count[0] % 7 == 0 else decision

    patch.setattr(core, "apply", moody)


def answers_come_too_late(patch: Patch) -> None:
    async def slow(self: core.Core, ask_id: int, answer: object, within_ns: int) -> Final:
        await asyncio.sleep(3.0)
        return Final(Adjustment(), Reason("late"))

    patch.setattr(core.Core, "_slow", slow)


def a_domain_fails_now_and_then(patch: Patch) -> None:
    honest = step.reconcile

    def failing(
        state: State, uids: Iterable[PodUid], *, touched: ContainerId | None = None, afresh: bool = False
    ) -> tuple[Limits, Decision]:
        if state.seq % 20 == 0:
            raise KeyError("broken on purpose")
        return honest(state, uids, touched=touched, afresh=afresh)

    patch.setattr(step, "reconcile", failing)


def what_is_wanted_is_not_shown(patch: Patch) -> None:
    honest = readings.standing

    def modest(state: State, path: str, wanted: Wanted, now_ns: int) -> readings.Standing:
        found = honest(state, path, wanted, now_ns)
        return readings.Standing.STALE if found is readings.Standing.ENFORCED else found

    patch.setattr("nodeward.engine.show.view.standing", modest)


def keys_are_granted_whatever_is_free(patch: Patch) -> None:
    honest = device_ids.allocate

    def generous(
        offer: Offer, names: Sequence[str], reused: Sequence[str], free: int, at_ns: int, seq: int
    ) -> Offer | None:
        return honest(replace(offer, published=99), names, reused, 99, at_ns, seq)

    patch.setattr(device_ids, "allocate", generous)


def starts_are_let_through_whatever_is_there(patch: Patch) -> None:
    patch.setattr(device_ids, "start", lambda offer, *_: offer)


def grants_are_answered_before_they_are_written(patch: Patch) -> None:
    async def hasty(self: grants.Grants, record: str) -> str:
        return ""

    patch.setattr(grants.Grants, "commit", hasty)


def a_failed_write_of_a_grant_is_taken_for_done(patch: Patch) -> None:
    def deaf(self: grants.Grants, written: journal.Written) -> str:
        self._tried = True
        return ""

    patch.setattr(grants.Grants, "_fault", deaf)


def a_start_recalls_no_grants(patch: Patch) -> None:
    patch.setattr(device_ids, "recalled", lambda offer, *_: offer)


def refused_grants_stay_granted(patch: Patch) -> None:
    patch.setattr(asks, "given_back", lambda ledger, _: ledger)


def nothing_is_released(patch: Patch) -> None:
    patch.setattr(device_ids, "ABSENT_VIEWS", 10**9)


def the_journal_keeps_what_is_over(patch: Patch) -> None:
    honest = grants.Grants._kept

    async def once(self: grants.Grants) -> ev.GrantsRecalled:
        return await honest(self) if self._recalled.fault or not self._tried else ev.GrantsRecalled(fault=self._told)

    patch.setattr(grants.Grants, "_kept", once)


def nothing_is_offered_again(patch: Patch) -> None:
    patch.setattr(device_ids, "GROW_NS", 10**18)


MUTANTS = (
    Mutant(keys_are_granted_whatever_is_free, "keys were promised or taken", KEYED, first=9),
    Mutant(starts_are_let_through_whatever_is_there, "and there was no key", KEYED, first=14),
    Mutant(grants_are_answered_before_they_are_written, "is not on record", KEYED, first=16),
    Mutant(a_failed_write_of_a_grant_is_taken_for_done, "is not on record", KEYED, first=37),
    Mutant(a_start_recalls_no_grants, "is not on record", KEYED),
    Mutant(refused_grants_stay_granted, "was refused and stays granted", KEYED, first=10),
    Mutant(nothing_is_offered_again, "keys are offered, and nobody has any", KEYED),
    Mutant(answers_come_too_late, "no answer to Allocate", KEYED),
    Mutant(nothing_is_released, "are granted", KEYED),
    Mutant(the_journal_keeps_what_is_over, "are on record", KEYED),
    Mutant(limits_are_never_written, "has None, wanted"),
    Mutant(limits_are_twice_too_large, "was promised and reached", first=6),
    Mutant(budgets_forget_the_init_containers, "wanted"),
    Mutant(drift_is_left_alone, "wanted", first=8),
    Mutant(nothing_is_tried_again, "not reached", first=8),
    Mutant(nothing_is_taken_back, "wanted None", first=17),
    Mutant(slots_are_never_forgotten, "slots are left"),
    Mutant(the_engine_forgets_no_cgroup, "wanted still has"),
    Mutant(descriptors_are_kept, "descriptors are open"),
    Mutant(the_undo_list_is_not_written, "not on the undo list"),
    Mutant(uninstall_leaves_the_controller_on, "misc is still on"),
    Mutant(the_record_has_gaps, "are in the record", first=68),
    Mutant(decisions_depend_on_more_than_the_state, "replay differs"),
    Mutant(answers_come_too_late, "no answer to Creating"),
    Mutant(a_domain_fails_now_and_then, "fault(s) in limits", first=6),
    Mutant(what_is_wanted_is_not_shown, "is shown as stale"),
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Mutants complain without end."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.breaks.__name__)
def test_a_mutant_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.breaks(monkeypatch)
    monkeypatch.setattr(history, "QUIET_S", 35)  # what is broken stays so
    seen: list[str] = []
    for seed in mutant.order:
        seen += history.run(seed).violations
        if any(mutant.found in text for text in seen):
            return
    raise AssertionError(f"none of {len(mutant.seeds)} seeds noticed; seen was {seen[:5]}")
