"""NFD's objects: what is read of them, and what is made."""

import json
import struct
from contextlib import suppress

import pytest

from nodeward.wire import nfd, qgs
from nodeward.wire.errors import WireError

OWNER = nfd.Owner("apps/v1", "DaemonSet", "nodeward-node", "7")
NUMBERS = {"tdx": 12, "sev_es": 99}


def read(body: bytes) -> nfd.NodeFeature:
    return nfd.node_feature(body)


def test_what_is_made_is_read_as_ours_and_says_what_it_should() -> None:
    found = read(nfd.body("nodeward", "n1", OWNER, NUMBERS, "5"))
    assert (found.namespace, found.name, found.node, found.version) == ("nodeward", "zzz-nodeward-n1", "n1", "5")
    assert (found.ours, found.worker, found.owners, found.numbers) == (True, False, (OWNER,), NUMBERS)
    assert nfd.says(found, "n1", OWNER, NUMBERS)
    assert not nfd.says(found, "n2", OWNER, NUMBERS)
    assert not nfd.says(found, "n1", nfd.Owner("v1", "Node", "n1", "7"), NUMBERS)
    assert not nfd.says(found, "n1", OWNER, {"tdx": 12})


def test_the_same_numbers_are_the_same_body_whatever_their_order() -> None:
    assert nfd.body("a", "n", OWNER, NUMBERS) == nfd.body("a", "n", OWNER, dict(reversed(NUMBERS.items())))


def test_a_kind_without_a_number_of_nfds_is_refused() -> None:
    with pytest.raises(WireError, match="NFD has no number for sgx_epc"):
        nfd.body("nodeward", "n1", OWNER, {"sgx_epc": 1})


@pytest.mark.parametrize("node", ["a", "z" * 63, "n" * 253])
def test_our_name_is_a_name_and_sorts_behind_the_workers(node: str) -> None:
    name = nfd.object_name(node)
    assert len(name) <= nfd.MAX_NAME
    assert name > node or node.startswith("zzzz")


def test_long_names_of_different_nodes_differ() -> None:
    assert nfd.object_name("n" * 252 + "a") != nfd.object_name("n" * 252 + "b")


def listed(*objects: object, token: str = "") -> bytes:
    return json.dumps({"metadata": {"resourceVersion": "9", "continue": token}, "items": objects}).encode()


def feature(name: str, elements: object, **metadata: object) -> dict[str, object]:
    spec = {"features": {"attributes": {"cpu.security": {"elements": elements}}}}
    return {"metadata": {"name": name, "namespace": "nfd", "labels": {nfd.NODE_LABEL: "n1"}, **metadata}, "spec": spec}


@pytest.mark.parametrize(
    ("elements", "numbers"),
    [
        pytest.param({"tdx.total_keys": "16", "sgx.enabled": "true"}, {"tdx": 16}, id="one"),
        pytest.param({"tdx.total_keys": "-1"}, {}, id="negative"),
        pytest.param({"tdx.total_keys": "1e3"}, {}, id="no-plain-number"),
        pytest.param({"tdx.total_keys": "9" * 5000}, {}, id="a-number-of-5000-digits"),
        pytest.param({"tdx.total_keys": "\u0663"}, {}, id="digits-of-another-script"),
        pytest.param({"tdx.total_keys": "4294967296"}, {}, id="more-than-there-can-be"),
        pytest.param({"tdx.total_keys": 16}, {}, id="no-text"),
        pytest.param([], {}, id="no-table"),
        pytest.param(None, {}, id="nothing"),
    ],
)
def test_only_counts_of_keys_are_read_and_one_odd_object_hides_no_other(elements: object, numbers: object) -> None:
    odd, good = feature("n1", elements), feature("n2", {"tdx.total_keys": "4"})
    objects, version, token = nfd.page(listed(odd, good, token="t"))
    assert [one.numbers for one in objects] == [numbers, {"tdx": 4}]
    assert (version, token) == ("9", "t")


@pytest.mark.parametrize(
    ("metadata", "worker"),
    [
        pytest.param({}, True, id="the-nodes-name"),
        pytest.param({"name": "other"}, False, id="another-name"),
        pytest.param(
            {"name": "other", "annotations": {"nfd.node.kubernetes.io/worker.version": "v1"}}, True, id="its-annotation"
        ),
    ],
)
def test_the_workers_object_is_told_from_others(metadata: dict[str, object], worker: bool) -> None:
    one = feature(str(metadata.pop("name", "n1")), {}, **metadata)
    ((found,), *_) = nfd.page(listed(one))
    assert found.worker is worker
    assert not found.ours
    assert found.spec == b""


