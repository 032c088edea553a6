"""Values of annotations made to hurt, from each way in through the engine: a sentence, and never half a limit.

The ways in are NRI's pod, CRI's pod and the hook's line, each with its own mapping.
"""

import json
from collections.abc import Callable

import pytest

from nodeward.contracts import cri_pb2, nri_pb2
from nodeward.core import events as ev
from nodeward.core.annotations import OWN_LIMITS
from nodeward.core.decision import Adjustment, Decision, Final
from nodeward.core.refusal import Refusal, Refused
from nodeward.core.workload import Sandbox
from nodeward.features.limits.settings import LimitsSettings, UnknownPod
from nodeward.neighbours.cri import mapping as cri_mapping
from nodeward.neighbours.hook.line import HookRequest, decode_request, encode_request
from nodeward.neighbours.hook.server import sandbox
from nodeward.neighbours.nri import mapping as nri_mapping
from nodeward.people.explain import explain
from nodeward.people.view import node_view
from tests.unit.features.build import EPC, Told, container, node, value_of

UID = "0f2a4c6e-1111-2222-3333-444455556666"
UPSTREAM = "epc-limit.nri.io/container.app"
APP = container(UID, "app")
Way = Callable[..., Sandbox]


def by_nri(annotations: dict[str, str], name: str = "web") -> Sandbox:
    pod = nri_pb2.PodSandbox(id=f"s-{UID}", uid=UID, namespace="shop", name=name, annotations=annotations)
    return nri_mapping.sandbox(nri_pb2.PodSandbox.FromString(pod.SerializeToString()))


def by_cri(annotations: dict[str, str], name: str = "web") -> Sandbox:
    metadata = cri_pb2.PodSandboxMetadata(uid=UID, namespace="shop", name=name)
    config = cri_pb2.PodSandboxConfig(metadata=metadata, annotations=annotations)
    return cri_mapping.sandbox(f"s-{UID}", cri_pb2.PodSandboxConfig.FromString(config.SerializeToString()))


def by_hook(annotations: dict[str, str], name: str = "web") -> Sandbox:
    request = HookRequest("c", f"s-{UID}", UID, "shop", name, "app", f"/kubepods/pod{UID}/c", annotations)
    return sandbox(decode_request(encode_request(request)))


def asked(told: Told, home: Sandbox) -> Decision:
    decision = told(ev.Creating(home, APP, ask_id=1))
    return decision if isinstance(decision.answer, Final) else told(ev.FactRead(1, "nobody knows it"))


def own(amount: object) -> str:
    return json.dumps({"app": {EPC: amount}})


by_each_way = pytest.mark.parametrize("way", [by_nri, by_cri, by_hook], ids=["nri", "cri", "hook"])


@by_each_way
@pytest.mark.parametrize(
    ("key", "text"),
    [
        pytest.param(UPSTREAM, "-4096", id="upstream's is negative"),
        pytest.param(OWN_LIMITS, own("4096") + "\x00", id="own ends with nul"),
        pytest.param(OWN_LIMITS, '{"app":"4096"}', id="own has an amount in the place of a container"),
        pytest.param(OWN_LIMITS, own("4096") + " " * (1 << 20), id="1 MiB of spaces behind own"),
    ],
)
def test_a_bad_value_limits_nothing_or_is_refused_with_its_annotation(way: Way, key: str, text: str) -> None:
    told, home = node(), way({key: text})
    assert value_of(asked(told, home)) == Adjustment()
    told(ev.Started(home, APP))
    said = "\n".join(explain(node_view(told.state, told.at_ns, {}), "shop/web/app") or [])
    assert f"Fault: annotation {key}: " in said
    assert "it counts as undeclared" in said
    assert len(said) < 2_000

    refusal = value_of(asked(node(LimitsSettings(unknown_pod=UnknownPod.REFUSE)), home))
    assert isinstance(refusal, Refusal)
    assert refusal.kind is Refused.BAD_VALUE
    assert refusal.message.startswith(f"shop/web, container app: annotation {key}: ")
    assert "write for example " in refusal.message
    assert len(refusal.message) < 500


@by_each_way
def test_a_name_that_would_break_a_line_is_written_out_and_cut(way: Way) -> None:
    """Kubernetes names no pod so; another client of the runtime may."""
    assert way({}, "web\nFault: \x1b[31m").name == "web\\u000aFault: \\u001b[31m"
    assert len(way({}, "w" * 3000).name) < 300
