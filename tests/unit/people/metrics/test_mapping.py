"""What a picture of the node becomes: which series there are, which there are not, and that no name can break them."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from nodeward import __version__
from nodeward.features.keys.refusals import REMEDIES
from nodeward.features.keys.rows import KeyOffer, KeyRow, KeySharing
from nodeward.features.keys.terms import REFUSALS
from nodeward.people.metrics import mapping
from nodeward.people.metrics.mapping import FAMILIES, MOST_CHARACTERS
from nodeward.people.rows import NodeView
from tests.unit.people.metrics import build
from tests.unit.people.metrics.build import APP, HELD, KNOWN, POD, RICH, SANDBOXES, node, read, scrape, values

(OFFERED,) = RICH.keys
READ = replace(OFFERED, orphan_ms=None, leaked=0, ids=(), refusals={}, offer=None, sharing=None)
TDX = KeyRow("tdx", OFFERED.resources, 16, 1)
LONG = "/a" * MOST_CHARACTERS
SHOWN = Path(__file__).with_name("everything.prom")
"""Its samples as Prometheus reads them, for a person to read and to change."""


def test_everything_that_is_known_is_shown_so() -> None:
    lines = [line for line in scrape(RICH).splitlines() if not line.startswith(("#", "nodeward_build_info"))]
    assert lines == SHOWN.read_text(encoding="utf-8").splitlines()
    assert [one.labels for one in read(RICH) if one.name == "nodeward_build_info"] == [{"version": __version__}]


def test_a_container_without_a_limit_has_no_limit_and_says_that_it_has_none() -> None:
    view = node(replace(APP, resources=(replace(HELD, wanted=None, limit=None),)))

    assert values(view, "nodeward_misc_limit", level="container") == []
    assert values(view, "nodeward_misc_limited", level="container") == [0.0]
    assert values(view, "nodeward_misc_declared") == []


def test_of_a_cgroup_that_was_not_read_only_what_is_known_is_shown() -> None:
    view = node(replace(APP, state="pending", resources=(build.UNREAD,)))

    shown = {one.name for one in read(view) if one.labels.get("container") == "app"}

    assert shown == {"nodeward_misc_declared", "nodeward_enforcement_state", "nodeward_container_info"}


@pytest.mark.parametrize("new_first", [True, False], ids=["new first", "old first"])
def test_of_two_instances_of_one_container_the_one_that_was_read_is_shown(new_first: bool) -> None:
    old, new = replace(APP, id="a0", state="stale"), replace(APP, id="b1", resources=(replace(HELD, usage=7),))
    view = node(POD, new, old) if new_first else node(POD, old, new)

    assert values(view, "nodeward_misc_usage", container="app") == [7.0]
    cut = [
        replace(one, level="pod", container="", cgroup=f"{LONG}/{one.id}", id="") for one in view.rows if one.container
    ]
    assert values(node(*cut), "container_misc_usage") == [7.0], "of two cgroups whose paths are cut, too"
    assert [one.labels["state"] for one in read(view) if one.name == "nodeward_enforcement_state"] == ["enforced"] * 2
    assert len(values(view, "nodeward_container_info")) == 2


def test_a_wrapped_counter_and_one_that_is_blind_are_told() -> None:
    wrapped = keys_of(replace(node(), keys=(replace(READ, free=0, blind=True, wrapped=True),)))
    assert (wrapped["free"], wrapped["blind"], wrapped["wrapped"]) == (0, 1, 1)


def test_each_reason_of_a_refusal_has_a_remedy() -> None:
    assert tuple(REMEDIES) == REFUSALS


def keys_of(view: NodeView) -> dict[str, float]:
    found = [one for one in read(view) if one.name.startswith("nodeward_keys_")]
    assert all(one.labels["key"] == "tdx" for one in found)
    whose = [one.labels.get("class", "") for one in found]
    short = [one.name.removeprefix("nodeward_keys_") for one in found]
    return {f"{name} {place}".strip(): one.value for name, place, one in zip(short, whose, found, strict=True)}


def test_keys_that_are_not_offered_have_no_series_of_an_offer() -> None:
    counted, shared = (replace(node(), keys=(row,)) for row in (READ, replace(READ, sharing=KeySharing("own", "own"))))
    assert {one.name for one in read(shared)} - {one.name for one in read(counted)} == {"nodeward_keys_share_info"}
    quiet = replace(OFFERED, offer=KeyOffer())
    assert values(replace(node(), keys=(quiet,)), "nodeward_keys_quotes_answer") == [], "nobody asks it"


def test_of_keys_that_were_not_read_there_is_the_capacity_alone_and_of_none_nothing() -> None:
    assert keys_of(replace(node(), keys=(TDX,))) == {"capacity": 16, "reserve": 1}
    assert keys_of(replace(node(), keys=(replace(TDX, capacity=0),))) == {}
    assert keys_of(node()) == {}, "keys.mode is off"


def test_ids_that_are_offered_have_their_series_while_the_kernel_cannot_be_read() -> None:
    """Else the alert that none is offered any more would never be."""
    unread = replace(OFFERED, capacity=0, used=None, offer=KeyOffer(withheld="uncounted"))
    view = replace(node(), keys=(unread,))
    assert values(view, "nodeward_keys_withheld", key="tdx", reason="uncounted") == [1.0]
    assert values(view, "nodeward_keys_capacity") == []


def test_every_family_of_the_catalogue_is_made_and_has_the_labels_that_it_names() -> None:
    parts = re.compile(r"(?<=_duration_seconds)_(bucket|count|sum)$")
    found = {parts.sub("", one.name): tuple(sorted(one.labels.keys() - {"le"})) for one in read(RICH)}

    assert found == {family.name: tuple(sorted(family.labels)) for family in FAMILIES}


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
    assert build.untold(scrape(view)) == []


PLAIN = read(node(POD, APP))


@settings(max_examples=50)
@given(
    st.text(max_size=40) | st.sampled_from(["a\nb", 'say "so"', "back\\slash", "\\n", "a\x00b", "\ud800", "é\u2028"])
)
def test_no_name_breaks_the_text(name: str) -> None:
    odd = read(node(POD, replace(APP, container=name, id=name, cgroup=name, pod=name)))

    assert [(one.name, one.value) for one in odd] == [(one.name, one.value) for one in PLAIN]


@pytest.mark.parametrize("name", ["a\x00b", "a\rb", "a\ud800b"])
def test_what_would_end_the_text_is_replaced(name: str) -> None:
    assert values(node(replace(APP, container=name)), "nodeward_misc_usage", container="a\ufffdb") == [1024.0]


def test_a_name_without_end_is_cut() -> None:
    found = read(node(replace(APP, container="x" * 10**6)))
    assert max(len(value) for one in found for value in one.labels.values()) == MOST_CHARACTERS


def counted(view: NodeView, name: str, left_out: str) -> tuple[int, list[float]]:
    """How many series have this name, and the number that is left out; not by the text, which takes long to parse."""
    samples = [one for family in mapping.metrics(view) for one in family.samples]
    left = [one.value for one in samples if one.name == f"nodeward_{left_out}_left_out"]
    return sum(one.name == name for one in samples), left


def test_beyond_the_bound_cgroups_are_left_out_and_counted() -> None:
    assert counted(build.full_node(pods=1670, per_pod=2), "nodeward_enforcement_state", "metrics_cgroups") == (
        5000,
        [10],
    )


class Picture(Collector):
    """A collector over a view, for prometheus_client's own writer."""

    def __init__(self, view: NodeView) -> None:
        self._view = view

    def collect(self) -> list[Metric]:
        return [one for one in mapping.metrics(self._view) if one.samples and one.name != "container_misc_events"]