def test_a_watch_on_the_node_tells_its_numbers_and_its_own_end() -> None:
    def line(kind: str, found: object) -> bytes:
        return json.dumps({"type": kind, "object": found}).encode()

    node = {"metadata": {"uid": "u"}, "status": {"capacity": {"a/b": "3", "cpu": "4"}}}
    assert nfd.on_node(line("MODIFIED", node), ("a/b", "c/d")) == {"a/b": 3}
    with pytest.raises(WireError, match="the server ended it"):
        nfd.on_node(line("ERROR", {"code": 410}), ("a/b",))


@pytest.mark.parametrize("instance", ["", "foo.", "foo.bar."])
def test_what_nfds_master_put_on_a_node_is_told_by_its_annotation(instance: str) -> None:
    """Also that of a master with `-instance`, and where the name is in NFD's own namespace, which it leaves out."""
    name = "feature.node.kubernetes.io/own"
    notes = {f"{instance}nfd.node.kubernetes.io/extended-resources": "c/d,gone/since,no/number,own", "x/y": "a/b"}
    capacity = {"a/b": "3", "c/d": "13", "no/number": "1Ki", name: "2"}
    body = json.dumps({"metadata": {"uid": "u", "annotations": notes}, "status": {"capacity": capacity}})
    found = nfd.node(body.encode(), ("a/b", "c/d", "no/number", name))
    assert found == ("u", {"a/b": 3, "c/d": 13, name: 2}, ("c/d", name))


def test_a_pod_without_a_controller_is_its_own_owner() -> None:
    pod = {"metadata": {"name": "p", "uid": "u", "ownerReferences": [{"kind": "Thing", "uid": "t"}]}}
    assert nfd.controller_of(json.dumps(pod).encode()) == nfd.Owner("v1", "Pod", "p", "u")


def test_nesting_without_end_and_a_body_without_end_are_refused() -> None:
    deep = b'{"metadata":{},"items":[{"metadata":{"name":"a"},"spec":' + b'{"a":' * 100_000 + b"}" * 100_000 + b"}]}"
    with suppress(WireError):
        objects, *_ = nfd.page(deep)
        assert objects[0].numbers == {}
    with pytest.raises(WireError, match="at most"):
        nfd.page(b" " * (nfd.MAX_BYTES + 1))


def test_the_request_is_a_length_and_a_bare_header_for_platform_info() -> None:
    assert qgs.request() == bytes.fromhex("00000010 0100 0100 04000000 10000000 00000000")


GOOD = qgs.answer()[qgs.LENGTH_BYTES :]


def changed(at: int, data: bytes) -> bytes:
    return GOOD[:at] + data + GOOD[at + len(data) :]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        pytest.param(b"", "no header", id="empty"),
        pytest.param(GOOD[:15], "no header", id="cut-within-the-header"),
        pytest.param(changed(0, b"\x02\x00"), "version 2.1", id="another-major-version"),
        pytest.param(changed(4, b"\x01"), "of type 1", id="a-quote"),
        pytest.param(GOOD + b"x", "says that it has", id="longer-than-it-says"),
        pytest.param(GOOD[:-1], "says that it has", id="shorter-than-it-says"),
        pytest.param(changed(20, struct.pack("<I", 0xFFFFFFFF)), "not as long", id="a-part-of-4-gib"),
        pytest.param(struct.pack("<HHIII", 1, 1, 5, 16, 0), "no platform", id="nothing-behind-the-header"),
    ],
)
def test_what_is_no_answer_is_named(body: bytes, fault: str) -> None:
    with pytest.raises(WireError, match=fault):
        qgs.error_of(body)


def test_another_minor_version_is_an_answer() -> None:
    assert qgs.error_of(changed(2, b"\x07\x00")) == 0


@pytest.mark.parametrize("size", [0, 15, qgs.MAX_BYTES + 1, 2**32 - 1])
def test_no_answer_is_so_long_or_so_short(size: int) -> None:
    with pytest.raises(WireError, match=f"of {size} bytes"):
        qgs.length(struct.pack(">I", size))
