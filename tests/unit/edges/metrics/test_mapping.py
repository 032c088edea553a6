"""What a picture of the node becomes: which series there are, which there are not, and that no name can break them."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from nodeward.edges.metrics import mapping
from nodeward.edges.metrics.exposition import pieces
from nodeward.edges.metrics.families import FAMILIES
from nodeward.edges.metrics.mapping import MOST_CHARACTERS
from nodeward.engine.ledger.refusals import REMEDIES
from nodeward.model.conditions import CODES, Condition, Level, Severity, Verdict
from nodeward.model.cpu_rows import CpuHolderRow, CpuPoolRow, CpuRow, CpusView
from nodeward.model.gate import GateRow
from nodeward.model.rows import ConfigRow
from nodeward.model.tee import REFUSALS
from nodeward.model.view import (
    AddedRow,
    CallRow,
    ComponentRow,
    DecidedRow,
    DoorRow,
    DriverRow,
    DumpRow,
    GatedRow,
    GatesView,
    KeyDelays,
    KeyElsewhere,
    KeyIdRow,
    KeyOffer,
    KeyRow,
    KeySharing,
    NodeView,
    RelayView,
)
from tests.unit.edges.metrics.build import APP, EPC, HELD, POD, UNREAD, full_node, node, read, scrape, untold, values
from tests.unit.edges.metrics.sandboxes import SANDBOXES

TDX = KeyRow("tdx", ("devices.kubevirt.io/tdx",), 16, 1)
READ = replace(
    TDX,
    used=6,
    entitled=5,
    charged=4,
    foreign=2,
    free=8,
    age_ms=250,
    elsewhere=(
        KeyElsewhere("/machine.slice/a.scope", "", 1, "machine"),
        KeyElsewhere("/machine.slice/b.scope", "", 1, "machine"),
    ),
)
OFFERED = replace(
    READ,
    orphan_ms=90_000,
    leaked=2,
    ids=tuple(KeyIdRow(f"tdx-key-{n}", "granted" if n < 4 else "free" if n < 14 else "withheld", 5) for n in range(16)),
    refusals={"foreign": 3},
    offer=KeyOffer(
        withheld="quotes",
        standing="serving",
        kubelet_restarts=2,
        quotes=False,
        journal_fault="the disk is full",
        journal_lost="it was removed",
        delays=KeyDelays(3, 5_200_000_000, ((100_000_000, 1), (2_500_000_000, 3))),
    ),
    sharing=KeySharing("override", "auto", total=9, written=8, nfd="working"),
)
RELAY = RelayView(
    "1",
    7,
    1,
    doors=(DoorRow("/run/nodeward/cri.sock", "/run/containerd/containerd.sock", True, 2, 3, 4, 5, 6),),
    calls=(
        CallRow("CreateContainer", {"OK": 8, "RESOURCE_EXHAUSTED": 1}, {"changed": 8, "refused": 1}),
        CallRow("Version", {"OK": 20}, {"passed": 20}),
    ),
    added=(AddedRow("held", 9, 18_000, ((8192, 9),)),),
    queues={"held": 11},
    limits=DriverRow(here=True, unread=12),
    dump=DumpRow("/tmp/cri.dump", 13, 14, 15, 16),
    gate=GateRow("enforce", {"refused": 17}),
    config=ConfigRow("/run/cri-resmgr/cri-resmgr-config.sock", "node-1", 1, ("a", "b")),
)
CPUS = CpusView(
    *("static", "enforce", "nri", "0-3"),
    tuple(CpuRow(cpu, cpu, cpu, 0, 0, 0, 0, "ns/web/app") for cpu in (2, 3))
    + tuple(CpuRow(cpu, cpu, cpu, 0, 1, 0, 0, pools=("shared",)) for cpu in (0, 1)),
    (CpuPoolRow("shared", "0-1", ("ns/web/log", "ns/web/web"), "2"),),
    (
        CpuHolderRow("ns", "web", "app", "exclusive", cpus="2-3", own="2-3", state="held"),
        CpuHolderRow("ns", "web", "log", "shared", cpus="0-1", pool="shared", request_m=500, state="held"),
        CpuHolderRow("ns", "web", "web", "shared", cpus="0-1", pool="shared", state="failed"),
    ),
    refused=("it does not fit",),
    drifts=5,
    late=6,
)
WRONG = Verdict(
    Level.BAD, "Nothing can be read.", (Condition("cannot-read", Severity.CRITICAL, "Nothing can be read"),)
)
RICH = replace(
    node(POD, APP, replace(APP, container="old", id="dead", resources=(replace(HELD, usage=-1),))),
    elsewhere={EPC: 7},
    verdict=WRONG,
    keys=(OFFERED,),
    relay=RELAY,
    cpus=CPUS,
    sandboxes=SANDBOXES,
    gates=GatesView("enforce", (GatedRow("ns", "web", "u", "PASSED"), GatedRow("ns", "a", "v", "PENDING", "no")), 18),
    decided=(DecidedRow("Creating", 1, 9000, ((8192, 0), (32768, 1))),),
    components=(ComponentRow("cgroups", True, since_wall_ns=1_700_000_000 * 10**9),),
    health={
        **dict.fromkeys(("goals", "goals_unreached", "goals_quarantined", "sample_age_ms", "loop_lag_max_us"), 1),
        **dict.fromkeys(("loop_lag_p99_us", "loop_stalls", "component_restarts", "lanes_stuck", "not_restorable"), 1),
        "state_unread": 1,
        **dict.fromkeys(
            (
                "record_dropped",
                "files_unwritten",
                "domain_faults",
                "lane_disk_waiting",
                "lane_disk_hung",
                "asks_at-once",
            ),
            1,
        ),
        **dict.fromkeys(("notices_left_out", "kube_events_sent", "watch_age_ms", "lane_disk_age_ms"), 1),
    },
)
"""A picture in which there is something to show of every family."""


def test_a_container_without_a_limit_has_no_limit_and_says_that_it_has_none() -> None:
    view = node(replace(APP, resources=(replace(HELD, wanted=None, limit=None),)))

    assert values(view, "nodeward_misc_limit", level="container") == []
    assert values(view, "nodeward_misc_limited", level="container") == [0.0]
    assert values(view, "nodeward_misc_declared") == []


def test_of_a_cgroup_that_was_not_read_only_what_is_known_is_shown() -> None:
    view = node(replace(APP, state="pending", resources=(UNREAD,)))

    shown = {one.name for one in read(view) if one.labels.get("container") == "app"}

    assert shown == {"nodeward_misc_declared", "nodeward_enforcement_state", "nodeward_container_info"}


def test_the_series_of_a_container_vanish_with_it() -> None:
    before, after = node(POD, APP), node(POD)

    assert any(one.labels.get("container") == "app" for one in read(before))
    assert not any(one.labels.get("container") == "app" for one in read(after))


def test_the_container_id_is_in_the_info_series_and_where_cadvisor_has_it() -> None:
    named = {one.name for one in read(node(POD, APP)) if "c0ffee" in "".join(one.labels.values())}

    assert named == {"nodeward_container_info", "container_misc_usage", "container_misc_events"}


def test_cadvisors_series_have_its_labels_and_ours_for_the_resource() -> None:
    app = replace(APP, image="shop/web:2")
    found = [one for one in read(node(POD, app)) if one.name == "container_misc_usage"]

    assert found[0].labels.get("image", "") == ""
    assert [one.labels["id"] for one in found] == ["/kubepods/podu", "/kubepods/podu/c0ffee"]
    assert found[1].labels == {
        "container": "app",
        "id": "/kubepods/podu/c0ffee",
        "image": "shop/web:2",
        "name": "c0ffee",
        "namespace": "ns",
        "pod": "web",
        "resource": EPC,
    }


@pytest.mark.parametrize("new_first", [True, False], ids=["new first", "old first"])
def test_of_two_instances_of_one_container_the_one_that_was_read_is_shown(new_first: bool) -> None:
    """Given an ended instance that still has a row, and the new one, then no two series are the same."""
    old, new = replace(APP, id="a0", state="stale"), replace(APP, id="b1", resources=(replace(HELD, usage=7),))
    view = node(POD, new, old) if new_first else node(POD, old, new)

    assert values(view, "nodeward_misc_usage", container="app") == [7.0]
    assert len(values(view, "nodeward_container_info")) == 2


def test_a_counter_below_zero_is_flagged_and_no_usage() -> None:
    view = node(replace(APP, resources=(replace(HELD, usage=-1),)))

    assert values(view, "nodeward_misc_usage", level="container") == []
    assert values(view, "container_misc_usage") == []
    assert values(view, "nodeward_misc_underflow", level="container") == [1.0]


def test_a_charge_in_no_pod_is_orphaned_as_the_picture_says() -> None:
    assert values(replace(node(POD), elsewhere={EPC: 0}), "nodeward_misc_orphaned", resource=EPC) == [0.0]
    assert values(replace(node(POD), elsewhere={EPC: 7}), "nodeward_misc_orphaned", resource=EPC) == [7.0]
    assert values(node(POD), "nodeward_misc_orphaned") == []


def keys_of(view: NodeView) -> dict[str, float]:
    """The ledger's series, by name (and class)."""
    found = [one for one in read(view) if one.name.startswith("nodeward_keys_")]
    assert all(one.labels["key"] == "tdx" for one in found)
    whose = [one.labels.get("class", "") for one in found]
    short = [one.name.removeprefix("nodeward_keys_") for one in found]
    return {f"{name} {place}".strip(): one.value for name, place, one in zip(short, whose, found, strict=True)}


