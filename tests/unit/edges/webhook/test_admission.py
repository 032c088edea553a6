"""What a pod gets at admission, and why one is refused."""

import copy
import json
from collections.abc import Mapping

import pytest

from nodeward.model.admission import AdmissionRule
from tests.unit.edges.webhook.rounds import Json, admitted, at, container, notes, pod_of

EPC, ENCLAVE, PROVISION = "sgx.intel.com/epc", "sgx.intel.com/enclave", "sgx.intel.com/provision"
QUOTE, LIMITS, UPSTREAM = "sgx.intel.com/quote-provider", "nodeward.io/limits", "epc-limit.nri.io"
REQUIRED = "required-plugins.noderesource.dev"


def test_init_sidecar_and_regular_containers_count_and_get_the_device() -> None:
    """Ordinary init containers run one after the other, before the regular ones and beside earlier sidecars."""
    made = pod_of(
        container("app", {EPC: "4Ki"}),
        initContainers=[
            container("proxy", {EPC: "2Ki"}, restartPolicy="Always"),
            container("setup", {EPC: "8Ki"}),
        ],
    )
    found = admitted(made).pod

    assert [at(found, "spec", "initContainers", index, "resources", "limits", ENCLAVE) for index in (0, 1)] == ["1"] * 2
    assert at(found, "spec", "containers", 0, "resources", "limits", ENCLAVE) == "1"
    assert notes(found) == {
        LIMITS: '{"proxy":{"sgx_epc":"2048"},"setup":{"sgx_epc":"8192"},"app":{"sgx_epc":"4096"}}',
        f"{UPSTREAM}/container.proxy": "2048",
        f"{UPSTREAM}/container.setup": "8192",
        f"{UPSTREAM}/container.app": "4096",
        EPC: "10Ki",
    }


@pytest.mark.parametrize(
    ("limit", "request_", "decimal", "total"),
    [
        ("1Mi", "1024Ki", "1048576", "1Mi"),
        ("1Mi", "1048576", "1048576", "1Mi"),
        ("0.5Gi", "512Mi", "536870912", "512Mi"),
        ("3000m", "3", "3", "3"),
        ("1e3", "1k", "1000", "1k"),
        ("1M", "1000000", "1000000", "1000000"),
        ("010", "10", "10", "10"),
        ("7Ei", "7Ei", "8070450532247928832", "7Ei"),
        ("9223372036854775807", "9223372036854775807", "9223372036854775807", "9223372036854775807"),
    ],
)
def test_amounts_are_compared_as_numbers(limit: str, request_: str, decimal: str, total: str) -> None:
    app = container("app", resources={"limits": {EPC: limit}, "requests": {EPC: request_}})
    found = admitted(pod_of(app))

    assert found.verdict.refusals == ()
    assert at(notes(found.pod), LIMITS) == f'{{"app":{{"sgx_epc":"{decimal}"}}}}'
    assert at(notes(found.pod), EPC) == total
    assert notes(found.pod).get(f"{UPSTREAM}/container.app") == decimal


