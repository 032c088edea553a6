"""Keys by claim: what is promised, refused and published, and every history of a small node with both fronts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from nodeward.core import events as ev
from nodeward.core.claims import Allocated, Claim
from nodeward.core.modes import Mode
from nodeward.core.workload import PodUid
from nodeward.features.keys import claims as key_claims
from nodeward.features.keys.settings import KeyKind
from nodeward.features.root import SettingsChanged, State
from tests.told import tell
from tests.unit.features.build import sandbox, there
from tests.unit.features.keys.asking import ID, TDX, launcher
from tests.unit.features.keys.fronts import DRIVER, Claimed, claim, explore, node, settings


def shown(one: Claimed) -> list[tuple[str, str, str]]:
    """Each claim with its state and why."""
    return [(each.claim, each.state, each.why) for each in there(one.row.claims).rows]


def test_a_prepared_claim_is_promised_its_key_once_until_it_has_ended() -> None:
    one = node()
    assert (one.device(), one.row.free) == ((4, False), 4)
    assert one.prepare(claim("a")) == ""
    assert one.prepare(claim("a")) == ""
    assert (one.device(), one.row.free) == ((4, False), 3)
    assert one.prepare(claim("b")) == ""
    one.unprepare("a")
    one.unprepare("never-heard-of")
    assert one.device() == (3, False)
    one.settle()
    assert (one.device(), one.row.free) == ((4, False), 3)


def test_a_claim_that_no_key_is_free_for_is_told_why_and_is_shown_as_waiting() -> None:
    one = node(keys=1)
    one.root = 1
    refused = one.prepare(claim("a"))
    assert refused == (
        "Nodeward does not prepare the claim shop/claim-a: 1 asked, 0 free of 1 (0 held by pods or "
        "promised to them, 1 in foreign use, 0 in reserve); end what holds keys outside of the node's pods (nodeward "
        "keys names it); kubelet tries again by itself"
    )
    assert shown(one) == [("shop/claim-a", "waiting", refused)]
    one.root = 0
    assert one.prepare(claim("a")) == ""
    assert shown(one) == [("shop/claim-a", "prepared", "")]


def test_a_claim_that_has_ended_drains_for_as_long_as_its_pod_holds_the_key() -> None:
    one = node(keys=1)
    assert one.prepare(claim("a")) == ""
    one.charged, one.root = {"a": 1}, 1
    one.sample()
    one.unprepare("a")
    assert one.device() == (1, True)
    assert shown(one) == [("shop/claim-a", "draining", "")]
    assert "1 held by pods" in one.prepare(claim("b"))
    one.charged, one.root = {}, 0
    one.sample()
    assert [state for _, state, _ in shown(one)] == ["waiting"]
    assert one.prepare(claim("b")) == ""


def test_an_extended_resource_that_the_scheduler_made_a_claim_of_is_counted_once() -> None:
    one = node(row=KeyKind((TDX,), publish=TDX))  # nothing is offered by a plugin
    one.tell(launcher("a"))
    one.settle()
    assert one.row.free == 3  # by its spec, before it is prepared
    assert one.prepare(claim("a", extended=True)) == ""
    assert one.row.free == 3
    one.tell(ev.SandboxStarted(sandbox("a")))
    assert one.row.free == 3
    one = node(share="2")
    one.tell(launcher("a"))
    one.tell(ev.SandboxStarted(sandbox("a")))
    assert one.prepare(claim("a", extended=True)) == ""
    assert one.row.free == 3


def of(*allocated: Allocated, **more: Any) -> Claim:
    return replace(claim("a"), allocated=allocated, **more)


TWO = {PodUid("a"): "pod-a", PodUid("b"): "pod-b"}


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (of(Allocated("key", "gpu", consumed={"keys": 1})), "its device 'gpu' is none of ours: tdx"),
        (of(Allocated("key", "tdx")), "does not say how many keys of tdx it consumes"),
        (of(Allocated("key", "tdx", consumed={"keys": 0})), "does not say how many keys of tdx it consumes"),
        (of(Allocated("key", "tdx", consumed={"keys": -1})), "does not say how many keys of tdx it consumes"),
        (claim("a", pods=TWO), "it is reserved for 2 pods, and keys are counted by pod"),
        (claim("a", pods={}), "it is reserved for 0 pods"),
    ],
)
def test_a_claim_that_cannot_be_is_refused_for_good_and_nothing_is_counted(bad: Claim, why: str) -> None:
    one = node()
    refused = one.prepare(bad)
    assert why in refused
    assert refused.endswith("delete the pod, and its claim where that stays; the next one is allocated anew")
    assert (one.row.free, one.state.keys.waiting) == (4, {})
    assert one.state.keys.refused == {"tdx/claim" if bad.allocated[0].device == "tdx" else "none/claim": 1}


def test_a_claim_that_was_prepared_with_something_else_is_refused() -> None:
    one = node()
    assert one.prepare(claim("a")) == ""
    both = of(*claim("a").allocated, *claim("a").allocated)
    assert "it was prepared with 1 of tdx, and now has 2 of tdx" in one.prepare(both)
    assert one.prepare(replace(both, uid=claim("b").uid)) == ""
    assert one.row.free == 1


def test_a_device_is_withheld_while_kubelet_has_not_our_driver() -> None:
    one = node()
    one.tell(ev.DriverTold(DRIVER, False, "no folder"))
    assert one.device() == (4, True)
    one.tell(ev.DriverTold(DRIVER, True))
    assert one.device() == (4, False)


def test_admin_access_is_let_through_and_takes_no_key() -> None:
    one = node(keys=1)
    one.root = 1
    one.settle()
    assert one.prepare(of(Allocated("look", "tdx", admin=True, consumed={"keys": 1}))) == ""
    assert one.state.keys.claims["a"].amounts == {}  # type: ignore[index]


def test_nothing_is_published_or_promised_before_it_is_known_what_was_prepared() -> None:
    one = Claimed(State(settings=settings()))
    one.begin()
    assert f"keys-slice:{DRIVER}" not in one.goals
    assert "which claims were prepared before the daemon started is not known yet" in one.prepare(claim("a"))
    one.recall(fault="the disk is torn")
    assert "the disk is torn" in one.prepare(claim("a"))
    assert one.allocate(ID[0]) != ""
    one.tell(ev.ClaimsRecalled(DRIVER, adopted=(claim("old"), of(Allocated("key", "gpu")))))
    one.tell(ev.DriverTold(DRIVER, True))
    one.settle()
    assert (one.device(), one.row.free) == ((16, False), 15)


@pytest.mark.parametrize(
    ("share", "device", "plugin"),
    [("all", (4, False), 0), ("none", (1, True), 4), ("1", (1, False), 3), ("9", (4, False), 0)],
)
def test_the_keys_are_shared_between_both_fronts(share: str, device: tuple[int, bool], plugin: int) -> None:
    one = node(share)
    one.settle()
    assert (one.device(), one.healthy()) == (device, plugin)


def test_a_share_is_changed_while_the_daemon_runs_and_whoever_gives_up_keys_is_first() -> None:
    one = node("none")
    one.settle()
    one.tell(SettingsChanged(settings("all")))
    assert (one.device(), one.healthy()) == ((1, True), 0)
    one.settle()
    assert one.device() == (4, False)
    one.write()
    one.tell(SettingsChanged(settings("none")))
    assert (one.device(), one.healthy()) == ((1, True), 0)
    one.write()
    one.after(20)
    one.settle()
    assert one.healthy() == 0
    one.settle()
    assert one.healthy() == 4


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.OBSERVE])
def test_in_another_mode_nothing_is_published_and_claims_that_are_prepared_stay_promised(mode: Mode) -> None:
    one = node()
    assert one.prepare(claim("a")) == ""
    one.tell(SettingsChanged(settings(mode=mode)))
    one.settle()
    assert str(one.goals[f"keys-slice:{DRIVER}"].value) == "Special.ABSENT"
    assert (one.row.free, one.healthy()) == (3, 0)
    one.tell(ev.SliceTold(DRIVER))
    one.after(30)
    one.settle()
    assert (one.row.free, one.healthy()) == (3, 3)
    told = one.row.claims
    assert (told.registered, told.published) == (None, 4) if told is not None else mode is Mode.OFF


def test_a_claim_about_which_nobody_asks_any_more_is_forgotten() -> None:
    one = node(keys=1)
    one.root = 1
    one.prepare(claim("a"))
    one.after(290)
    one.sample()
    assert list(one.state.keys.waiting) == ["a"]
    one.after(20)
    one.sample()
    assert not one.state.keys.waiting


HISTORIES: Mapping[str, dict[str, Any]] = {
    "all": {"share": "all"},
    "all, foreign": {"share": "all", "foreign": True},
    "one by claim": {"share": "1"},
    "one by claim, foreign": {"share": "1", "foreign": True},
    "to claims": {"share": "none", "to": "all"},
    "to the plugin": {"share": "all", "to": "none"},
}


SMALL = [(keys, history) for keys in (1, 2) for history in HISTORIES]
LARGE = [(keys, history) for keys in (3, 4) for history in ("one by claim", "one by claim, foreign")]
"""All of three keys take half an hour."""


@pytest.mark.parametrize(
    ("keys", "history"), [pytest.param(*one, marks=[pytest.mark.nightly] * (one[0] > 1)) for one in (*SMALL, *LARGE)]
)
def test_no_history_of_a_small_node_sells_a_key_twice(history: str, keys: int) -> None:
    found = explore(keys, **HISTORIES[history])
    tell(f"{keys} keys, {history}: {found.states} states, {dict(found.counts)}")
    assert found.sold_twice == []
    assert found.states > 100
    if history in ("all", "to claims") or (history == "to the plugin" and keys == 1):
        assert found.counts["fails"] == 0


def test_it_is_told_that_a_claim_is_promised_what_the_kernel_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_claims, "_lacking", lambda *_: ("", ""))
    assert explore(1, "all").sold_twice


def test_it_is_told_that_the_plugin_forgets_what_claims_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeward.features.keys.sums._with_claims", lambda by_spec, begun, *_: (by_spec, begun))
    assert explore(1, "all", to="none").sold_twice