def test_keys_have_the_numbers_of_their_row_and_foreign_use_is_summed_by_class() -> None:
    known = {"capacity": 16, "reserve": 1, "used": 6, "entitled": 5, "charged": 4, "foreign": 2, "free": 8}

    assert keys_of(replace(node(), keys=(READ,))) == {
        **known,
        "elsewhere machine": 2,
        "leaked": 0,
        "blind": 0,
        "wrapped": 0,
        "sample_age_seconds": 0.25,
    }
    wrapped = keys_of(replace(node(), keys=(replace(READ, free=0, blind=True, wrapped=True),)))
    assert (wrapped["free"], wrapped["blind"], wrapped["wrapped"]) == (0, 1, 1)


def test_what_kubelet_is_offered_is_counted_by_state_and_reason() -> None:
    view = replace(node(), keys=(OFFERED,))
    found = {
        (
            one.name.removeprefix("nodeward_ledger_"),
            *(v for k, v in sorted(one.labels.items()) if k != "key"),
        ): one.value
        for one in read(view)
        if one.name.startswith("nodeward_ledger_") and one.value and "_duration_" not in one.name
    }

    assert found == {
        ("ids", "granted"): 4,
        ("ids", "free"): 10,
        ("ids", "withheld"): 2,
        ("refusals_total", "foreign"): 3,
        ("withheld", "quotes"): 1,
        ("plugin_state", "serving"): 1,
        ("kubelet_restarts_total",): 2,
        ("journal_fault",): 1,
        ("journal_lost",): 1,
        ("share_info", "override", "working"): 1,
        ("nfd_keys", "wanted"): 9,
        ("nfd_keys", "ours"): 8,
    }
    name = "nodeward_ledger_withholding_duration_seconds"
    assert [values(view, f"{name}_bucket", le=bound, key="tdx") for bound in ("0.1", "2.5", "+Inf")] == [[1], [3], [3]]
    assert (values(view, f"{name}_count"), values(view, f"{name}_sum")) == ([3.0], [5.2])
    assert values(view, "nodeward_ledger_quotes_answer") == [0.0]
    refused = [values(view, "nodeward_ledger_refusals_total", reason=reason) for reason in REMEDIES]
    assert refused == [[3.0 if reason == "foreign" else 0.0] for reason in REMEDIES], "the first refusal has to show"
    assert tuple(REMEDIES) == REFUSALS
    assert values(view, "nodeward_keys_orphan_age_seconds") == [90.0]
    assert values(view, "nodeward_keys_leaked") == [2.0]


