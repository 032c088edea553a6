"""A static pod's spec is kept under the UID that the runtime has, which an annotation claims; a forged claim takes
nothing from anybody, in whatever order things are heard."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.model import events as ev
from nodeward.model.decision import Adjustment
from nodeward.model.workload import PodSpec, PodUid
from tests.unit.engine.build import container_spec, creating, node, pod_spec, sandbox, value_of

STATIC = pod_spec("mirror", container_spec("app", 5), config_hash="HASH")
VICTIM = pod_spec("A", container_spec("app", 5))
FORGED = replace(pod_spec("forged", container_spec("app", 99)), config_hash="HASH")
AGAINST_A = replace(FORGED, config_hash="A")


def seen(pod: PodSpec) -> ev.Event:
    return ev.PodSeen(pod)


def listed(*pods: PodSpec) -> ev.Event:
    return ev.PodsListed(pods, as_of=1 << 40)


BOTH, MIRROR = {"A": "A", "forged": "forged"}, {"HASH": "mirror", "forged": "forged"}
RUNS = ev.SandboxStarted(sandbox("HASH"))


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([seen(VICTIM), seen(AGAINST_A)], BOTH, id="against a pod of the API"),
        pytest.param([seen(AGAINST_A), seen(VICTIM)], BOTH, id="before the pod of the API is seen"),
        pytest.param([listed(AGAINST_A, VICTIM)], BOTH, id="in one list with the pod"),
        pytest.param([seen(STATIC), seen(FORGED)], MIRROR, id="against a static pod"),
        pytest.param([RUNS, seen(FORGED), seen(STATIC)], MIRROR, id="before the mirror, of a static pod that runs"),
        pytest.param([seen(FORGED), seen(STATIC), RUNS], MIRROR, id="before the mirror and the static pod"),
        pytest.param([seen(FORGED), RUNS, seen(STATIC)], MIRROR, id="before the static pod and its mirror"),
        pytest.param(
            [listed(FORGED, STATIC), ev.Listed((sandbox("HASH"),), (), as_of=1 << 40)], MIRROR, id="first in the lists"
        ),
        pytest.param(
            [seen(STATIC), seen(replace(STATIC, uid=PodUid("next")))], {"HASH": "next"}, id="a mirror made again"
        ),
        pytest.param(
            [seen(FORGED), seen(replace(FORGED, config_hash=""))], {"forged": "forged"}, id="a claim withdrawn"
        ),
        pytest.param([seen(FORGED), ev.PodGone(FORGED.uid)], {}, id="a forged one that kubelet deletes"),
        pytest.param(
            [seen(STATIC), RUNS, ev.PodGone(STATIC.uid), ev.SandboxRemoved(sandbox("HASH"))], {}, id="its end"
        ),
        pytest.param(
            [seen(FORGED), seen(STATIC), ev.PodGone(FORGED.uid), seen(STATIC)], {"HASH": "mirror"}, id="its turn"
        ),
    ],
)
def test_who_is_kept_where(events: list[ev.Event], expected: dict[str, str]) -> None:
    told = node()
    for event in events:
        told(event)
    assert {uid: known.spec.uid for uid, known in told.state.pods.specs.items()} == expected


def test_a_container_of_a_static_pod_is_answered_by_its_mirror_and_not_by_a_forged_one() -> None:
    told = node()
    told(seen(FORGED))
    told(seen(STATIC))
    assert value_of(told(creating("HASH", "app"))) == Adjustment({"misc.max": "sgx_epc 5"})


PODS = (VICTIM, STATIC, FORGED, AGAINST_A)
EVENTS = st.one_of(
    st.sampled_from(PODS).map(seen),
    st.permutations(PODS).map(lambda pods: listed(*pods)),
    st.sampled_from([FORGED.uid, STATIC.uid]).map(ev.PodGone),
    st.sampled_from(["A", "HASH"]).map(lambda uid: ev.SandboxStarted(sandbox(uid))),
)


@given(st.lists(EVENTS, max_size=8))
def test_whatever_is_heard_a_running_pod_is_never_another(events: list[ev.Event]) -> None:
    told = node()
    told(seen(VICTIM))
    for event in events:
        told(event)
        specs, homes = told.state.pods.specs, told.state.pods.sandbox_of
        assert specs[VICTIM.uid].spec == VICTIM
        if "HASH" in homes and "HASH" in specs:
            assert specs[PodUid("HASH")].spec == STATIC
        assert len(specs) == len({known.spec.uid for known in specs.values()})
