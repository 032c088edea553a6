"""What the client of a held call is told where the relay refuses it: pod, container, value and rule, as far as known.

The engine behind is the real one, by the relay's own wiring, on the simulation's kernel.
"""

from dataclasses import replace

import pytest

from nodeward.app.relay.run import Chain, ImagesElsewhere
from nodeward.edges.cri.decider import STATUSES
from nodeward.model.annotations import OWN_LIMITS
from nodeward.model.decision import Refused
from nodeward.model.events import PodSeen
from nodeward.model.relayed import Call, Pass, Refuse
from nodeward.model.settings import LimitsSettings, Mode, OnError, PodsSettings, Settings, UnknownPod, Unsupported
from nodeward.model.workload import ContainerSpec, PodSpec, PodUid
from tests.unit.app.relayed import Relayed, create, update

STRICT = Settings(limits=LimitsSettings(on_error=OnError.REFUSE), pods=PodsSettings(on_error=OnError.REFUSE))
APP = "default/pod, container app"
BY_ANNOTATION = f"{APP}, which declares annotation epc-limit.nri.io/container.app '8192'"


def knows_spec(node: Relayed) -> None:
    """As where the node daemon has told it."""
    declared = (ContainerSpec("first", declared={"sgx_epc": 1}), ContainerSpec("app", declared={"sgx_epc": 4096}))
    node.limits.core.tell(PodSeen(PodSpec(PodUid("uid-1"), "default", "pod", declared)))


def test_a_resource_that_the_kernel_lacks_is_refused_as_exhausted_where_settings_say_so() -> None:
    """Nothing of the container is kept."""
    node = Relayed(Settings(limits=LimitsSettings(unsupported=Unsupported.REFUSE)), capacity=0)
    verdict = node.create(create())
    assert isinstance(verdict, Refuse)
    assert verdict.status == STATUSES[Refused.NO_CAPACITY] == 8
    assert verdict.text.startswith(f"{APP}: declares 8192 of sgx_epc")
    assert "limits.unsupported is refuse" in verdict.text
    assert node.containers == []


def test_a_pod_of_which_nothing_is_known_is_refused_for_now_where_settings_say_so() -> None:
    node = Relayed(Settings(limits=LimitsSettings(unknown_pod=UnknownPod.REFUSE)))
    verdict = node.create(create({}))
    assert isinstance(verdict, Refuse)
    assert verdict.status == STATUSES[Refused.FOR_NOW] == 14
    assert verdict.text.startswith(f"{APP}: ")
    assert "limits.unknown_pod is refuse" in verdict.text


@pytest.mark.parametrize("value", ["1Mi", "-5", "18446744073709551616", "", "8192.0"])
def test_an_annotation_that_is_no_amount_is_a_bad_value_where_unknown_pods_are_refused(value: str) -> None:
    """Without that setting the annotation says nothing."""
    noted = {"epc-limit.nri.io/container.app": value}
    verdict = Relayed(Settings(limits=LimitsSettings(unknown_pod=UnknownPod.REFUSE))).create(create(noted))
    assert isinstance(verdict, Refuse)
    assert verdict.status == STATUSES[Refused.BAD_VALUE] == 3
    assert verdict.text.startswith(f"{APP}: annotation epc-limit.nri.io/container.app: {value!r} is")
    assert "limits.unknown_pod is refuse" in verdict.text
    assert Relayed().create(create(noted)) == Pass()


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ('{"app": 8192', "is no JSON (JSONDecodeError): '{\"app\": 8192'; "),
        ("[8192]", "is no JSON object of containers: '[8192]'; "),
        ('{"app": 8192}', "'app' has no object of resources: '{\"app\": 8192}'; "),
        ('{"app": {"sgx epc": "1"}}', "'app', 'sgx epc': is no misc resource name; "),
    ],
)
def test_an_annotation_of_ours_that_is_no_table_is_shown_where_it_is_refused(value: str, fault: str) -> None:
    node = Relayed(Settings(limits=LimitsSettings(unknown_pod=UnknownPod.REFUSE)))
    verdict = node.create(create({OWN_LIMITS: value}))
    assert isinstance(verdict, Refuse)
    assert verdict.status == STATUSES[Refused.BAD_VALUE]
    assert verdict.text.startswith(f"{APP}: annotation {OWN_LIMITS}: {fault}")