def test_a_ledger_that_offers_nothing_has_no_series_of_it() -> None:
    view = replace(node(), keys=(replace(READ, sharing=KeySharing("own", "own")),))
    names = {one.name: None for one in read(view) if one.name.startswith("nodeward_ledger_")}

    assert list(names) == ["nodeward_ledger_share_info"]
    quiet = replace(OFFERED, offer=KeyOffer())
    assert values(replace(node(), keys=(quiet,)), "nodeward_ledger_quotes_answer") == [], "nobody asks it"


def test_of_keys_that_were_not_read_there_is_the_capacity_alone_and_of_none_nothing() -> None:
    assert keys_of(replace(node(), keys=(TDX,))) == {"capacity": 16, "reserve": 1}
    assert keys_of(replace(node(), keys=(replace(TDX, capacity=0),))) == {}
    assert keys_of(node()) == {}, "the ledger is off"


def test_ids_that_are_offered_have_their_series_while_the_kernel_cannot_be_read() -> None:
    """Else the alert that none is offered any more would never be."""
    unread = replace(OFFERED, capacity=0, used=None, offer=KeyOffer(withheld="uncounted"))
    view = replace(node(), keys=(unread,))
    assert values(view, "nodeward_ledger_withheld", key="tdx", reason="uncounted") == [1.0]
    assert values(view, "nodeward_keys_capacity") == []


