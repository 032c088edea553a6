"""Values of annotations made to hurt, from each way in through the engine: a sentence, and never half a limit.

The ways in are NRI's pod, CRI's pod and the hook's line, each with its own mapping.
"""

import json
from collections.abc import Callable

import pytest

from nodeward.edges.cri import mapping as cri_mapping
from nodeward.edges.hook import mapping as hook_mapping
from nodeward.edges.nri import mapping as nri_mapping
from nodeward.engine.show.explain import explain
from nodeward.engine.show.view import node_view
from nodeward.model import events as ev
from nodeward.model.annotations import MAX_VALUE, OWN_LIMITS
from nodeward.model.decision import Adjustment, Final, Refusal, Refused
from nodeward.model.settings import LimitsSettings, UnknownPod
from nodeward.model.workload import Sandbox
from nodeward.proto import cri_pb2, nri_pb2
from nodeward.wire.hook_line import HookRequest, decode_request, encode_request
from tests.unit.engine.build import EPC, container, node, value_of

UID = "0f2a4c6e-1111-2222-3333-444455556666"
UPSTREAM = "epc-limit.nri.io/container.app"
REMEDY = "write for example "
Way = Callable[[dict[str, str]], Sandbox]


def by_nri(annotations: dict[str, str]) -> Sandbox:
    pod = nri_pb2.PodSandbox(id=f"s-{UID}", uid=UID, namespace="shop", name="web", annotations=annotations)
    return nri_mapping.sandbox(nri_pb2.PodSandbox.FromString(pod.SerializeToString()))


def by_cri(annotations: dict[str, str]) -> Sandbox:
    metadata = cri_pb2.PodSandboxMetadata(uid=UID, namespace="shop", name="web")
    config = cri_pb2.PodSandboxConfig(metadata=metadata, annotations=annotations)
    return cri_mapping.sandbox(f"s-{UID}", cri_pb2.PodSandboxConfig.FromString(config.SerializeToString()))


def by_hook(annotations: dict[str, str]) -> Sandbox:
    request = HookRequest("c", f"s-{UID}", UID, "shop", "web", "app", f"/kubepods/pod{UID}/c", annotations)
    return hook_mapping.sandbox(decode_request(encode_request(request)))


def own(amount: object) -> str:
    return json.dumps({"app": {EPC: amount}})


WAYS = {"nri": by_nri, "cri": by_cri, "hook": by_hook}
UPSTREAM_VALUES = {
    "negative": "-4096",
    "a suffix": "1Mi",
    "nul before": "\x004096",
    "1 MiB": "1" * (1 << 20),
    "1 MiB of spaces behind an amount": "4096" + " " * (1 << 20),
}
OWN_VALUES = {
    "empty amount": own(""),
    "negative": own("-4096"),
    "nul": own("4096") + "\x00",
    "nul escaped": own("4096\x00"),
    "an amount in the place of a container": '{"app":"4096"}',
    "no resource's name": '{"app":{"sgx-epc":"4096"}}',
    "1 MiB": own("1" * (1 << 20)),
    "1 MiB of spaces behind a table": own("4096") + " " * (1 << 20),
}
CASES = [
    pytest.param(way, key, text, id=f"{name}: {what}, {kind}")
    for name, way in WAYS.items()
    for kind, key, values in (("upstream's", UPSTREAM, UPSTREAM_VALUES), ("own", OWN_LIMITS, OWN_VALUES))
    for what, text in values.items()
]


@pytest.mark.parametrize(("way", "key", "text"), CASES)
def test_a_bad_value_limits_nothing_and_is_told_with_its_annotation(way: Way, key: str, text: str) -> None:
    told = node()
    home, app = way({key: text}), container(UID, "app")

    decision = told(ev.Creating(home, app, ask_id=1))
    if not isinstance(decision.answer, Final):
        decision = told(ev.FactRead(1, "nobody knows it"))
    assert value_of(decision) == Adjustment()
    told(ev.Started(home, app))

    said = "\n".join(explain(node_view(told.state, told.at_ns, {}), "shop/web/app") or [])
    assert f"Fault: annotation {key}: " in said
    assert "it counts as undeclared" in said
    assert REMEDY in said
    assert len(said) < 2_000


@pytest.mark.parametrize(("way", "key", "text"), CASES)
def test_a_bad_value_is_refused_where_unknown_pods_are(way: Way, key: str, text: str) -> None:
    told = node(LimitsSettings(unknown_pod=UnknownPod.REFUSE))

    decision = told(ev.Creating(way({key: text}), container(UID, "app"), ask_id=1))
    if not isinstance(decision.answer, Final):
        decision = told(ev.FactRead(1, "nobody knows it"))

    assert isinstance(decision.answer, Final)
    assert isinstance(decision.answer.value, Refusal)
    assert decision.answer.value.kind is Refused.BAD_VALUE
    assert decision.answer.value.message.startswith(f"shop/web, container app: annotation {key}: ")
    assert REMEDY in decision.answer.value.message
    assert len(decision.answer.value.message) < 500


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(
    ("annotations", "limit"),
    [
        pytest.param({OWN_LIMITS: json.dumps({"gone": {EPC: "4096"}})}, "sgx_epc 0", id="own: denied beside others"),
        pytest.param({"epc-limit.nri.io/container.gone": "4096"}, "", id="upstream's: nothing is said of this one"),
        pytest.param({UPSTREAM: "9" * MAX_VALUE}, "", id="as long as may be, and no amount"),
        pytest.param({OWN_LIMITS: own("4096") + " " * (MAX_VALUE - 30)}, "sgx_epc 4096", id="as long as may be"),
    ],
)
def test_a_value_for_an_unknown_container_or_as_long_as_may_be_is_read(
    way: Way, annotations: dict[str, str], limit: str
) -> None:
    told = node()
    decision = told(ev.Creating(way(annotations), container(UID, "app"), ask_id=1))
    if not isinstance(decision.answer, Final):
        decision = told(ev.FactRead(1, "nobody knows it"))
    assert value_of(decision) == Adjustment({"misc.max": limit} if limit else {})
