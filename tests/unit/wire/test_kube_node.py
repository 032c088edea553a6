"""How many of a resource a Node's status has, and who wrote that there, by the fields that the API server keeps."""

import json

import pytest

from nodeward.model.sizing import Allocatable
from nodeward.wire.errors import WireError
from nodeward.wire.kube_node import OnNode, allocatable, on_node

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


@pytest.mark.parametrize("name", ["kubelet", "k3s"])
def test_kubelet_is_who_writes_the_heartbeat_whatever_its_name(name: str) -> None:
    assert on_node(node("8", (name, HEARTBEAT | OF_TDX)), TDX) == OnNode(8, name, by_kubelet=True)


def test_another_writer_is_named() -> None:
    assert on_node(node("1k", ("kubelet", HEARTBEAT), ("nfd-master", OF_TDX)), TDX) == OnNode(1000, "nfd-master")


def test_of_two_who_wrote_the_same_the_one_who_is_not_kubelet_counts() -> None:
    assert on_node(node("8", ("kubelet", HEARTBEAT | OF_TDX), ("kubectl", OF_TDX)), TDX) == OnNode(8, "kubectl")


def test_a_condition_of_somebody_elses_makes_nobody_kubelet() -> None:
    theirs: Of = {"f:conditions": {'k:{"type":"KernelDeadlock"}': {"f:lastHeartbeatTime": {}}}}
    assert on_node(node("8", ("node-problem-detector", theirs | OF_TDX)), TDX) == OnNode(8, "node-problem-detector")


def test_where_nobody_is_named_nobody_is() -> None:
    assert on_node(node("8", ("kubelet", HEARTBEAT)), TDX) == OnNode(8)
    assert on_node(b'{"status":{"capacity":{"devices.kubevirt.io/tdx":8}}}', TDX) == OnNode(8)


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