def test_durations_are_a_histogram_in_seconds() -> None:
    view = replace(node(), decided=(DecidedRow("Creating", 5, 3_000_000, ((8192, 2), (32768, 4))),))

    name = "nodeward_decide_duration_seconds"
    buckets = {one.labels["le"]: one.value for one in read(view) if one.name == f"{name}_bucket"}
    assert buckets == {"8.192e-06": 2.0, "3.2768e-05": 4.0, "+Inf": 5.0}
    assert values(view, f"{name}_count", event="Creating") == [5.0]
    assert values(view, f"{name}_sum", event="Creating") == [0.003]


def test_each_condition_is_0_or_1_by_its_code() -> None:
    found = {one.labels["code"]: one.value for one in read(RICH) if one.name == "nodeward_condition"}
    assert [code for code, value in found.items() if value] == ["cannot-read"]
    assert list(found) == list(CODES)


def test_every_family_of_the_catalogue_is_made_and_has_the_labels_that_it_names() -> None:
    parts = re.compile(r"(?<=_duration_seconds)_(bucket|count|sum)$")
    found = {parts.sub("", one.name): tuple(sorted(one.labels.keys() - {"le"})) for one in read(RICH)}

    assert found == {family.name: tuple(sorted(family.labels)) for family in FAMILIES}


LONG = "/a" * MOST_CHARACTERS


@pytest.mark.parametrize(
    "view",
    [
        RICH,
        node(POD, APP, replace(APP, id="b1"), replace(APP, container="", id=""), POD),
        node(APP, replace(APP, cgroup="/elsewhere")),
        node(*(replace(POD, cgroup=f"{LONG}/{number}") for number in (1, 2))),
    ],
    ids=["of everything", "rows that differ in little", "one container in two cgroups", "paths that differ at the end"],
)
def test_each_type_is_told_once_and_no_two_series_are_the_same(view: NodeView) -> None:
    assert untold(scrape(view)) == []


@pytest.mark.parametrize("new_first", [True, False], ids=["new first", "old first"])
def test_of_two_cgroups_whose_paths_are_cut_the_one_that_was_read_is_shown(new_first: bool) -> None:
    old = replace(POD, cgroup=f"{LONG}/old", state="stale")
    new = replace(POD, cgroup=f"{LONG}/new", resources=(replace(HELD, usage=7),))
    view = node(new, old) if new_first else node(old, new)

    assert values(view, "container_misc_usage") == [7.0]


