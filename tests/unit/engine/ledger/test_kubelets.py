"""A kubelet that loses its Pods API for good: the next views take its place, and nothing is frozen for ever."""

import pytest

from nodeward.engine.ledger.device_ids import id_name
from nodeward.engine.show.key_rows import key_rows
from nodeward.model import events as ev
from nodeward.model.tee import PluginStanding
from tests.unit.engine.build import sandbox
from tests.unit.engine.ledger.asking import TDX, Node, kata, launcher

ID = [id_name("tdx", number) for number in range(4)]
ABSENT = ev.PodsOfKubelet(0, fault="no socket (UNAVAILABLE)", absent=True)
SERVING, AGAIN = (ev.PluginTold(TDX, PluginStanding.SERVING, restarts=number) for number in (0, 1))


def node(*, api: bool = True) -> Node:
    """Kubelet tells by its Pods API of one of our VMs, of a pod of Kata's that runs, and of one that is gone soon."""
    found = Node()
    found.tell(SERVING)
    if api:
        found.tell(ev.ApiBack())
        found.tell(kata("runs"))
    found.tell(ev.PodsOfKubelet(0, (kata("runs").pod, kata("gone").pod)))
    found.tell(ev.SandboxStarted(sandbox("runs")))
    found.tell(ev.GrantsRecalled({}))
    found.view()
    found.settle()
    assert found.admit("a", ID[0]) == ""
    found.views(6)
    return found


def findings(found: Node) -> tuple[str, ...]:
    (row,) = key_rows(found.state, found.at_ns)
    return row.findings


def released(found: Node) -> bool:
    """Whether the id of a pod that ends now is free again soon."""
    found.tell(launcher("a", terminal=True))
    found.held = {}
    found.views(8)
    return not found.state.ledger.offers["tdx"].grants


@pytest.mark.parametrize("api", [True, False], ids=["with an API server", "without"])
def test_a_kubelet_that_began_anew_without_it_is_known_by_the_other_views(api: bool) -> None:
    found = node(api=api)
    found.tell(ABSENT)
    found.tell(AGAIN)
    found.views(20)
    assert "kubelet no longer tells of its pods" in findings(found)[0], "it may take a moment"
    found.views(14)
    (said,) = findings(found)
    assert "has begun anew without its Pods API (no socket" in said
    assert ("by the API server until" in said) == api
    assert released(found)
    (row,) = key_rows(found.state, found.at_ns)
    assert row.entitled == 1, "the promise of the pod that runs stands, and no other"


@pytest.mark.parametrize(
    ("lost", "told"),
    [
        pytest.param(ABSENT, SERVING, id="the same kubelet"),
        pytest.param(ABSENT, ev.PluginTold(TDX, PluginStanding.WAITING, restarts=1), id="one that does not read us"),
        pytest.param(ev.PodsOfKubelet(0, fault="hangs"), AGAIN, id="an API that hangs"),
    ],
)
def test_else_what_it_told_stands_and_nothing_is_released(lost: ev.Event, told: ev.Event) -> None:
    found = node()
    found.tell(lost)
    found.tell(told)
    found.views(60)
    assert not released(found)
    assert "kubelet no longer tells of its pods" in findings(found)[-1]