WRITE, DEVICE = "write for example 1048576 or 1Mi", "leave it out, or write 1"
LOWER = "lower these limits"
REFUSED: Mapping[str, tuple[Json, tuple[str, ...], str]] = {
    "a fraction": (
        pod_of(container("app", {EPC: "1500m"})),
        (
            "container 'app' (spec.containers[0])",
            "resources.limits[sgx.intel.com/epc]",
            "'1500m' is not a whole number",
        ),
        WRITE,
    ),
    "no quantity": (pod_of(container("app", {EPC: "1MiB"})), ("'1MiB'", "must be a whole number"), WRITE),
    "negative": (pod_of(container("app", {EPC: "-5"})), ("'-5' is negative, and a limit is 0 or more",), WRITE),
    "an EPC of 0, which would still get devices": (
        pod_of(container("app", {EPC: "0"}), container("side", {EPC: "4Ki"})),
        ("container 'app' (spec.containers[0]): resources.limits[sgx.intel.com/epc] is '0', must be more than 0",),
        "leave it out of a container that needs no EPC",
    ),
    "too much": (pod_of(container("app", {EPC: "8Ei"})), ("'8Ei'", "more than 9223372036854775807"), WRITE),
    "too long": (pod_of(container("app", {EPC: "9" * 65})), ("quantity of 65 characters", "at most 64"), WRITE),
    "a request that is not the limit": (
        pod_of(container("app", resources={"limits": {EPC: "1Mi"}, "requests": {EPC: "2Mi"}})),
        ("container 'app'", "resources.requests[sgx.intel.com/epc] is '2Mi'", "'1Mi'"),
        "write the same amount for both, or the limit only",
    ),
    "a request without a limit": (
        pod_of(container("app", resources={"requests": {EPC: "1Mi"}})),
        ("container 'app'", "without a limit"),
        "write the same amount under limits",
    ),
    "an enclave count that is none": (
        pod_of(container("app", {EPC: "1Mi", ENCLAVE: "x"})),
        ("resources.limits[sgx.intel.com/enclave]", "'x' is not a Kubernetes quantity"),
        DEVICE,
    ),
    "a provision count that is none": (
        pod_of(container("app", {EPC: "1Mi", PROVISION: "x"})),
        ("container 'app' (spec.containers[0])", "resources.limits[sgx.intel.com/provision]", "'x'"),
        DEVICE,
    ),
    "a request for provision that is not the limit": (
        pod_of(container("app", resources={"limits": {PROVISION: "1"}, "requests": {PROVISION: "2"}})),
        ("container 'app'", "resources.requests[sgx.intel.com/provision] is '2'", "'1'"),
        "write the same amount for both, or the limit only",
    ),
    "an init container": (
        pod_of(container("app"), initContainers=[container("setup", {EPC: "0.5"})]),
        ("init container 'setup' (spec.initContainers[0])", "'0.5'"),
        WRITE,
    ),
    "a sidecar": (
        pod_of(container("app"), initContainers=[container("proxy", {EPC: "0.5"}, restartPolicy="Always")]),
        ("sidecar 'proxy'",),
        WRITE,
    ),
    "a sum over 2^63": (
        pod_of(container("a", {EPC: "6E"}), container("none"), container("b", {EPC: "6000000000000000000"})),
        (
            "container 'a' (spec.containers[0]): resources.limits[sgx.intel.com/epc] is '6E', ",
            "container 'b' (spec.containers[2]): resources.limits[sgx.intel.com/epc] is '6000000000000000000': ",
            "together 12000000000000000000 at one time, and a pod's sum is at most 2^63-1",
        ),
        LOWER,
    ),
    "a sum over 2^63 with a sidecar": (
        pod_of(container("app", {EPC: "6E"}), initContainers=[container("proxy", {EPC: "6E"}, restartPolicy="Always")]),
        (
            "sidecar 'proxy' (spec.initContainers[0]): resources.limits[sgx.intel.com/epc] is '6E', ",
            "container 'app' (spec.containers[0]): resources.limits[sgx.intel.com/epc] is '6E': together ",
        ),
        LOWER,
    ),
}


