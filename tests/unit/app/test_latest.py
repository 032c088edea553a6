"""The ring of the latest decisions: bounded, by number, with the time from a goal to its reading back."""

from nodeward.app.host.latest import KEPT, MOST_CHARACTERS, MOST_SENTENCES, Latest
from nodeward.model.decision import NOTHING, Decision, Goal, Reason, Target
from nodeward.model.events import Missed, Reached, Tick

LIMIT = Target("misc.max", "/kubepods/pod1", "sgx_epc")


def test_a_goal_its_write_and_its_reading_back() -> None:
    latest = Latest()
    latest.add(Tick(at_ns=100, seq=1), NOTHING, 5)  # nothing to say
    latest.add(Tick(at_ns=1000, seq=2), Decision(goals=(Goal(LIMIT, "4096", Reason("declared")),)), 7)
    latest.add(Reached((LIMIT,), (LIMIT,), at_ns=4000, seq=3), NOTHING, 9)
    latest.add(Missed(((LIMIT, "EBUSY"),), seq=4), NOTHING, 9)
    goal, reached, missed = latest.rows(0)
    assert (goal.seq, goal.event, goal.took_ns, goal.after_ns) == (2, "Tick", 7, 0)
    assert goal.said == ("wants misc.max:sgx_epc:/kubepods/pod1 4096 (declared)",)
    assert (reached.after_ns, reached.said) == (3000, ("wrote and read back: misc.max:sgx_epc:/kubepods/pod1",))
    assert missed.said == ("could not be reached: misc.max:sgx_epc:/kubepods/pod1: EBUSY",)
    assert [row.seq for row in latest.rows(2)] == [3, 4]
    assert latest.rows(2)[0].after_ns == 3000, "a goal of before counts, though it is not asked for"


def test_it_is_bounded_in_rows_sentences_and_characters() -> None:
    latest, many = Latest(), tuple(Target("cpus", f"/{number}" + "x" * 1000) for number in range(100))
    for seq in range(KEPT + 10):
        latest.add(Reached(many, seq=seq), NOTHING, 1)
    rows = latest.rows(0)
    assert (len(rows), rows[0].seq) == (KEPT, 10)
    assert len(rows[0].said) == MOST_SENTENCES + 1
    assert rows[0].said[-1] == "and 92 more"
    assert max(map(len, rows[0].said)) == MOST_CHARACTERS
