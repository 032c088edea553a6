"""What is known of pods while the API server is away: shown with the time since when."""

from dataclasses import replace

from rich.console import Console

from nodeward.app.node import last_known
from nodeward.cli.table import render
from nodeward.doubles.kernel import SimKernel
from nodeward.engine.show.explain import explain
from nodeward.engine.show.view import node_view
from nodeward.model import events as ev
from nodeward.model.view import NodeView
from nodeward.model.workload import Source
from tests.unit.engine.build import SECOND, Told, container_spec, pod_spec, running, started

NOON_NS = 1_700_000_000 * SECOND
NOON = "2023-11-14T22:13:20Z"
FOLDER = "/var/lib"


def view(told: Told) -> NodeView:
    return node_view(told.state, told.at_ns, {})


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
