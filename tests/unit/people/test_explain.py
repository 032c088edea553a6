"""What people are told is true: of faults, unknown pods, modes, what is declared, and since when it is stale."""

from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import pytest
from rich.console import Console

from nodeward.core import events as ev
from nodeward.core.annotations import OWN_LIMITS, UPSTREAM_EPC
from nodeward.core.modes import Mode
from nodeward.core.workload import SHORT_ID, ContainerId, ContainerSpec, PodUid
from nodeward.features.keys.rows import KeyHolder, KeyRow
from nodeward.features.limits import promise
from nodeward.features.limits.settings import LimitsSettings, UnknownPod
from nodeward.features.root import SettingsChanged
from nodeward.people.explain import LEAST_ID, explain
from nodeward.people.rows import NodeView
from nodeward.people.table import render
from nodeward.people.view import node_view
from tests.goals import target
from tests.unit.features.build import EPC, RULE, SECOND, Told, container_spec, node, pod_spec, running, started

POD = "/kubepods/podA"
APP = f"{POD}/A-app"
FAULT = "spec.containers[0].resources.limits[sgx.intel.com/epc]: '1.5.0Mi' is no quantity"


def view(told: Told) -> NodeView:
    return node_view(told.state, told.at_ns, {})


def said(told: Told, what: str = "shop/pod-A/app") -> str:
    return "\n".join(explain(view(told), what) or [])


def of_pod(told: Told) -> str:
    return said(told, "shop/pod-A").partition("container shop/")[0]


def status(told: Told) -> str:
    console = Console(width=200)
    with console.capture() as shown:
        console.print(render(view(told)))
    return shown.get()


def known_by(annotations: dict[str, str], rule: LimitsSettings = RULE) -> Told:
    told = node(rule)
    told(started("A", "app", annotations))
    return told


def sampled(told: Told, amount: int | None) -> Told:
    told(ev.Reached((target(f"misc.max:{EPC}:{APP}"),)))
    told(ev.Sampled({APP: ev.MiscReading(limit={} if amount is None else {EPC: amount})}, as_of=told.state.seq))
    return told


def test_a_pod_that_is_known_by_its_keys_alone_is_explained_by_its_uid() -> None:
    uid = "00000000-0000-4000-8000-000000000001"
    keys = KeyRow("tdx", (), 8, 0, used=0, free=7, holders=(KeyHolder("", uid, uid, 1, 0, ("tdx-key-0000",)),))
    shown = replace(view(node(RULE)), keys=(keys,))
    assert any("tdx" in line for line in explain(shown, uid) or [])
    assert explain(shown, uid[:-1]) is None


TWO = LimitsSettings(resources={"sgx.intel.com/epc": EPC, "intel.com/tdx": "tdx"})


def two_resources(after: Mode = Mode.ENFORCE) -> Told:
    told = node(TWO)
    told(ev.PodSeen(pod_spec("A", ContainerSpec("app", declared={EPC: 5, "tdx": 1}))))
    told(started("A", "app"))
    sampled(told, 5)
    if after is not Mode.ENFORCE:
        told(SettingsChanged(replace(told.state.settings, limits=replace(TWO, mode=after))))
        sampled(told, 5)
    return told


def undeclared() -> Told:
    told = sampled(running(), 5)
    told(ev.PodSeen(pod_spec("A", container_spec("app"))))
    return told


EARLIER = "sgx_epc: unmanaged (last written by us in an earlier life of the daemon, or by another)"


@pytest.mark.parametrize(
    ("make", "has", "lacks"),
    [
        pytest.param(
            two_resources,
            (
                "tdx: unsupported. This kernel has no such resource",
                "tdx: 1 is wanted",
                "The kernel reads back the wanted limit of sgx_epc, and not of tdx.",
            ),
            ("tdx: the limit is not held", "sgx_epc: unsupported"),
            id="of two resources the one that the kernel lacks is named",
        ),
        pytest.param(lambda: running(limits=TWO), ("sgx_epc: 5 is wanted",), ("tdx",), id="what nobody wants is left"),
        pytest.param(
            lambda: sampled(running(limits=LimitsSettings(mode=Mode.OBSERVE)), 9),
            (
                "sgx_epc: 5 is wanted, the kernel's limit is 9",
                "State: limits.mode is observe: Nodeward decides and shows, and writes nothing.",
            ),
            ("Nodeward wants nothing", "last written by us"),
            id="in observe Nodeward wants and does not write",
        ),
        pytest.param(
            lambda: two_resources(Mode.OBSERVE),
            ("sgx_epc: unmanaged (last written by us, or by another that wants the same)",),
            ("tdx: unmanaged (last written",),
            id="a limit that stays after enforce",
        ),
        pytest.param(
            undeclared, ("sgx_epc: unmanaged (last written by us). Nothing is wanted any more",), (), id="undeclared"
        ),
        pytest.param(
            lambda: sampled(undeclared(), None),
            ("State: Nodeward sets no limit on this cgroup.",),
            ("last written by us",),
            id="it was taken back",
        ),
        pytest.param(lambda: sampled(running(None), 5), (f"{EARLIER}. Nothing is wanted",), (), id="an earlier life's"),
        pytest.param(lambda: sampled(known_by({}), 5), (), ("last written by us",), id="of an unknown pod: whose?"),
    ],
)
def test_a_container_limit_is_explained(make: Callable[[], Told], has: tuple[str, ...], lacks: tuple[str, ...]) -> None:
    text = said(make())

    assert [one for one in has if one not in text] == []
    assert [one for one in lacks if one in text] == []


