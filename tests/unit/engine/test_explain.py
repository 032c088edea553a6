"""What people are told is true: of faults, unknown pods, modes, what is declared, and since when it is stale."""

from dataclasses import replace

import pytest
from rich.console import Console

from nodeward.app.node import last_known
from nodeward.cli.table import render
from nodeward.doubles.kernel import SimKernel
from nodeward.engine.limits import promise
from nodeward.engine.show.explain import LEAST_ID, explain, note_sentence
from nodeward.engine.show.view import node_view
from nodeward.model import events as ev
from nodeward.model.annotations import OWN_LIMITS, UPSTREAM_EPC
from nodeward.model.decision import Reason
from nodeward.model.settings import LimitsSettings, Mode, UnknownPod
from nodeward.model.view import SHORT_ID, NodeView
from nodeward.model.workload import ContainerId, ContainerSpec, PodUid, Source
from tests.goals import target
from tests.unit.engine.build import EPC, RULE, SECOND, Told, container_spec, node, pod_spec, running, started

POD = "/kubepods/podA"
APP = f"{POD}/A-app"
FAULT = "spec.containers[0].resources.limits[sgx.intel.com/epc]: '1.5.0Mi' is no quantity"


def view(told: Told) -> NodeView:
    return node_view(told.state, told.at_ns, {})


def said(told: Told, what: str = "shop/pod-A/app") -> str:
    return "\n".join(explain(view(told), what) or [])


def of_pod(told: Told) -> str:
    """What is said of the pod's own cgroup."""
    return said(told, "shop/pod-A").partition("container shop/")[0]


def unreadable() -> Told:
    told = node()
    told(ev.PodSeen(pod_spec("A", ContainerSpec("app", faults=(FAULT,)), container_spec("db"))))
    told(started("A", "app"))
    told(started("A", "db"))
    return told


def test_a_quantity_that_cannot_be_read_is_told_with_its_path() -> None:
    told = unreadable()

    assert f"Fault: {FAULT}; it counts as undeclared." in said(told)
    assert FAULT in of_pod(told)
    assert FAULT not in said(told, "shop/pod-A/db")
    assert "Nothing is declared, so" not in said(told)


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


def test_ids_that_begin_alike_are_all_explained() -> None:
    told = node()
    told(started("A", "app"))
    told(started("A", "apple"))

    assert said(told, "A-app").startswith(
        "A-app is ambiguous, the beginning of 2 ids; each is explained: A-app, A-apple\ncontainer "
    )
    assert not said(told, "A-apple").startswith("A-apple is")
    assert [line.split()[1] for line in said(told, "A-app").splitlines() if line.startswith("container ")] == [
        "shop/pod-A/app:",
        "shop/pod-A/apple:",
    ]


def test_a_pod_is_found_by_its_name_alone_where_one_namespace_has_it() -> None:
    told = node()
    told(started("A", "app"))
    here = view(told)
    there = replace(here, rows=(*here.rows, replace(here.rows[0], namespace="lab")))

    assert (explain(here, "pod-A") or [""])[0].startswith("pod shop/pod-A: ")
    assert explain(there, "pod-A") == ["pod-A is ambiguous; write one of lab/pod-A, shop/pod-A"]


def test_status_counts_declarations_that_cannot_be_read() -> None:
    console = Console(width=200)
    with console.capture() as shown:
        console.print(render(view(unreadable())))

    assert "declarations with faults, see nodeward explain: shop/pod-A\n" in shown.get()


def test_a_broken_own_annotation_is_told_though_upstreams_is_good() -> None:
    told = node()
    told(started("A", "app", {OWN_LIMITS: "{", "epc-limit.nri.io": "7"}))

    assert told.state.limits.wanted[APP].values == {EPC: 7}
    assert f"Fault: annotation {OWN_LIMITS}: is no JSON" in said(told)


def test_a_fault_of_an_unknown_pods_annotation_is_told_once() -> None:
    told = node()
    told(started("A", "app", {OWN_LIMITS: "{"}))

    assert said(told).count("is no JSON") == 1


