"""What is declared is shown beside what is wanted: by spec, by annotation, of the pod, and where nothing is."""

from dataclasses import replace

from nodeward.engine.show.explain import explain
from nodeward.engine.show.view import node_view
from nodeward.model import events as ev
from nodeward.model.annotations import OWN_LIMITS, UPSTREAM_EPC
from tests.unit.engine.build import EPC, RULE, Told, container_spec, node, pod_spec, running, started


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
