"""The answer that a create is foreseen to get is the one that it gets, whatever is known, or none is foreseen."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodeward.engine.apply import apply, foresee
from nodeward.engine.state.root import State
from nodeward.model import events as ev
from nodeward.model.decision import Adjustment, Final
from nodeward.model.settings import (
    EngineSettings,
    LimitsSettings,
    Mode,
    OnError,
    PodsSettings,
    UnknownPod,
    Unsupported,
)
from nodeward.model.workload import ContainerId, PodSpec
from tests.unit.engine.build import EPC, Told, container, container_spec, pod_spec, sandbox

RULES = st.builds(
    LimitsSettings,
    mode=st.sampled_from(Mode),
    strict=st.booleans(),
    unsupported=st.sampled_from(Unsupported),
    unknown_pod=st.sampled_from(UnknownPod),
    resources=st.sampled_from([{"a": EPC}, {"a": EPC, "b": "keys"}, {"b": "keys", "a": EPC}, {}]),
)
AMOUNTS = st.dictionaries(st.sampled_from([EPC, "keys", "other"]), st.integers(0, 3))
CAPACITY = st.dictionaries(st.sampled_from([EPC, "keys", "other"]), st.integers(0, 9))
SPECS = st.none() | st.builds(
    lambda app, db: pod_spec(
        "A", replace(container_spec("app"), declared=app), replace(container_spec("db"), declared=db)
    ),
    AMOUNTS,
    AMOUNTS,
)
BEFORE = st.sampled_from(
    [
        None,
        ev.SandboxStarted(sandbox("A")),
        ev.Creating(sandbox("A"), container("A", "app"), ask_id=1),
        ev.Started(sandbox("A"), container("A", "app")),
        ev.Started(sandbox("B"), container("A", "app", "s-B")),
        ev.CgroupsFound((ev.FoundCgroup("/kubepods/podA/A-app", ContainerId("A-app"), sandbox("A").pod_uid),), 9),
        ev.PodGone(sandbox("A").pod_uid),
        ev.ApiBack(),
    ]
)


@example(LimitsSettings(unsupported=Unsupported.REFUSE), pod_spec("A", container_spec("app", 8)), {}, False, [], "app")
@given(RULES, SPECS, CAPACITY, st.booleans(), st.lists(BEFORE, max_size=3), st.sampled_from(["app", "db", "late", ""]))
def test_what_is_foreseen_is_what_is_decided(
    rule: LimitsSettings,
    spec: PodSpec | None,
    capacity: dict[str, int],
    multi_line: bool,
    before: list[ev.Event | None],
    name: str,
) -> None:
    told = Told(State(settings=EngineSettings(limits=rule)))
    told(ev.CapacityRead(controller=True, capacity=capacity))
    told(ev.RuntimeConnected("containerd", "2.4", multi_line=multi_line))
    for event in (None if spec is None else ev.PodSeen(spec), *before):
        if event is not None:
            told(event)
    home = sandbox("A", {"epc-limit.nri.io/pod": "7"})
    made = replace(container("A", "app"), name=name)

    foreseen = foresee(told.state, home.pod_uid, made.id, name)
    decided = apply(told.state, ev.Creating(home, made, ask_id=9, seq=99, at_ns=99))[1]

    assert foreseen is None or foreseen == decided.answer


@pytest.mark.parametrize("known", [True, False])
def test_the_answer_is_foreseen_where_the_pods_spec_is_known(known: bool) -> None:
    told = Told()
    told(ev.CapacityRead(controller=True, capacity={EPC: 1000}))
    if known:
        told(ev.PodSeen(pod_spec("A", container_spec("app", 8))))

    foreseen = foresee(told.state, sandbox("A").pod_uid, container("A", "app").id, "app")

    found = foreseen.value if isinstance(foreseen, Final) else None
    assert found == (Adjustment({"misc.max": f"{EPC} 8"}) if known else None)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(EngineSettings(LimitsSettings(on_error=OnError.REFUSE)), id="limits"),
        pytest.param(EngineSettings(pods=PodsSettings(on_error=OnError.REFUSE)), id="pods"),
    ],
)
def test_nothing_is_foreseen_where_a_fault_would_refuse(settings: EngineSettings) -> None:
    told = Told(State(settings=settings))
    told(ev.CapacityRead(controller=True, capacity={EPC: 1000}))
    told(ev.PodSeen(pod_spec("A", container_spec("app", 8))))

    assert foresee(told.state, sandbox("A").pod_uid, container("A", "app").id, "app") is None