@given(
    st.text(max_size=40) | st.sampled_from(["a\nb", 'say "so"', "back\\slash", "\\n", "a\x00b", "\ud800", "é\u2028"])
)
def test_no_name_breaks_the_text(name: str) -> None:
    """Given a name of any characters, then the text has exactly the series it has with an ordinary name."""
    plain, odd = node(POD, APP), node(POD, replace(APP, container=name, id=name, cgroup=name, pod=name))

    assert [one.name for one in read(odd)] == [one.name for one in read(plain)]
    assert [one.value for one in read(odd)] == [one.value for one in read(plain)]


@pytest.mark.parametrize("name", ["a\x00b", "a\rb", "a\ud800b"])
def test_what_would_end_the_text_is_replaced(name: str) -> None:
    assert values(node(replace(APP, container=name)), "nodeward_misc_usage", container="a\ufffdb") == [1024.0]


def test_a_name_without_end_is_cut() -> None:
    longest = max(
        len(value) for one in read(node(replace(APP, container="x" * 10**6))) for value in one.labels.values()
    )

    assert longest == MOST_CHARACTERS


def test_beyond_the_bound_cgroups_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping, "MOST_CGROUPS", 20)

    view = full_node(pods=10, per_pod=2)

    assert len(values(view, "nodeward_enforcement_state")) == 20
    assert values(view, "nodeward_metrics_cgroups_left_out") == [10]


def test_the_age_of_the_sample_is_unknown_before_the_first_one() -> None:
    never = replace(RICH, components=(ComponentRow("cgroups", False),))

    assert values(never, "nodeward_sample_age_seconds") == []
    assert values(RICH, "nodeward_sample_age_seconds") == [0.001]


class Picture(Collector):
    """A collector over a view, for prometheus_client's own writer."""

    def __init__(self, view: NodeView) -> None:
        self._view = view

    def collect(self) -> list[Metric]:
        return [one for one in mapping.metrics(self._view) if one.samples and one.name != "container_misc_events"]


@pytest.mark.parametrize("name", ["app", "a\nb", 'say "so"', "back\\slash", "ünïcode", ""])
def test_the_text_says_what_prometheus_clients_own_writer_says(name: str) -> None:
    """Given the same families, then the writers differ in the order of labels and the look of numbers only."""
    view = replace(RICH, rows=(*RICH.rows, replace(APP, container=name, id=name)))

    all_ = list(text_string_to_metric_families(b"".join(pieces(mapping.metrics(view))).decode()))
    ours = [one for one in all_ if one.name != "container_misc_events"]  # their writer would call it _total
    theirs = list(text_string_to_metric_families(generate_latest(Picture(view)).decode()))

    assert ours == theirs
    assert [(one.type, one.documentation) for one in ours] == [(one.type, one.documentation) for one in theirs]


def test_the_events_proposed_for_cadvisor_are_a_counter_under_their_own_name() -> None:
    text = b"".join(pieces(mapping.metrics(RICH))).decode()
    (found,) = (one for one in text_string_to_metric_families(text) if one.name == "container_misc_events")

    assert found.type == "counter"
    assert found.samples
    assert text.count("\ncontainer_misc_events{") == len(found.samples)
    assert "# TYPE container_misc_events counter\n" in text
    assert "container_misc_events_total" not in text


