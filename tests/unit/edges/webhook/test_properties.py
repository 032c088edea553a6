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
from tests.unit.edges.webhook.rounds import Json, admitted, at, container, notes, pod_of

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


def expected_notes(made: Json) -> Json:
    """Our reading of the rules, without the engine: what the annotations must be."""
    spec = made["spec"]
    assert isinstance(spec, dict)
    every: list[Json] = [*spec["initContainers"], *spec["containers"]]
    found: Json = {k: v for k, v in notes(made).items() if k != LIMITS and not k.startswith(UPSTREAM)}
    numbers = {"0": 0, "1": 1, "4096": 4096, "4Ki": 4096, "1Mi": 1 << 20, "1048576": 1 << 20, "1.5Ki": 1536}
    numbers |= {"1k": 1000, "3000m": 3}
    epc = {str(one["name"]): at(one, "resources", "limits", EPC) for one in every}
    declared = {name: numbers[str(text)] for name, text in epc.items() if text is not None}
    if not declared:
        return found
    table = {name: {"sgx_epc": str(declared.get(name, 0))} for name in epc}
    found[LIMITS] = json.dumps(table, separators=(",", ":"))
    found |= {f"{UPSTREAM}/container.{name}": str(n) for name, n in declared.items() if len(name) <= 53}
    sidecars = peak = 0
    for one in spec["initContainers"]:
        amount = declared.get(str(one["name"]), 0)
        if one.get("restartPolicy") == "Always":
            sidecars += amount
        else:
            peak = max(peak, sidecars + amount)
    total = max(peak, sidecars + sum(declared.get(str(one["name"]), 0) for one in spec["containers"]))
    found[EPC] = total
    return found


@given(pods())
def test_the_patched_pod_is_the_expected_pod(made: Json) -> None:
    found = admitted(made)
    assert found.verdict.refusals == ()
    expected = expected_notes(made)
    got = notes(found.pod)
    if any(key == LIMITS for key in expected):
        suffixes = {"Ki": 1 << 10, "Mi": 1 << 20, "k": 1000}
        text = str(got[EPC])
        suffix = next((one for one in suffixes if text.endswith(one)), "")
        got[EPC] = int(text.removesuffix(suffix)) * suffixes.get(suffix, 1)
    assert got == expected


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


@given(pods(), st.sampled_from(["limits", "requests"]), st.sampled_from(["x", "1.5", "-1", "8Ei", ""]))
def test_whatever_is_wrong_is_refused_whole(made: Json, section: str, text: str) -> None:
    broken = copy.deepcopy(made)
    first = at(broken, "spec", "containers", 0)
    assert isinstance(first, dict)
    first["resources"] = {"limits": {EPC: "1"}, "requests": {EPC: "1"}} | {section: {EPC: text}}
    found = admitted(broken)

    assert found.operations == []
    assert any(repr(text) in line and str(first["name"]) in line for line in found.verdict.refusals)