def test_what_could_not_be_decided_is_refused_with_what_was_declared_and_what_failed() -> None:
    node = Relayed(STRICT)
    call = node.begin("CreateContainer")
    said = "Nodeward's relay could not decide this request (odd), and limits.on_error is refuse"
    for message, who in (
        (create(), BY_ANNOTATION),
        (create({}), f"{APP}, which declares nothing"),
        (create({OWN_LIMITS: "x" * 200}), f"{APP}, which declares annotation {OWN_LIMITS} {'x' * 128!r}"),
        (b"\xff", "CreateContainer"),
        (None, "CreateContainer"),
    ):
        verdict = node.decider.undecided(call, message, "odd", ending=False)
        assert verdict == Refuse(STATUSES[Refused.FAULT], f"{who}: {said}")
    knows_spec(node)
    verdict = node.decider.undecided(call, create(), "odd", ending=False)
    assert verdict == Refuse(STATUSES[Refused.FAULT], f"{APP}, which declares sgx_epc 4096: {said}")


def broken(*_: object) -> None:
    raise RuntimeError("broken")


PLACES = {"limits": "nodeward.engine.limits.step.answer", "pods": "nodeward.engine.pods.step._creating"}


@pytest.mark.parametrize("spec", [False, True], ids=["annotation", "spec"])
@pytest.mark.parametrize("domain", PLACES)
def test_a_domain_that_fails_refuses_with_what_was_declared_and_what_failed(
    monkeypatch: pytest.MonkeyPatch, domain: str, spec: bool
) -> None:
    node = Relayed(STRICT)
    if spec:
        knows_spec(node)
    monkeypatch.setattr(PLACES[domain], broken)
    verdict = node.create(create())
    who = f"{APP}, which declares sgx_epc 4096" if spec else BY_ANNOTATION
    what = f"Nodeward's domain {domain} failed (RuntimeError: broken) and {domain}.on_error is refuse"
    assert verdict == Refuse(STATUSES[Refused.FAULT], f"{who}: {what}; see nodeward status")


@pytest.mark.parametrize("domain", PLACES)
def test_where_limits_are_only_observed_no_fault_refuses_a_container(
    monkeypatch: pytest.MonkeyPatch, domain: str
) -> None:
    node = Relayed(replace(STRICT, limits=replace(STRICT.limits, mode=Mode.OBSERVE)))
    assert node.decider.undecided(node.begin("CreateContainer"), create(), "odd", ending=False) == Pass()
    monkeypatch.setattr(PLACES[domain], broken)
    assert node.create(create()) == Pass()
    assert node.limits.core.faults == {domain: 1}


def test_a_relay_that_ends_refuses_for_now_whatever_on_error_says() -> None:
    node = Relayed()
    node.create(create())
    call = node.begin("UpdateContainerResources")
    for message, who in ((update("c1"), BY_ANNOTATION), (update("c9"), "container c9")):
        verdict = node.decider.undecided(call, message, "the relay ends", ending=True)
        assert isinstance(verdict, Refuse)
        assert verdict.status == STATUSES[Refused.FOR_NOW]
        assert verdict.text.startswith(f"{who}: Nodeward's relay ends")


def test_image_calls_are_answered_with_their_own_place_whatever_limits_say() -> None:
    """Given limits that are refused on error, and images that are another service's, then an image call that cannot be
    read is not refused for its limits."""
    both = Chain((ImagesElsewhere("/run/images.sock"), Relayed(STRICT).decider), lambda: 0)
    call = Call(1, 1, "/runtime.v1.ImageService/PullImage", 0, held=True)
    verdict = both.undecided(call, None, "the request is larger than what can be held", ending=False)
    assert isinstance(verdict, Refuse)
    assert (verdict.status, "unix:///run/images.sock" in verdict.text) == (12, True)