@pytest.mark.parametrize(("made", "words", "remedy"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_names_container_field_value_rule_and_remedy(made: Json, words: tuple[str, ...], remedy: str) -> None:
    found = admitted(made)
    text = "; ".join(found.verdict.refusals)

    assert [word for word in words if word not in text] == []
    assert [one for one in found.verdict.refusals if not one.endswith(f"; {remedy}")] == []
    assert found.operations == []


def test_every_fault_is_told_at_once_and_not_more_than_ten() -> None:
    found = admitted(pod_of(*(container(f"c{number}", {EPC: "x"}) for number in range(30))))

    assert len(found.verdict.refusals) == 11
    assert found.verdict.refusals[-1] == "and 20 more"


def test_a_sum_of_very_many_containers_is_told_in_a_bounded_text() -> None:
    """The API server hands a refusal on to people: names and values are cut, and so is their list."""
    refusals = admitted(pod_of(*(container("c" * 63, {EPC: "4E"}) for _ in range(500)))).verdict.refusals

    assert len(refusals) == 1
    assert "(spec.containers[9])" in refusals[0]
    assert ", and 490 more: together 2000000000000000000000 at one time" in refusals[0]
    assert len(refusals[0]) < 4096


@pytest.mark.parametrize("name", ["sgx.intel.community/x", "sgx.intel.com/epcs", "sgx.intel.com", "other/epc"])
def test_resources_of_other_names_are_none_of_ours(name: str) -> None:
    other = container("app", resources={"limits": {name: "1Mi"}, "requests": {name: "7"}})

    assert admitted(pod_of(other)).operations == []


def test_a_users_own_values_are_replaced() -> None:
    found = admitted(
        pod_of(
            container("app", {EPC: "4Ki"}),
            container("free"),
            annotations={
                "keep": "me",
                LIMITS: '{"free":{"sgx_epc":"999999"}}',
                UPSTREAM: "999999",
                f"{UPSTREAM}/pod": "999999",
                f"{UPSTREAM}/container.free": "999999",
                f"{UPSTREAM}/container.app": "999999",
                EPC: "999999",
            },
        )
    )

    assert notes(found.pod) == {
        "keep": "me",
        LIMITS: '{"app":{"sgx_epc":"4096"},"free":{"sgx_epc":"0"}}',
        f"{UPSTREAM}/container.app": "4096",
        EPC: "4Ki",
    }


def test_a_pod_that_declares_nothing_loses_limits_it_made_up_and_keeps_katas_annotation_with_a_warning() -> None:
    made = pod_of(container("app"), annotations={LIMITS: "{}", f"{UPSTREAM}/pod": "4096", EPC: "64Mi"})
    found = admitted(made)

    assert notes(found.pod) == {EPC: "64Mi"}
    assert found.verdict.warnings == (
        "annotation sgx.intel.com/epc is not checked: no container has a limit sgx.intel.com/epc",
    )


def test_a_pod_without_any_of_it_is_left_alone() -> None:
    found = admitted(pod_of(container("app", {"cpu": "1"}), annotations={"a": "b"}))
    assert (found.operations, found.verdict.warnings) == ([], ())


@pytest.mark.parametrize(("length", "fits"), [(53, True), (54, False), (63, False)])
def test_the_key_for_upstream_is_written_where_it_fits(length: int, fits: bool) -> None:
    name = "c" * length
    found = notes(admitted(pod_of(container(name, {EPC: "1"}))).pod)

    assert (at(found, f"{UPSTREAM}/container.{name}") == "1") is fits
    assert at(found, LIMITS) == f'{{"{name}":{{"sgx_epc":"1"}}}}'


@pytest.mark.parametrize(
    "metadata",
    [None, {}, {"annotations": None}, {"annotations": {}}, {"annotations": {"a/b~c": "d", QUOTE: "aesmd"}}],
    ids=str,
)
def test_the_patch_fits_whatever_is_absent_or_null(metadata: Json | None) -> None:
    app: Json = {"name": "app", "resources": {"limits": {EPC: "1"}, "requests": None}, "env": None}
    made: Json = {"spec": {"containers": [app], "initContainers": None, "volumes": None}}
    if metadata is not None:
        made["metadata"] = metadata
    found = admitted(made)

    assert at(found.pod, "spec", "containers", 0, "resources", "requests") == {ENCLAVE: "1"}
    assert at(notes(found.pod), EPC) == "1"
    assert admitted(found.pod).operations == []


@pytest.mark.parametrize("path", ["/var/run/aesmd/", "/var/run/./aesmd", "//var/x/../run//aesmd", "var/run/aesmd"])
def test_the_users_own_address_and_mount_of_aesmd_stay(path: str) -> None:
    own = [{"name": "mine", "mountPath": path}]
    address = [{"name": "SGX_AESM_ADDR", "value": "elsewhere"}]
    made = pod_of(container("app", {EPC: "1"}, env=address, volumeMounts=own), annotations={QUOTE: "aesmd"})
    found = admitted(made).pod

    assert at(found, "spec", "containers", 0, "env") == address
    assert at(found, "spec", "containers", 0, "volumeMounts") == own
    assert at(found, "spec", "volumes") is None


def test_aesmd_as_a_sidecar_shares_its_socket_in_memory() -> None:
    made = pod_of(
        container("app", {EPC: "1"}),
        annotations={QUOTE: "aesmd"},
        initContainers=[container("aesmd", {EPC: "1"}, restartPolicy="Always")],
    )
    found = admitted(made).pod

    assert at(found, "spec", "volumes", 0, "emptyDir", "medium") == "Memory"
    assert at(found, "spec", "initContainers", 0, "resources", "limits", PROVISION) == "1"


def test_a_lone_aesmd_with_epc_uses_the_nodes_folder_as_with_intels_webhook() -> None:
    """Nobody is beside it who could share a folder in memory."""
    found = admitted(pod_of(container("aesmd", {EPC: "1"}), container("plain"), annotations={QUOTE: "aesmd"})).pod

    assert at(found, "spec", "volumes", 0, "hostPath", "path") == "/var/run/aesmd"
    assert at(found, "spec", "volumes", 0, "emptyDir") is None


def test_an_aesmd_that_ends_before_the_others_begin_serves_none_of_them() -> None:
    made = pod_of(
        container("app", {EPC: "1"}),
        annotations={QUOTE: "aesmd"},
        initContainers=[container("aesmd", {EPC: "1"})],
    )
    assert at(admitted(made).pod, "spec", "volumes", 0, "hostPath", "path") == "/var/run/aesmd"


def test_an_aesmd_that_came_after_the_volume_of_the_nodes_folder_is_warned_of() -> None:
    """Given a second round for a pod that had no aesmd in the first one, then its volume stays and its author is told:
    an aesmd there would take the place of the node's for all pods."""
    once = admitted(pod_of(container("app", {EPC: "1"}), annotations={QUOTE: "aesmd"}))
    spec = once.pod["spec"]
    assert isinstance(spec, dict)
    spec["containers"].append(container("aesmd", {EPC: "1"}))
    twice = admitted(once.pod)

    assert once.verdict.warnings == ()
    assert at(twice.pod, "spec", "volumes") == at(once.pod, "spec", "volumes")
    assert twice.verdict.warnings == (
        "spec.volumes[aesmd-socket] is the node's folder, and container 'aesmd' of this pod would serve it to every "
        "pod of the node; write emptyDir: {medium: Memory} for this volume",
    )


def test_a_quote_provider_that_is_no_container_is_told() -> None:
    found = admitted(pod_of(container("app", {EPC: "1"}), annotations={QUOTE: "apq"}))

    assert found.verdict.warnings == (
        "sgx.intel.com/quote-provider: no container 'apq' with sgx.intel.com/epc in this pod",
    )


def test_an_enclave_count_of_two_becomes_one_as_with_intels_webhook() -> None:
    found = admitted(pod_of(container("app", {EPC: "1", ENCLAVE: "2"}))).pod

    assert at(found, "spec", "containers", 0, "resources", "limits", ENCLAVE) == "1"
    assert at(found, "spec", "containers", 0, "resources", "requests", ENCLAVE) == "1"


REQUIRED_PLUGINS: Mapping[str, tuple[Json, Json]] = {
    "none yet": ({}, {REQUIRED: '["nodeward"]'}),
    "another": ({REQUIRED: "[a, 'b']"}, {REQUIRED: '["a","b","nodeward"]'}),
    "lines": ({REQUIRED: "- a\n- b\n"}, {REQUIRED: '["a","b","nodeward"]'}),
    "for the pod": ({f"{REQUIRED}/pod": "[]"}, {f"{REQUIRED}/pod": '["nodeward"]'}),
    "for one container": (
        {f"{REQUIRED}/container.app": "[]"},
        {f"{REQUIRED}/container.app": '["nodeward"]', REQUIRED: '["nodeward"]'},
    ),
    "there already": ({REQUIRED: '[ "nodeward" ]'}, {REQUIRED: '[ "nodeward" ]'}),
}


@pytest.mark.parametrize(("before", "after"), REQUIRED_PLUGINS.values(), ids=REQUIRED_PLUGINS)
def test_the_plugin_is_required_whatever_key_the_validator_reads(before: Json, after: Json) -> None:
    rule = AdmissionRule(required_plugin="nodeward")
    found = notes(admitted(pod_of(container("app", {EPC: "1"}), annotations=before), rule=rule).pod)

    assert {key: value for key, value in found.items() if key.startswith(REQUIRED)} == after


@pytest.mark.parametrize("text", ["{a: b}", "[ab", "ab]"], ids=["a map", "never closed", "never opened"])
def test_a_list_of_plugins_that_cannot_be_read_is_refused_and_a_pod_without_epc_needs_no_plugin(text: str) -> None:
    rule = AdmissionRule(required_plugin="nodeward")
    odd: Json = {REQUIRED: text}
    refused = admitted(pod_of(container("app", {EPC: "1"}), annotations=odd), rule=rule).verdict.refusals

    assert refused[0].startswith(f"metadata.annotations[{REQUIRED}] is '{text}'")
    assert 'write for example ["nodeward"]' in refused[0]
    assert admitted(pod_of(container("app"), annotations=odd), rule=rule).operations == []


@pytest.mark.parametrize("picture", [{}, {"kubernetes.io/config.mirror": "x"}], ids=["an update", "a static pod"])
def test_a_list_of_plugins_that_cannot_be_read_keeps_no_other_annotation_from_being_set_right(picture: Json) -> None:
    """Given a pod that exists with somebody else's amounts, when its list of plugins is garbage too, then the amounts
    are set right all the same, the list stays, and its author is told."""
    rule = AdmissionRule(required_plugin="nodeward")
    odd: Json = {f"{REQUIRED}/container.x": "{", LIMITS: "{}", f"{UPSTREAM}/container.app": "9", EPC: "9", **picture}
    made = pod_of(container("app", {EPC: "4Ki"}), annotations=odd)
    found = admitted(made, "CREATE" if picture else "UPDATE", rule=rule)

    assert notes(found.pod) == {
        **picture,
        LIMITS: '{"app":{"sgx_epc":"4096"}}',
        f"{UPSTREAM}/container.app": "4096",
        EPC: "4Ki",
        f"{REQUIRED}/container.x": "{",
        REQUIRED: '["nodeward"]',
    }
    assert found.verdict.refusals == ()
    assert [line.split(": ")[0] for line in found.verdict.warnings] == [
        f"metadata.annotations[{REQUIRED}/container.x] is '{{'"
    ]


@pytest.mark.parametrize("length", [4096, 4097])
def test_a_list_of_plugins_is_read_up_to_a_length(length: int) -> None:
    rule = AdmissionRule(required_plugin="nodeward")
    other = "a" * (length - len("[]"))
    found = admitted(pod_of(container("app", {EPC: "1"}), annotations={REQUIRED: f"[{other}]"}), rule=rule)

    if length > 4096:
        assert found.verdict.refusals[0].startswith(f"metadata.annotations[{REQUIRED}] is '[aaa")
        assert len(found.verdict.refusals[0]) < 500
    else:
        assert at(notes(found.pod), REQUIRED) == f'["{other}","nodeward"]'


def test_what_a_runtime_class_adds_gives_no_container_anything() -> None:
    found = notes(admitted(pod_of(container("app"), overhead={EPC: "2Mi"})).pod)

    assert found == {LIMITS: '{"app":{"sgx_epc":"0"}}'}


@pytest.mark.parametrize("amount", ["1MiB", "-1", "", "9" * 70])
def test_an_overhead_that_cannot_be_read_counts_as_none_and_is_not_held_against_the_pod(amount: str) -> None:
    rule = AdmissionRule(resources={EPC: "sgx_epc", "tdx.intel.com/keys": "tdx"})
    app = container("app", {"cpu": "1"})
    found = admitted(pod_of(app, overhead={EPC: amount, "tdx.intel.com/keys": "1"}), rule=rule)

    assert found.verdict.refusals == ()
    assert notes(found.pod) == {LIMITS: '{"app":{"tdx":"0"}}'}


def test_any_misc_resource_is_carried_in_our_own_annotation() -> None:
    rule = AdmissionRule(resources={EPC: "sgx_epc", "tdx.intel.com/keys": "tdx"})
    found = admitted(pod_of(container("a", {"tdx.intel.com/keys": "1"}), container("b", {EPC: "8"})), rule=rule).pod

    assert json.loads(str(at(notes(found), LIMITS))) == {
        "a": {"sgx_epc": "0", "tdx": "1"},
        "b": {"sgx_epc": "8", "tdx": "0"},
    }
    assert at(found, "spec", "containers", 0, "resources", "limits") == {"tdx.intel.com/keys": "1"}


def test_an_ephemeral_container_with_a_resource_is_refused_and_one_without_changes_nothing() -> None:
    base = admitted(pod_of(container("app", {EPC: "4Ki"}))).pod
    plain, greedy = copy.deepcopy(base), copy.deepcopy(base)
    for made, debugger in ((plain, container("debug")), (greedy, container("debug", {EPC: "4Ki"}))):
        spec = made["spec"]
        assert isinstance(spec, dict)
        spec["ephemeralContainers"] = [debugger]

    assert admitted(plain, "UPDATE", "ephemeralcontainers").operations == []
    refused = admitted(greedy, "UPDATE", "ephemeralcontainers").verdict.refusals
    assert refused == (
        "ephemeral container 'debug' (spec.ephemeralContainers[0]): resources.limits[sgx.intel.com/epc] is '4Ki': an "
        "ephemeral container can have no resources; take it out, or declare it in a container of the pod",
    )


def test_annotations_that_were_changed_later_are_set_right_again() -> None:
    good = admitted(pod_of(container("app", {EPC: "4Ki"}))).pod
    bad = copy.deepcopy(good)
    bad["metadata"] = {"annotations": {LIMITS: "{}", f"{UPSTREAM}/pod": "99", "own": "stays"}}
    found = admitted(bad, "UPDATE")

    assert notes(found.pod) == {**notes(good), "own": "stays"}


def test_a_pod_that_exists_with_an_epc_of_0_has_its_annotations_set_right() -> None:
    found = admitted(pod_of(container("app", {EPC: "0"}), annotations={UPSTREAM: "9", LIMITS: "{}"}), "UPDATE")

    assert notes(found.pod) == {LIMITS: '{"app":{"sgx_epc":"0"}}', EPC: "0"}


@pytest.mark.parametrize(
    "made",
    [
        pod_of(container("app", {EPC: "1500m"}), annotations={LIMITS: "{}"}),
        pod_of(container("app", resources={"limits": {EPC: "1"}, "requests": {EPC: "2"}})),
    ],
    ids=["a fraction", "unequal"],
)
def test_a_pod_that_exists_is_never_refused(made: Json) -> None:
    found = admitted(made, "UPDATE")

    assert found.verdict.refusals == ()
    assert found.operations == []


def test_of_a_static_pods_picture_only_annotations_change() -> None:
    made = pod_of(container("app", {EPC: "1"}), annotations={"kubernetes.io/config.mirror": "x"})
    found = admitted(made)

    assert at(found.pod, "spec") == at(made, "spec")
    assert at(notes(found.pod), f"{UPSTREAM}/container.app") == "1"


@pytest.mark.parametrize(
    ("operation", "sub_resource"),
    [("DELETE", ""), ("CONNECT", "exec"), ("UPDATE", "resize"), ("UPDATE", "status"), ("CREATE", "binding")],
)
def test_what_is_none_of_ours_is_allowed_untouched(operation: str, sub_resource: str) -> None:
    found = admitted(pod_of(container("app", {EPC: "x"})), operation, sub_resource)

    assert found.verdict.refusals == ()
    assert found.operations == []