def test_a_quantity_that_cannot_be_read_is_told_with_its_path() -> None:
    told = node()
    told(ev.PodSeen(pod_spec("A", ContainerSpec("app", faults=(FAULT,)), container_spec("db"))))
    told(started("A", "app"))
    told(started("A", "db"))

    assert f"Fault: {FAULT}; it counts as undeclared." in said(told)
    assert FAULT in of_pod(told)
    assert FAULT not in said(told, "shop/pod-A/db")
    assert "Nothing is declared, so" not in said(told)
    assert "declarations with faults, see nodeward explain: shop/pod-A\n" in status(told)


def test_a_container_known_by_its_cgroup_alone_is_explained_by_id_and_by_path() -> None:
    told = node()
    found = ev.FoundCgroup("/kubepods/podX/3f1c9a0b7d42e55aa", ContainerId("3f1c9a0b7d42e55aa"), PodUid("X"))
    told(ev.CgroupsFound((found,), told.state.seq))
    shown = {row.level: row for row in view(told).rows}

    by_id = said(told, shown["container"].id[:SHORT_ID])
    assert by_id.startswith("container X/3f1c9a0b7d42e: unknown\n  cgroup /kubepods/podX/3f1c9a0b7d42e55aa\n")
    assert said(told, shown["container"].id[:LEAST_ID]) == by_id
    assert said(told, shown["container"].cgroup) == said(told, shown["container"].cgroup + "/") == by_id
    assert said(told, shown["pod"].cgroup).startswith("pod X: unknown\n")
    assert by_id in said(told, "X")
    for nothing in ("3f1", "", "/", "a/b", "/kubepods", "9999", "X/3f1c9a0b7d42e", "/X", "X/"):
        assert explain(view(told), nothing) is None, nothing


def test_what_begins_alike_is_all_explained_and_a_bare_name_only_where_one_namespace_has_it() -> None:
    told = node()
    told(started("A", "app"))
    told(started("A", "apple"))

    both = said(told, "A-app")
    assert both.startswith("A-app is ambiguous, the beginning of 2 ids; each is explained: A-app, A-apple\ncontainer ")
    assert not said(told, "A-apple").startswith("A-apple is")
    assert [line.split()[1] for line in both.splitlines() if line.startswith("container ")] == [
        "shop/pod-A/app:",
        "shop/pod-A/apple:",
    ]
    here = view(told)
    there = replace(here, rows=(*here.rows, replace(here.rows[0], namespace="lab")))
    assert said(told, "pod-A").startswith("pod shop/pod-A: ")
    assert explain(there, "pod-A") == ["pod-A is ambiguous; write one of lab/pod-A, shop/pod-A"]


def test_a_broken_own_annotation_is_told_once_and_without_reading_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told = known_by({OWN_LIMITS: "{", UPSTREAM_EPC: "7"})
    alone = known_by({OWN_LIMITS: "{"})
    holds_up = mock.Mock(side_effect=AssertionError("an annotation of 256 KiB holds up the loop"))
    monkeypatch.setattr(promise, "_own_table", holds_up)

    assert told.state.limits.wanted[APP].values == {EPC: 7}
    assert f"Fault: annotation {OWN_LIMITS}: is no JSON" in said(told)
    assert said(alone).count("is no JSON") == 1


def test_of_two_resources_only_the_one_that_differs_has_drifted() -> None:
    def states(told: Told) -> dict[str, str]:
        return {one.resource: one.state for row in view(told).rows if row.cgroup == APP for one in row.resources}

    told = two_resources()
    assert states(told) == {EPC: "enforced", "tdx": "unsupported"}
    told(ev.CapacityRead(controller=True, capacity={EPC: 9, "tdx": 9}))
    told(ev.Reached((target(f"misc.max:{EPC}:{APP}"), target(f"misc.max:tdx:{APP}"))))
    told(ev.Sampled({APP: ev.MiscReading(limit={EPC: 7, "tdx": 1})}, as_of=told.state.seq))
    assert states(told) == {EPC: "drift", "tdx": "enforced"}