def two_resources(mode: Mode = Mode.ENFORCE) -> Told:
    told = node(LimitsSettings(mode=mode, resources={"sgx.intel.com/epc": EPC, "intel.com/tdx": "tdx"}))
    told(ev.PodSeen(pod_spec("A", ContainerSpec("app", declared={EPC: 5, "tdx": 1}))))
    told(started("A", "app"))
    sampled(told, 5)
    return told


def sampled(told: Told, amount: int | None) -> None:
    limit = {} if amount is None else {EPC: amount}
    told(ev.Reached((target(f"misc.max:{EPC}:{APP}"),)))
    told(ev.Sampled({APP: ev.MiscReading(limit=limit)}, as_of=told.state.seq))


def test_of_two_resources_the_one_that_the_kernel_lacks_is_named() -> None:
    told = two_resources()

    assert "tdx: unsupported. This kernel has no such resource" in said(told)
    assert "tdx: the limit is not held" not in said(told)
    assert "tdx: 1 is wanted" in said(told)
    assert "sgx_epc: unsupported" not in said(told)
    assert "The kernel reads back the wanted limit of sgx_epc, and not of tdx." in said(told)
    states = {one.resource: one.state for row in view(told).rows if row.cgroup == APP for one in row.resources}
    assert states == {EPC: "enforced", "tdx": "unsupported"}


def test_a_resource_that_is_not_wanted_limited_used_or_refused_is_not_spoken_of() -> None:
    told = running(limits=LimitsSettings(resources={"sgx.intel.com/epc": EPC, "intel.com/tdx": "tdx"}))

    assert "sgx_epc: 5 is wanted" in said(told)
    assert "tdx" not in said(told)


def test_of_two_resources_only_the_one_that_differs_has_drifted() -> None:
    told = node(LimitsSettings(resources={"sgx.intel.com/epc": EPC, "intel.com/tdx": "tdx"}))
    told(ev.CapacityRead(controller=True, capacity={EPC: 9, "tdx": 9}))
    told(ev.PodSeen(pod_spec("A", ContainerSpec("app", declared={EPC: 5, "tdx": 1}))))
    told(started("A", "app"))
    told(ev.Reached((target(f"misc.max:{EPC}:{APP}"), target(f"misc.max:tdx:{APP}"))))
    told(ev.Sampled({APP: ev.MiscReading(limit={EPC: 7, "tdx": 1})}, as_of=told.state.seq))

    states = {one.resource: one.state for row in view(told).rows if row.cgroup == APP for one in row.resources}
    assert states == {EPC: "drift", "tdx": "enforced"}


@pytest.mark.parametrize("unknown", list(UnknownPod))
def test_of_an_unknown_pods_own_cgroup_the_fallback_is_not_said_to_be_unlimited(unknown: UnknownPod) -> None:
    told = node(LimitsSettings(unknown_pod=unknown))
    told(started("A", "app"))

    assert f"limits.unknown_pod is {unknown.value}" in said(told)
    assert "limits.unknown_pod is" not in of_pod(told)
    assert "Rule: The pod's spec is not known yet, and until it is the pod's own cgroup is left alone" in of_pod(told)


def test_of_a_pod_whose_containers_are_known_by_annotation_it_is_said_why_it_has_no_limit_itself() -> None:
    told = node()
    told(started("A", "app", {"epc-limit.nri.io": "7"}))

    assert "Rule: Its containers have their limits by annotation" in of_pod(told)
    assert "Nobody knows this pod" not in of_pod(told)


def test_in_observe_nodeward_wants_and_does_not_write() -> None:
    told = running(limits=LimitsSettings(mode=Mode.OBSERVE))
    sampled(told, 9)

    assert "sgx_epc: 5 is wanted, the kernel's limit is 9" in said(told)
    assert "State: limits.mode is observe: Nodeward decides and shows, and writes nothing." in said(told)
    assert "Nodeward wants nothing" not in said(told)
    assert "last written by us" not in said(told)


def test_a_limit_that_stays_after_enforce_was_last_written_by_us() -> None:
    told = two_resources()
    settings = replace(told.state.settings, limits=replace(told.state.settings.limits, mode=Mode.OBSERVE))
    told(ev.SettingsChanged(settings))
    sampled(told, 5)

    assert "sgx_epc: unmanaged (last written by us, or by another that wants the same)" in said(told)
    assert "tdx: unmanaged (last written" not in said(told)


