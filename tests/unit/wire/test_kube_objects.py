"""What the API server's JSON becomes, and what is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.wire.errors import WireError
from nodeward.wire.kube_objects import (
    Bookmark,
    Change,
    LineSplitter,
    PodChange,
    WatchFailure,
    decode_pod,
    decode_pod_list,
    decode_watch_line,
)

POD: dict[str, object] = {
    "metadata": {
        "name": "a",
        "namespace": "ns",
        "uid": "u-1",
        "resourceVersion": "7",
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {"kubernetes.io/config.hash": "h", "secret": "s3cret"},
    },
    "spec": {
        "nodeName": "n1",
        "runtimeClassName": "kata",
        "overhead": {"memory": "1Mi"},
        "initContainers": [{"name": "i", "restartPolicy": "Always"}],
        "containers": [
            {
                "name": "c",
                "env": [{"name": "PASSWORD", "value": "s3cret"}],
                "command": ["s3cret"],
                "resources": {"limits": {"sgx.intel.com/epc": "1Mi", "cpu": 1}},
            }
        ],
        "ephemeralContainers": [{"name": "e"}],
    },
    "status": {"phase": "Running", "containerStatuses": [{"name": "c", "containerID": "containerd://abc"}]},
}


def test_a_pod_keeps_what_is_declared_and_nothing_else() -> None:
    pod = decode_pod(json.dumps(POD).encode())

    assert (pod.metadata.name, pod.metadata.namespace, pod.metadata.uid) == ("a", "ns", "u-1")
    assert pod.metadata.resource_version == "7"
    assert pod.metadata.annotations is not None
    assert pod.metadata.annotations.config_hash == "h"
    assert (pod.spec.node_name, pod.spec.overhead) == ("n1", {"memory": "1Mi"})
    assert pod.spec.containers is not None
    assert pod.spec.containers[0].resources is not None
    assert pod.spec.containers[0].resources.limits == {"sgx.intel.com/epc": "1Mi", "cpu": 1}
    assert pod.spec.init_containers is not None
    assert pod.spec.init_containers[0].restart_policy == "Always"
    assert pod.status.container_statuses is not None
    assert pod.status.container_statuses[0].container_id == "containerd://abc"
    assert "s3cret" not in repr(pod)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="empty spec"),
        pytest.param({"containers": None, "overhead": None}, id="nulls"),
        pytest.param({"containers": [{"name": "c", "resources": {}}]}, id="no resources"),
    ],
)
def test_null_and_absent_are_the_same(spec: dict[str, object]) -> None:
    pod = decode_pod(json.dumps({"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": spec}).encode())
    assert pod.spec.overhead is None
    assert pod.status.phase is None


def test_a_page_has_its_version_and_its_continue_token() -> None:
    page = decode_pod_list(json.dumps({"metadata": {"resourceVersion": "9", "continue": "t"}, "items": [POD]}).encode())
    assert (page.metadata.resource_version, page.metadata.continue_token) == ("9", "t")
    assert page.items is not None
    assert page.items[0].metadata.uid == "u-1"


def test_a_page_without_pods_may_say_null() -> None:
    assert decode_pod_list(b'{"metadata":{"resourceVersion":"9"},"items":null}').items is None


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_a_change_carries_the_pod(kind: str) -> None:
    change = decode_watch_line(json.dumps({"type": kind, "object": POD}).encode())
    assert isinstance(change, PodChange)
    assert change.change is Change(kind)
    assert change.pod.metadata.uid == "u-1"


def test_a_bookmark_carries_a_version_only() -> None:
    line = b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"55"},"spec":{"containers":null}}}'
    assert decode_watch_line(line) == Bookmark("55")


def test_an_error_event_carries_the_status() -> None:
    line = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}'
    failure = decode_watch_line(line)
    assert isinstance(failure, WatchFailure)
    assert (failure.status.code, failure.status.reason, failure.status.message) == (410, "Expired", "too old")


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