def test_the_text_says_what_prometheus_clients_own_writer_says() -> None:
    odd = ("a\nb", 'say "so"', "back\\slash", "ünïcode", "")
    view = replace(RICH, rows=(*RICH.rows, *(replace(APP, container=name, id=name) for name in odd)))

    all_ = list(text_string_to_metric_families(scrape(view)))
    ours = [one for one in all_ if one.name != "container_misc_events"]  # their writer would call it _total
    theirs = list(text_string_to_metric_families(generate_latest(Picture(view)).decode()))

    assert ours == theirs
    assert [(one.type, one.documentation) for one in ours] == [(one.type, one.documentation) for one in theirs]


def test_without_a_relay_there_is_no_series_of_one_but_that_it_is_missing() -> None:
    bare = replace(RICH, relay=None, health={})
    assert [one.name for one in read(bare) if "_relay_" in one.name] == []
    missing = [one for one in read(replace(bare, relay_missing=True)) if "_relay_" in one.name]
    assert [(one.name, one.value) for one in missing] == [("nodeward_relay_up", 0.0)]
    assert values(RICH, "nodeward_relay_up") == [1.0]


def test_of_a_runtime_that_nobody_asked_nothing_is_said() -> None:
    assert RICH.relay is not None
    door = replace(RICH.relay.doors[0], present=None)

    assert values(replace(RICH, relay=replace(RICH.relay, doors=(door,), dump=None)), "nodeward_relay_runtime_up") == []


VMS = replace(node(), sandboxes=SANDBOXES)


def test_of_a_node_and_a_class_that_were_not_measured_there_is_no_figure() -> None:
    view = replace(SANDBOXES, unaccounted_memory=None, unaccounted_cpu_m=None, reserved_memory=None)
    found = read(replace(VMS, sandboxes=replace(view, reserved_cpu_m=None)))

    assert [one.name for one in found if "unaccounted" in one.name or "reserved" in one.name] == []
    assert [one.name for one in found if one.labels.get("class") == "new"] == ["nodeward_sandboxes_class_samples"]


def test_while_sandboxes_are_off_no_series_speaks_of_them() -> None:
    assert [one.name for one in read(node()) if "_sandboxes_" in one.name] == []


def test_beyond_the_bound_sandboxes_are_left_out_and_counted() -> None:
    rows = tuple(replace(KNOWN, id=f"{number:064x}") for number in range(1007))
    view = replace(VMS, sandboxes=replace(SANDBOXES, rows=rows))

    assert counted(view, "nodeward_sandboxes_sandbox_info", "sandboxes") == (1000, [7])


def test_two_whose_names_are_cut_are_no_two_same_series() -> None:
    """An id is a word on somebody's command line, and may be of any length."""
    rows = tuple(replace(KNOWN, id="x" * 600 + end) for end in "ab")
    classes = tuple(replace(SANDBOXES.classes[0], name="x" * 600 + end) for end in "ab")
    handlers = tuple(replace(SANDBOXES.handlers[0], name="x" * 600 + end) for end in "ab")
    view = replace(SANDBOXES, rows=rows, classes=classes, handlers=handlers)

    assert build.untold(scrape(replace(VMS, sandboxes=view))) == []