def test_a_limit_that_is_wanted_no_more_is_being_taken_back() -> None:
    told = running()
    sampled(told, 5)
    told(ev.PodSeen(pod_spec("A", container_spec("app"))))

    assert "sgx_epc: unmanaged (last written by us). Nothing is wanted any more" in said(told)
    sampled(told, None)
    assert "last written by us" not in said(told)
    assert "State: Nodeward wants nothing of this cgroup." in said(told)


EARLIER = "sgx_epc: unmanaged (last written by us in an earlier life of the daemon, or by another)"


@pytest.mark.parametrize("mode", [Mode.ENFORCE, Mode.OBSERVE])
def test_a_limit_that_nobody_wants_and_this_life_has_not_written_is_told_to_stay(mode: Mode) -> None:
    told = running(None, LimitsSettings(mode=mode))
    sampled(told, None)
    assert EARLIER not in said(told)
    sampled(told, 5)

    assert f"{EARLIER}. Nothing is wanted" in said(told)


def test_of_a_limit_of_an_unknown_pod_nobody_says_whose_it_is() -> None:
    told = node()
    told(started("A", "app"))
    sampled(told, 5)

    assert "last written by us" not in said(told)


def test_a_drift_is_remarked_on_in_a_sentence() -> None:
    note = Reason("drift", (APP, "sgx_epc", "tdx", 2))

    assert note_sentence(note) == (
        f"{APP}: the kernel's limit of sgx_epc, tdx is not the wanted one; it is written again, repair 2 of at most 3 "
        "in five minutes"
    )


def test_stale_is_said_with_the_time_that_counts() -> None:
    told = two_resources()
    told.at_ns += 3 * SECOND

    assert "has not been read for longer than two and a half periods" in said(told)


def test_charges_outside_of_the_known_pods_are_told() -> None:
    told = running()
    told(ev.Sampled({POD: ev.MiscReading(usage={EPC: 3}), APP: ev.MiscReading(usage={EPC: 2})}, as_of=told.state.seq))
    told(ev.CapacityRead(controller=True, capacity={EPC: 1 << 30}, usage={EPC: 3}))

    console = Console(width=200)

    def head() -> str:
        with console.capture() as shown:
            console.print(render(view(told)))
        return shown.get()

    assert (view(told).elsewhere, "outside" in head(), "outside" in said(told)) == ({EPC: 0}, False, False)
    told(ev.CapacityRead(controller=True, capacity={EPC: 1 << 30}, usage={EPC: 7}))
    assert view(told).elsewhere == {EPC: 4}
    assert "(4 outside of the known pods)" in head()
    assert "node: 4 of sgx_epc in use outside of the known pods" in said(told)


@pytest.mark.parametrize(
    ("root", "pod", "after_s", "elsewhere"),
    [(7, 3, 0, {EPC: 4}), (2, 3, 0, {EPC: 0}), (-1, 3, 0, {}), (7, -3, 0, {}), (7, 3, 3, {}), (7, None, 0, {})],
    ids=["beyond the pods", "a pod read later", "root below zero", "pod below zero", "pod is stale", "pod is unread"],
)
def test_what_no_pod_has_is_told_only_where_it_is_known(
    root: int, pod: int | None, after_s: int, elsewhere: dict[str, int]
) -> None:
    told = node()
    told(started("A", "app"))
    if pod is not None:
        told(ev.Sampled({POD: ev.MiscReading(usage={EPC: pod})}, as_of=told.state.seq))
    told(ev.CapacityRead(controller=True, capacity={EPC: 1 << 30}, usage={EPC: root}))
    told.at_ns += after_s * SECOND
    assert node_view(told.state, told.at_ns, {}).elsewhere == elsewhere


def test_a_look_at_the_node_reads_no_annotation_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told = node()
    told(started("A", "app", {OWN_LIMITS: "{", "epc-limit.nri.io": "7"}))

    def read(*_: object) -> str:
        raise AssertionError("an annotation of 256 KiB holds up the loop")

    monkeypatch.setattr(promise, "_own_table", read)

    assert "is no JSON" in said(told)


NOON_NS = 1_700_000_000 * SECOND
NOON = "2023-11-14T22:13:20Z"
FOLDER = "/var/lib"


