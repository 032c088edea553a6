"""What the API server says and is sent: pods, nodes, Events, marks."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.contracts import kubepod_pb2 as pb
from nodeward.core.errors import WireError
from nodeward.core.vms import Allocatable
from nodeward.neighbours.formats import kube_objects
from nodeward.neighbours.formats.kube_node import OnNode, allocatable, on_node
from nodeward.neighbours.formats.kube_objects import LineSplitter, decode_watch_line
from nodeward.neighbours.kubelet import pods_api
from nodeward.neighbours.kubernetes.events import MOST_NOTE, EventObject, created, path_of
from nodeward.neighbours.kubernetes.node_marks import Marks, next_patch
from tests.unit.features.admission.rounds import at


def test_a_page_without_pods_may_say_null() -> None:
    assert kube_objects.decode_pod_list(b'{"metadata":{"resourceVersion":"9"},"items":null}').items is None


@pytest.mark.parametrize(
    ("line", "says"),
    [
        pytest.param(b"{", "cannot be read", id="cut off"),
        pytest.param(b"\xff\xfe", "cannot be read", id="binary"),
        pytest.param(b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}', "cannot be read", id="not UTF-8"),
        pytest.param(b'{"type":"s3cret","object":{}}', "$.type", id="unknown type"),
        pytest.param(b'{"type":"ADDED","object":{"metadata":{"name":"a","namespace":"n"}}}', "uid", id="no uid"),
        pytest.param(b'{"type":"BOOKMARK","object":{"metadata":{}}}', "resourceVersion", id="bookmark sans version"),
        pytest.param(b'{"type":"ADDED","object":' + b'{"x":' * 200_000, "cannot be read", id="nested"),
        pytest.param(b" " * (8 * 1024 * 1024 + 1), "at most", id="too long"),
    ],
)
def test_a_wrong_line_is_a_wire_error_without_its_content(line: bytes, says: str) -> None:
    with pytest.raises(WireError) as caught:
        decode_watch_line(line)
    assert says in str(caught.value)
    assert "s3cret" not in str(caught.value)


@given(st.lists(st.binary(min_size=1, max_size=20).filter(lambda b: b"\n" not in b and b"\r" not in b)), st.data())
def test_lines_do_not_depend_on_how_the_stream_is_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    splitter, got = LineSplitter(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += splitter.feed(stream[start:end])
    assert got == lines
    assert splitter.pending_bytes() == 0


def test_an_unfinished_line_is_counted_and_not_given() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"one\r\n\r\ntw") == [b"one"]
    assert splitter.pending_bytes() == 2


@pytest.mark.parametrize(
    "chunks", [[b"x" * 11], [b"x" * 6, b"x" * 5], [b"x" * 11 + b"\n"]], ids=["one", "two", "ended"]
)
def test_a_line_over_the_limit_is_refused(chunks: list[bytes]) -> None:
    splitter = LineSplitter(limit=10)
    for chunk in chunks[:-1]:
        assert splitter.feed(chunk) == []
    with pytest.raises(WireError, match="more than 10 bytes"):
        splitter.feed(chunks[-1])


RESOURCES: dict[str, object] = {"limits": {"tdx.intel.com/keys": "1"}, "requests": {"cpu": "500m"}}
METADATA: dict[str, object] = {"name": "a", "namespace": "ns", "uid": "u-1", "resourceVersion": "7"}
SECRET: dict[str, object] = {"env": [{"name": "PASSWORD", "value": "s3cret"}], "command": ["s3cret"]}
IN_JSON: dict[str, object] = {
    "metadata": METADATA | {"labels": {"a": "s3cret"}},
    "spec": {
        "overhead": {"tdx.intel.com/keys": "1"},
        "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {}}],
        "containers": [{"name": "c", "resources": RESOURCES, **SECRET}, {"name": "d", "resources": {}}],
        "ephemeralContainers": [{"name": "e", "resources": {}}],
        "resources": {"requests": {"cpu": "2"}},
    },
    "status": {
        "phase": "Running",
        "qosClass": "Burstable",
        "containerStatuses": [{"name": "c", "containerID": "containerd://abc"}, {"name": "d"}],
        "initContainerStatuses": [{"name": "i", "containerID": "containerd://def"}],
    },
}


def in_protobuf() -> bytes:
    asking = pb.Container(name="c")
    asking.resources.limits["tdx.intel.com/keys"].string = "1"
    asking.resources.requests["cpu"].string = "500m"
    spec = pb.PodSpec(
        containers=[asking, pb.Container(name="d")],
        initContainers=[pb.Container(name="i", restartPolicy="Always")],
        ephemeralContainers=[pb.EphemeralContainer(ephemeralContainerCommon=pb.Container(name="e"))],
    )
    spec.overhead["tdx.intel.com/keys"].string = "1"
    spec.resources.requests["cpu"].string = "2"
    meta = pb.ObjectMeta(name="a", namespace="ns", uid="u-1", resourceVersion="7")
    meta.annotations.update({"kubernetes.io/config.hash": "h", "kubernetes.io/config.mirror": "h", "secret": "s3cret"})
    status = pb.PodStatus(
        phase="Running",
        qosClass="Burstable",
        containerStatuses=[pb.ContainerStatus(name="c", containerID="containerd://abc"), pb.ContainerStatus(name="d")],
        initContainerStatuses=[pb.ContainerStatus(name="i", containerID="containerd://def")],
    )
    return pb.Pod(metadata=meta, spec=spec, status=status).SerializeToString()


def test_it_is_what_the_same_pod_in_json_is_but_for_the_annotations_which_a_user_writes() -> None:
    found = pods_api.decode_pod(in_protobuf())
    in_json = kube_objects.decode_pod(json.dumps(IN_JSON).encode())
    assert found == in_json
    assert "s3cret" not in repr((found, in_json))
    unknown = b"\xfa\x3f\x03abc"  # field 1023
    assert pods_api.decode_pod(in_protobuf() + unknown) == found, "what is not declared is passed over"


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        pytest.param(b"", "has no uid", id="empty"),
        pytest.param(b"{}", "bytes are no Pod", id="json"),
        pytest.param(in_protobuf()[:-1], "bytes are no Pod", id="cut short"),
        pytest.param(b"\0" * (kube_objects.MAX_OBJECT_BYTES + 1), "bytes, more than", id="huge"),
    ],
)
def test_what_is_no_pod_is_an_error(data: bytes, fault: str) -> None:
    with pytest.raises(WireError, match=fault):
        pods_api.decode_pod(data)


TDX = "devices.kubevirt.io/tdx"
Of = dict[str, object]
HEARTBEAT: Of = {"f:conditions": {".": {}, 'k:{"type":"Ready"}': {".": {}, "f:lastHeartbeatTime": {}, "f:status": {}}}}
OF_TDX: Of = {"f:capacity": {".": {}, "f:cpu": {}, f"f:{TDX}": {}}}


def node(amount: object, *managed: tuple[str, Of]) -> bytes:
    """A Node with this amount, and who wrote what of its status."""
    entries: list[object] = [
        {"manager": name, "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": of}}
        for name, of in managed
    ]
    entries.append({"manager": "kubelet", "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {}}}})
    entries.append({"manager": "odd", "fieldsV1": {"f:status": ["what", "is", "this"]}})
    capacity = {"cpu": "4"} if amount is None else {"cpu": "4", TDX: amount}
    return json.dumps({"metadata": {"managedFields": entries}, "status": {"capacity": capacity}}).encode()


WRITES = HEARTBEAT | OF_TDX
THEIRS: Of = {"f:conditions": {'k:{"type":"KernelDeadlock"}': {"f:lastHeartbeatTime": {}}}} | OF_TDX


@pytest.mark.parametrize(
    ("data", "found"),
    [
        pytest.param(node("8", ("kubelet", WRITES)), OnNode(8, "kubelet", by_kubelet=True), id="with the heartbeat"),
        pytest.param(node("8", ("k3s", WRITES)), OnNode(8, "k3s", by_kubelet=True), id="kubelet by another name"),
        pytest.param(
            node("1k", ("kubelet", HEARTBEAT), ("nfd-master", OF_TDX)), OnNode(1000, "nfd-master"), id="another"
        ),
        pytest.param(node("8", ("kubelet", WRITES), ("kubectl", OF_TDX)), OnNode(8, "kubectl"), id="two who wrote it"),
        pytest.param(node("8", ("npd", THEIRS)), OnNode(8, "npd"), id="who has a condition of its own"),
        pytest.param(node("8", ("kubelet", HEARTBEAT)), OnNode(8), id="nobody"),
        pytest.param(b'{"status":{"capacity":{"devices.kubevirt.io/tdx":8}}}', OnNode(8), id="nothing is kept"),
    ],
)
def test_who_wrote_an_amount_is_told_and_kubelet_by_its_heartbeat(data: bytes, found: OnNode) -> None:
    assert on_node(data, TDX) == found


def test_what_is_not_there_or_none_is_no_amount_and_what_is_no_number_is_one() -> None:
    assert on_node(node(None, ("nfd-master", OF_TDX)), TDX) == on_node(b"{}", TDX) == OnNode()
    assert on_node(node("0", ("kubelet", HEARTBEAT | OF_TDX)), TDX).amount == 0
    assert on_node(node("many"), TDX).amount == 1
    with pytest.raises(WireError):
        on_node(b"[]", TDX)


@pytest.mark.parametrize(
    ("table", "found"),
    [
        pytest.param('{"cpu": "7500m", "memory": "2Ki", "pods": "110"}', Allocatable(7500, 2048), id="both"),
        pytest.param('{"cpu": 8, "memory": "much"}', Allocatable(8000), id="one is no amount"),
        pytest.param('{"cpu": "-1"}', Allocatable(), id="negative"),
        pytest.param("null", Allocatable(), id="none"),
    ],
)
def test_what_is_allocatable_is_read(table: str, found: Allocatable) -> None:
    assert allocatable(b'{"status": {"allocatable": %s}}' % table.encode()) == found
    with pytest.raises(WireError):
        allocatable(b'{"status": {"allocatable": [7]}}')


ONE = EventObject(
    name="web.1.1",
    namespace="shop",
    pod="web",
    pod_uid="u-1",
    field_path="spec.containers{app}",
    reason="ChargeRefused",
    is_warning=True,
    note="a note",
    node="n1",
    count=1,
    first_wall_ns=1_700_000_000_123_456_789,
    last_wall_ns=1_700_000_001_000_000_000,
)


def test_an_event_that_is_made_names_pod_container_and_time_to_the_microsecond() -> None:
    body = json.loads(created(ONE))
    named = {"namespace": "shop", "name": "web", "uid": "u-1", "fieldPath": "spec.containers{app}"}
    assert body["regarding"] == {"apiVersion": "v1", "kind": "Pod", **named}
    assert body["eventTime"] == "2023-11-14T22:13:20.123456Z"
    assert (body["type"], body["reason"], body["note"]) == ("Warning", "ChargeRefused", "a note")
    assert "series" not in body
    assert path_of(ONE, is_there=False) == "/apis/events.k8s.io/v1/namespaces/shop/events"


def test_a_note_is_cut_at_what_the_api_server_takes() -> None:
    note = json.loads(created(replace(ONE, note="ä" * 5000)))["note"]
    assert len(note.encode()) == MOST_NOTE
    json.loads(created(replace(ONE, note="half a pair \ud800")))


@pytest.mark.parametrize("bad", ["../pods", "a/b", "", "a?x=1", "a b", ".", "ä", "a" * 254], ids=repr)
def test_a_name_that_leads_elsewhere_is_refused(bad: str) -> None:
    for event in (replace(ONE, namespace=bad), replace(ONE, name=bad), replace(ONE, pod=bad)):
        with pytest.raises(ValueError, match="is no name of Kubernetes"):
            path_of(event, is_there=True)


CORES = "cmk.intel.com/exclusive-cores"
POOLS = Marks(4, label=True, taint=True, ours=True)
OWN = {"key": "own", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
NODE = {
    "metadata": {"resourceVersion": "7", "labels": {"a": "b"}},
    "spec": {"taints": [OWN]},
    "status": {"capacity": {"cpu": "8", "cmk.intel.com/exclusive-cores": "0"}},
}


def merged(target: object, patch: object) -> object:
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        found[key] = merged(found.get(key), value)
        if value is None:
            del found[key]
    return found


def steps(node: object, wanted: Marks) -> list[object]:
    found = [node]
    while (step := next_patch(json.dumps(found[-1]).encode(), wanted)) is not None:
        assert len(found) < 4
        body = json.loads(step[1])
        assert (step[0], set(body) - {"metadata", "spec"}) in (("/status", {"status"}), ("", set()))
        found.append(merged(found[-1], body))
    return found


def test_what_an_agent_put_on_a_node_is_taken_back_from_each_step_on_and_nothing_else() -> None:
    made = steps(NODE, POOLS)

    assert len(made) == 3
    assert at(made[1], "metadata", "annotations") == {"nodeward.io/static-pools": "true"}, "what is ours is said first"
    assert at(made[-1], "status", "capacity") == {"cpu": "8", CORES: "4"}
    assert at(made[-1], "metadata", "labels") == {"a": "b", "cmk.intel.com/cmk-node": "true"}
    assert at(made[-1], "spec", "taints") == [OWN, {"key": "cmk", "value": "true", "effect": "NoSchedule"}]
    bare = merged(NODE, {"status": {"capacity": {CORES: None}}, "metadata": {"annotations": {}}})
    for begun in made[1:]:
        for between in steps(begun, Marks())[:-1]:
            assert steps(between, Marks())[-1] == bare
        assert steps(begun, POOLS)[-1] == made[-1]


def test_what_another_put_on_a_node_stays_under_another_policy() -> None:
    assert steps(NODE, Marks()) == [NODE]


@pytest.mark.parametrize(("said", "cores", "count"), [("1k", 1000, 1), (4, 4, 1), ("many", 4, 2)])
def test_amounts_are_compared_as_numbers(said: object, cores: int, count: int) -> None:
    node = merged(NODE, {"metadata": {"annotations": {"nodeward.io/static-pools": ""}}})
    node = merged(node, {"status": {"capacity": {CORES: said}}})
    assert len(steps(node, Marks(cores, ours=True))) == count