def test_on_a_kernel_without_the_resource_who_wants_some_says_so() -> None:
    told = running()
    told(ev.CapacityRead(controller=True, capacity={}))
    assert {row.state for row in view(told).rows} == {"unsupported"}


@pytest.mark.parametrize("unknown", list(UnknownPod))
def test_of_an_unknown_pods_own_cgroup_the_fallback_is_not_said_to_be_unlimited(unknown: UnknownPod) -> None:
    told = known_by({}, LimitsSettings(unknown_pod=unknown))

    assert f"limits.unknown_pod is {unknown.value}" in said(told)
    assert "limits.unknown_pod is" not in of_pod(told)
    assert "Rule: The pod's spec is not known yet, and until it is the pod's own cgroup is left alone" in of_pod(told)
    by_annotation = of_pod(known_by({UPSTREAM_EPC: "7"}, LimitsSettings(unknown_pod=unknown)))
    assert "Rule: Its containers have their limits by annotation" in by_annotation
    assert "Nobody knows this pod" not in by_annotation


@pytest.mark.parametrize(
    ("root", "pod", "after_s", "elsewhere"),
    [(7, 3, 0, {EPC: 4}), (2, 3, 0, {EPC: 0}), (-1, 3, 0, {}), (7, -3, 0, {}), (7, 3, 3, {}), (7, None, 0, {})],
    ids=["beyond the pods", "a pod read later", "root below zero", "pod below zero", "pod is stale", "pod is unread"],
)
def test_what_no_pod_has_is_told_only_where_it_is_known(
    root: int, pod: int | None, after_s: int, elsewhere: dict[str, int]
) -> None:
    told = running()
    if pod is not None:
        told(ev.Sampled({POD: ev.MiscReading(usage={EPC: pod})}, as_of=told.state.seq))
    told(ev.CapacityRead(controller=True, capacity={EPC: 1 << 30}, usage={EPC: root}))
    told.at_ns += after_s * SECOND

    assert view(told).elsewhere == elsewhere
    is_told = elsewhere == {EPC: 4}
    assert ("(4 outside of the known pods)" in status(told)) == ("outside" in status(told)) == is_told
    assert ("node: 4 of sgx_epc in use outside of the known pods" in said(told)) == is_told


NOON_NS = 1_700_000_000 * SECOND
NOON = "2023-11-14T22:13:20Z"


def test_what_came_from_the_api_server_is_stale_from_when_it_was_lost_until_it_answers() -> None:
    """And not what is known by annotation."""
    told = running()
    told(started("B", "app", {UPSTREAM_EPC: "7"}))
    told.at_ns = NOON_NS
    told(ev.ApiLost("down"))
    told.at_ns += 3600 * SECOND
    told(ev.ApiLost("still down"))

    assert (view(told).api, view(told).api_stale_since) == ("stale", NOON)
    assert {(row.pod, row.stale_since) for row in view(told).rows} == {("pod-A", NOON), ("pod-B", "")}
    assert len(view(told).rows) == 4
    assert f"API server stale since {NOON}" in status(told)
    source = f"  Source: the pod's spec in the API server, stale since {NOON}: the API server does not answer."
    assert source in said(told).splitlines()

    told(ev.ApiBack())
    assert (view(told).api, view(told).api_stale_since) == ("answers", "")
    assert not any(row.stale_since for row in view(told).rows)


def shown(told: Told) -> dict[str, tuple[int | None, int | None]]:
    """Declared and wanted EPC by container; the pod's by `pod`."""
    return {
        row.container or row.level: (one.declared, one.wanted)
        for row in view(told).rows
        for one in row.resources
        if one.resource == EPC
    }


def test_what_spec_or_annotation_declares_is_told_from_what_follows_for_the_others() -> None:
    told = node()
    told(ev.PodSeen(pod_spec("A", container_spec("app", 5), container_spec("side"), container_spec("none", 0))))
    for name in ("app", "side", "none"):
        told(started("A", name))

    assert shown(told) == {"pod": (5, 5), "app": (5, 5), "side": (None, 0), "none": (0, 0)}
    assert f"{EPC}: nothing is declared, 0 is wanted, the kernel" in said(told, "shop/pod-A/side")
    own = {OWN_LIMITS: '{"app": {"sgx_epc": "7"}, "none": {"sgx_epc": "0"}, "idle": {}}'}
    told = node()
    for name in ("app", "none", "idle", "side"):
        told(started("A", name, own))
    by_annotation = {"pod": (None, None), "app": (7, 7), "none": (0, 0), "idle": (None, 0), "side": (None, 0)}
    assert shown(told) == by_annotation
    assert shown(known_by({UPSTREAM_EPC: "9"}))["app"] == (9, 9)
    assert shown(running(None, replace(RULE, strict=True))) == {"pod": (None, 0), "app": (None, 0)}