def lost() -> Told:
    """A node with a pod of the API and one known by annotation, whose API server has been lost at noon."""
    told = running()
    told(started("B", "app", {"epc-limit.nri.io": "7"}))
    told.at_ns = NOON_NS
    told(ev.ApiLost("down"))
    told.at_ns += 3600 * SECOND
    told(ev.ApiLost("still down"))
    return told


def test_what_came_from_the_api_server_is_stale_since_it_was_lost() -> None:
    told = lost()

    assert (view(told).api, view(told).api_stale_since) == ("stale", NOON)
    by_pod = {(row.pod, row.level): row.stale_since for row in view(told).rows}
    assert by_pod == {
        ("pod-A", "pod"): NOON,
        ("pod-A", "container"): NOON,
        ("pod-B", "pod"): "",
        ("pod-B", "container"): "",
    }


def test_status_and_explain_name_the_time() -> None:
    console = Console(width=200)
    with console.capture() as shown:
        console.print(render(view(lost())))
    assert f"API server stale since {NOON}" in shown.get()
    lines = explain(view(lost()), "shop/pod-A/app") or []
    assert f"  Source: the pod's spec in the API server, stale since {NOON}: the API server does not answer." in lines


def test_nothing_is_stale_while_the_api_server_answers() -> None:
    told = lost()
    told(ev.ApiBack())

    assert (view(told).api, view(told).api_stale_since) == ("answers", "")
    assert not any(row.stale_since for row in view(told).rows)


def test_what_was_remembered_is_stale_since_it_was_written() -> None:
    told = Told()
    told.at_ns = NOON_NS + SECOND
    told(ev.PodsListed((replace(pod_spec("A", container_spec("app", 5)), source=Source.DISK),), as_of=0))
    told(ev.ApiLost("not reached yet", since_wall_ns=NOON_NS))
    told(ev.ApiLost("down"))

    assert (view(told).api, view(told).api_stale_since) == ("stale", NOON)


def test_the_time_survives_on_the_disk_with_the_pods() -> None:
    kernel = SimKernel({})
    kernel.replace(last_known.path_in(FOLDER), last_known.encode((pod_spec("A"),), NOON_NS))

    found = last_known.read(kernel, FOLDER)

    assert (found.at_wall_ns, [pod.source for pod in found.pods]) == (NOON_NS, [Source.DISK])


def shown(told: Told) -> dict[str, tuple[int | None, int | None]]:
    """Declared and wanted EPC by container; the pod's by `pod`."""
    return {
        row.container or row.level: (one.declared, one.wanted)
        for row in node_view(told.state, told.at_ns, {}).rows
        for one in row.resources
        if one.resource == EPC
    }


def test_what_the_spec_declares_is_told_from_what_follows_for_the_others() -> None:
    told = node()
    told(ev.PodSeen(pod_spec("A", container_spec("app", 5), container_spec("side"), container_spec("none", 0))))
    for name in ("app", "side", "none"):
        told(started("A", name))

    assert shown(told) == {"pod": (5, 5), "app": (5, 5), "side": (None, 0), "none": (0, 0)}
    side = "\n".join(explain(node_view(told.state, told.at_ns, {}), "shop/pod-A/side") or [])
    assert f"{EPC}: nothing is declared, 0 is wanted, the kernel" in side


def test_what_an_annotation_declares_is_told_from_what_follows_for_the_others() -> None:
    told, own = node(), {OWN_LIMITS: '{"app": {"sgx_epc": "7"}, "none": {"sgx_epc": "0"}, "idle": {}}'}
    for name in ("app", "none", "idle", "side"):
        told(started("A", name, own))
    told(started("B", "theirs", {UPSTREAM_EPC: "9"}))

    found = shown(told)

    assert {name: found[name] for name in ("app", "none", "idle", "side", "theirs")} == {
        "app": (7, 7),
        "none": (0, 0),
        "idle": (None, 0),
        "side": (None, 0),
        "theirs": (9, 9),
    }
    assert found["pod"] == (None, None)


def test_a_strict_node_wants_zero_of_what_nobody_declares() -> None:
    told = running(None, replace(RULE, strict=True))

    assert shown(told) == {"pod": (None, 0), "app": (None, 0)}
