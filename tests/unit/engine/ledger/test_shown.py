"""What people are shown of sharing and fences: which mode is in force, what misc.max would be, what hangs on whom."""

from dataclasses import replace

import pytest

from nodeward.engine.show.key_rows import key_rows
from nodeward.engine.show.sharing_rows import TDX_LEFT_OUT, removals
from nodeward.engine.state.root import State
from nodeward.model import events as ev
from nodeward.model.decision import Target
from nodeward.model.settings import (
    Attestation,
    EngineSettings,
    KeySettings,
    LedgerSettings,
    LimitsSettings,
    Mode,
    Publisher,
    Share,
)  # fmt: skip
from nodeward.model.tee import PluginStanding
from nodeward.model.view import KeyFence, KeyRow, KeySharing
from nodeward.model.workload import ContainerSpec, PodSpec, PodUid
from tests.unit.engine.build import SECOND, Told, sandbox

OURS, THEIRS = "devices.kubevirt.io/sev-esids", "sev-snp.amd.com/esids"
KIND = KeySettings((OURS, THEIRS), publish=OURS, publisher=Publisher.DEVICE_PLUGIN, share=Share.AUTO, reserve=1)
NFD = ev.NfdSeen(served=True, worker=True, written={"sev_es": 9}, on_node={THEIRS: 16, OURS: 12})


def told(*events: ev.Event, kind: KeySettings = KIND, key: str = "sev_es", mode: Mode = Mode.ENFORCE) -> KeyRow:
    tell = Told(State(settings=EngineSettings(ledger=LedgerSettings(mode, {key: kind}))))
    for event in (ev.GrantsRecalled({}), ev.KeysHeld(0), *events):
        tell.at_ns += SECOND
        tell(event)
    (row,) = key_rows(tell.state, tell.at_ns)
    return row


def pod(uid: str, name: str, amount: int) -> ev.PodSeen:
    return ev.PodSeen(PodSpec(PodUid(uid), "shop", uid, (ContainerSpec("c"),), overhead={name: amount}))


def sample(root: int, *elsewhere: tuple[str, int], key: str = "sev_es", **pods: int) -> ev.KeysRead:
    others = tuple(ev.HeldElsewhere(path, key, amount, below=False) for path, amount in elsewhere)
    held = {PodUid(uid): {key: (amount, amount)} for uid, amount in pods.items()}
    return ev.KeysRead(0, {key: 16}, {key: (root, root)}, held, elsewhere=others)


def sharing(row: KeyRow) -> KeySharing:
    assert row.sharing is not None
    return row.sharing


def test_why_nfds_number_cannot_be_kept_is_shown_whatever_becomes_of_limits() -> None:
    number = Target("nfd", "sev_es")
    missed = ev.Missed(((number, "nodefeatures is forbidden"),))
    ledger = LedgerSettings(Mode.ENFORCE, {"sev_es": KIND})
    settings = [ev.SettingsChanged(EngineSettings(LimitsSettings(mode=mode), ledger=ledger)) for mode in Mode]

    assert sharing(told(NFD, sample(3), *settings[:2], missed)).error == "nodefeatures is forbidden"
    assert sharing(told(NFD, sample(3), missed, *settings)).error == "nodefeatures is forbidden"
    assert sharing(told(NFD, sample(3), missed, ev.Reached((number,)))).error == ""


def test_the_mode_in_force_is_shown_with_both_sides_numbers() -> None:
    found = sharing(told(pod("kata", THEIRS, 2), NFD, sample(5, ("/machine.slice/vm", 3), kata=2)))
    assert (found.mode, found.chosen, found.published, found.nfd) == ("override", "auto", OURS, "working")
    assert (found.sellable, found.asked, found.total, found.written) == (10, 2, 12, 9)
    assert found.on_node == {THEIRS: 16}, "ours is the number that NFD's is to be, and says nothing of NFD's master"
    assert found.sentence == (
        f"share is override (chosen: auto): our plugin offers {OURS} and may sell 10 more; NFD's number is to be 12, "
        "and our object says 9, and pods here ask 2 by it"
    )


def test_without_nfd_auto_is_own_and_in_observe_nothing_is_offered_or_written() -> None:
    assert sharing(told(sample(0))).sentence == (
        f"share is own (chosen: auto): our plugin offers {OURS} and may sell 15 more; NFD's number is left alone, and "
        "pods here ask 0 by it"
    )
    seen = sharing(told(NFD, sample(0), mode=Mode.OBSERVE))
    assert (seen.published, seen.sellable, seen.total, seen.nfd) == ("", None, None, "working")
    rival = ev.PluginTold(OURS, PluginStanding.RIVAL, "kubevirt.sock")
    for more in ({"mode": Mode.OBSERVE}, {"kind": replace(KIND, publisher=Publisher.NONE)}):
        assert "We sell none" not in told(sample(0), rival, **more).sentence, "nor is it meant to be"
    assert sharing(told(ev.NfdSeen(), sample(0))).nfd == "absent"
    assert sharing(told(ev.NfdSeen(served=True), sample(0))).nfd == "served"


@pytest.mark.parametrize(
    ("events", "said"),
    [
        pytest.param((), "not asked yet", id="not-yet"),
        pytest.param((ev.QuotesTold("sev_es", True),), "answers", id="well"),
        pytest.param((ev.QuotesTold("sev_es", False, "gone"),), "gone", id="away"),
    ],
)
def test_whether_quotes_are_made_is_shown_where_it_is_asked(events: tuple[ev.Event, ...], said: str) -> None:
    kind = replace(KIND, attestation=Attestation.OBSERVE, attestation_socket="/run/qgs")
    assert sharing(told(sample(0), *events, kind=kind)).quotes == said
    assert sharing(told(sample(0), *events)).quotes == ""