WEB = {"level": "container", "namespace": "ns", "pod": "web", "container": "app", "resource": EPC}


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("nodeward_misc_usage", WEB, 1024),
        ("nodeward_misc_limit", WEB, 4096),
        ("nodeward_misc_limited", WEB, 1),
        ("nodeward_misc_peak", WEB, 2048),
        ("nodeward_misc_declared", WEB, 4096),
        ("nodeward_misc_refusals_total", {**WEB, "scope": "local"}, 2),
        ("nodeward_misc_refusals_total", {**WEB, "scope": "subtree"}, 3),
        ("nodeward_cpus_policy_info", {"policy": "static", "mode": "enforce", "driver": "nri"}, 1),
        ("nodeward_cpus_online", {}, 4),
        ("nodeward_cpus_exclusive", {}, 2),
        ("nodeward_cpus_pool", {"pool": "shared"}, 2),
        ("nodeward_cpus_pool_lent", {"pool": "shared"}, 1),
        ("nodeward_cpus_pool_requested", {"pool": "shared"}, 0.5),
        ("nodeward_cpus_numa", {"numa": "0", "use": "exclusive"}, 2),
        ("nodeward_cpus_numa", {"numa": "1", "use": "shared"}, 2),
        ("nodeward_cpus_numa", {"numa": "1", "use": "exclusive"}, 0),
        ("nodeward_cpus_numa_requested", {"numa": "0"}, 2),
        ("nodeward_cpus_numa_requested", {"numa": "1"}, 0.5),
        ("nodeward_cpus_containers", {"kind": "exclusive"}, 1),
        ("nodeward_cpus_containers", {"kind": "shared"}, 2),
        ("nodeward_cpus_containers_state", {"state": "held"}, 2),
        ("nodeward_cpus_containers_state", {"state": "failed"}, 1),
        ("nodeward_cpus_drifts_total", {}, 5),
        ("nodeward_cpus_late_starts_total", {}, 6),
        ("nodeward_cpus_settings_refused", {}, 1),
        ("nodeward_relay_calls_total", {"method": "CreateContainer", "result": "RESOURCE_EXHAUSTED"}, 1.0),
        ("nodeward_relay_decisions_total", {"method": "CreateContainer", "outcome": "changed"}, 8.0),
        ("nodeward_relay_added_duration_seconds_bucket", {"how": "held", "le": "8.192e-06"}, 9.0),
        ("nodeward_relay_added_duration_seconds_sum", {"how": "held"}, 1.8e-05),
        ("nodeward_relay_clients", {"listen": "/run/nodeward/cri.sock"}, 2.0),
        ("nodeward_relay_connections_total", {}, 3.0),
        ("nodeward_relay_unseen_connections_total", {}, 4.0),
        ("nodeward_relay_undecided_total", {}, 5.0),
        ("nodeward_relay_faults_total", {}, 6.0),
        ("nodeward_relay_runtime_up", {"runtime": "/run/containerd/containerd.sock"}, 1.0),
        ("nodeward_relay_queue_bytes", {"queue": "held"}, 11.0),
        ("nodeward_relay_unread_total", {}, 12.0),
        ("nodeward_relay_dump_told_total", {}, 13.0),
        ("nodeward_relay_dump_lost_total", {}, 14.0),
        ("nodeward_relay_dump_cut_total", {}, 16.0),
        ("nodeward_relay_decides_limits", {}, 1.0),
        ("nodeward_gate_relayed_total", {"outcome": "refused"}, 17.0),
        ("nodeward_gate_refused_total", {}, 18.0),
        ("nodeward_gate_pods", {"state": "shut"}, 1.0),
        ("nodeward_relay_configuration_faults", {}, 2.0),
    ],
)
def test_what_is_known_is_shown(name: str, labels: dict[str, str], value: float) -> None:
    assert values(RICH, name, **labels) == [value]


def test_calls_that_nobody_decides_are_no_decisions() -> None:
    assert values(RICH, "nodeward_relay_decisions_total", method="Version") == []


def test_without_a_relay_there_is_no_series_of_one_but_that_it_is_missing() -> None:
    assert [one.name for one in read(replace(RICH, relay=None)) if "_relay_" in one.name] == []
    missing = [one for one in read(replace(RICH, relay=None, relay_missing=True)) if "_relay_" in one.name]
    assert [(one.name, one.value) for one in missing] == [("nodeward_relay_up", 0.0)]
    assert values(RICH, "nodeward_relay_up") == [1.0]


def test_of_a_runtime_that_nobody_asked_nothing_is_said() -> None:
    door = replace(RELAY.doors[0], present=None)

    assert values(replace(RICH, relay=replace(RELAY, doors=(door,), dump=None)), "nodeward_relay_runtime_up") == []
