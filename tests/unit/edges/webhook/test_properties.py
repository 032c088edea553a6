"""Properties of admission over pods of all kinds."""

import copy
import json

from hypothesis import given
from hypothesis import strategies as st

from nodeward.edges.kube.mapping import pod_spec
from nodeward.engine.limits.promise import promise
from nodeward.model.admission import AdmissionRule
from nodeward.model.settings import LimitsSettings
from nodeward.wire.kube_objects import decode_pod
from tests.unit.edges.webhook.rounds import Json, admitted, container, notes, pod_of

EPC, ENCLAVE, PROVISION = "sgx.intel.com/epc", "sgx.intel.com/enclave", "sgx.intel.com/provision"
QUOTE, LIMITS, UPSTREAM = "sgx.intel.com/quote-provider", "nodeward.io/limits", "epc-limit.nri.io"
AMOUNTS = st.sampled_from(["1", "4096", "4Ki", "1Mi", "1048576", "1.5Ki", "1k", "3000m"])
NAMES = st.sampled_from(["app", "aesmd", "side", "x" * 53, "y" * 54])


@st.composite
def containers(draw: st.DrawFn) -> Json:
    limits: Json = {}
    if draw(st.booleans()):
        limits[EPC] = draw(AMOUNTS)
    if draw(st.booleans()):
        limits["cpu"] = "1"
    if draw(st.integers(0, 4)) == 0:
        limits[draw(st.sampled_from([ENCLAVE, PROVISION]))] = draw(st.sampled_from(["1", "2"]))
    found = container(draw(NAMES), limits or None)
    if draw(st.integers(0, 3)) == 0:
        found["env"] = draw(st.sampled_from([None, [], [{"name": "A", "value": "b"}], [{"name": "SGX_AESM_ADDR"}]]))
    if draw(st.integers(0, 3)) == 0:
        mount = {"name": draw(st.sampled_from(["aesmd-socket", "v"])), "mountPath": "/var/run/aesmd"}
        found["volumeMounts"] = draw(st.sampled_from([None, [], [mount], [{"name": "v", "mountPath": "/v"}]]))
    return found


@st.composite
def pods(draw: st.DrawFn) -> Json:
    regular = draw(st.lists(containers(), min_size=1, max_size=4, unique_by=lambda one: str(one["name"])))
    taken = [one["name"] for one in regular]
    drawn = draw(st.lists(containers(), max_size=3, unique_by=lambda one: str(one["name"])))
    init = [one for one in drawn if one["name"] not in taken]
    for one in init:
        if draw(st.booleans()):
            one["restartPolicy"] = "Always"
    annotations: Json | None = None
    if draw(st.booleans()):
        annotations = {
            key: draw(st.sampled_from(["", "1", "aesmd", "app", "[a]"]))
            for key in draw(
                st.lists(
                    st.sampled_from(
                        [QUOTE, LIMITS, UPSTREAM, f"{UPSTREAM}/pod", f"{UPSTREAM}/container.app", EPC, "a"]
                    ),
                    max_size=5,
                )
            )
        }
    return pod_of(*regular, annotations=annotations, initContainers=init)


@given(pods(), st.booleans())
def test_a_second_round_changes_nothing(made: Json, required: bool) -> None:
    rule = AdmissionRule(required_plugin="nodeward" if required else "")
    once = admitted(made, rule=rule)

    assert admitted(once.pod, rule=rule).operations == []
    assert admitted(once.pod, "UPDATE", rule=rule).operations == []


@given(pods())
def test_the_node_reads_from_the_annotation_what_it_reads_from_the_spec(made: Json) -> None:
    found = admitted(made).pod
    whole = copy.deepcopy(found)
    metadata = whole["metadata"]
    assert isinstance(metadata, dict)
    metadata["uid"] = "u"
    spec = pod_spec(decode_pod(json.dumps(whole).encode()))
    annotations = {key: str(value) for key, value in notes(found).items()}
    for one in spec.containers:
        told = promise(spec, {}, one.name, LimitsSettings())
        noted = promise(None, annotations, one.name, LimitsSettings())
        assert (noted.values, noted.faults) == (told.values, ())