def test_fences_hold_each_pod_to_its_promise_and_slices_to_what_they_hold() -> None:
    events = (pod("kata", THEIRS, 2), ev.SandboxStarted(sandbox("kata")))
    others = (("/machine.slice/a", 1), ("/machine.slice/b", 2), ("/system.slice/c.service", 1), ("/kubepods/podx", 1))
    found = told(*events, sample(8, *others, kata=3)).fences
    assert found.rows == (
        KeyFence("/kubepods/podkata", 2, "what shop/kata was promised; it holds 1 more, which no fence takes back"),
        KeyFence("/machine.slice", 3, "what it holds now"),
        KeyFence("/system.slice", 1, "what it holds now"),
    )
    assert "every other pod and slice would have 0" in found.why
    assert "5 are set apart (5 in use, 1 in reserve); 11 could be promised" in found.why


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        (replace(KIND, share=Share.OWN), "; set ledger.keys.sev_es.share to auto, so that NFD's number counts what"),
        (KIND, "; end 3 of these pods."),
    ],
    ids=["own", "auto"],
)
def test_more_keys_promised_than_there_are_is_a_finding(kind: KeySettings, remedy: str) -> None:
    grant = ev.GrantsRecalled({OURS: {f"sev-es-key-{number:04d}": 1 for number in range(3)}})
    assert told(grant, pod("kata", THEIRS, 13), sample(3), kind=kind).findings == ()
    (finding,) = told(grant, pod("kata", THEIRS, 16), sample(3), kind=kind).findings
    assert finding.startswith(
        "pods were promised 19 keys of sev_es, and there are 16: 16 by NFD's number and 3 otherwise"
    )
    assert remedy in finding


@pytest.mark.parametrize(
    ("event", "published", "why"),
    [
        (ev.QuotesTold("sev_es", False, "gone"), OURS, "We sell none now: the service that makes quotes at /run/qgs"),
        (ev.PluginTold(OURS, PluginStanding.RIVAL, "kubevirt.sock"), "", "is offered by somebody else"),
        (ev.PluginTold(OURS, PluginStanding.ENDED, "decommissioned"), "", "is not offered: decommissioned"),
    ],
    ids=["no quotes", "KubeVirt has the name", "decommissioned"],
)
def test_no_more_is_said_to_be_for_sale_than_kubelet_may_give_out(event: ev.Event, published: str, why: str) -> None:
    kind = replace(KIND, attestation=Attestation.ENFORCE, attestation_socket="/run/qgs")
    shown = told(ev.QuotesTold("sev_es", True), *[sample(0)] * 4, event, sample(0), kind=kind)
    assert why in " ".join((shown.sentence, *shown.findings))
    assert (sharing(shown).published, sharing(shown).sellable or 0, shown.published or 0) == (published, 0, 0)
    assert {one.state for one in shown.ids} == {"withheld"}


def test_tdx_has_no_fence_and_is_told_why() -> None:
    found = told(pod("kata", THEIRS, 2), sample(2, key="tdx", kata=2), key="tdx").fences
    assert (found.rows, found.why) == ((), TDX_LEFT_OUT)


SHARING = KeySharing("override", "auto", nfd="working")


@pytest.mark.parametrize(
    ("sharing", "checkpoint", "said"),
    [
        pytest.param(KeySharing("own", "own"), True, (), id="nobody-hangs-on-anybody"),
        pytest.param(SHARING, True, ("so none ends",), id="nfd-without-users"),
        pytest.param(replace(SHARING, asked=3), True, ("3 key(s) are asked",), id="kata-runs"),
        pytest.param(replace(SHARING, asked=3), False, ("sets NFD's number to 0",), id="no-plugin-ever"),
        pytest.param(
            replace(SHARING, published=OURS), True, ("none ends", "2 pod(s) with ids run on"), id="our-plugin"
        ),
        pytest.param(replace(SHARING, total=11), True, ("none ends", "is 16 again, though 5 of them"), id="our-object"),
        pytest.param(replace(SHARING, total=16), True, ("none ends",), id="our-object-changes-nothing"),
    ],
)
def test_what_would_break_is_said_before_somebody_is_removed(
    sharing: KeySharing, checkpoint: bool, said: tuple[str, ...]
) -> None:
    found = removals(sharing, 16, 2, has_checkpoint=checkpoint)
    assert len(found) == len(said)
    assert all(part in one for part, one in zip(said, found, strict=True))


@pytest.mark.parametrize(
    ("standing", "said"),
    [
        (PluginStanding.RIVAL, "is offered by somebody else, so not by us: why; counting goes on"),
        (PluginStanding.REFUSED, "is not offered: kubelet refuses it: why."),
        (PluginStanding.WAITING, "is not offered at the moment: why."),
        (PluginStanding.ENDED, "is not offered: why."),
        (PluginStanding.SERVING, ""),
    ],
    ids=lambda value: value.value if isinstance(value, PluginStanding) else "",
)
def test_why_kubelet_does_not_read_our_list_is_a_finding(standing: PluginStanding, said: str) -> None:
    event = ev.PluginTold(KIND.publish, standing, "why")
    findings = told(sample(0), event).findings
    assert [one for one in findings if one.startswith(f"{KIND.publish} {said}")] == list(findings)
    assert len(findings) == bool(said)
    assert told(sample(0), event, mode=Mode.OBSERVE).findings == (), "nothing is to be offered then"
