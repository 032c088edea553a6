"""Events as the API takes them: bounded, exact times, and no name that leads elsewhere."""

import json
from dataclasses import replace

import pytest

from nodeward.wire.kube_events import MOST_NOTE, EventObject, counted_up, created, path_of

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
    assert body["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "shop",
        "name": "web",
        "uid": "u-1",
        "fieldPath": "spec.containers{app}",
    }
    assert body["eventTime"] == "2023-11-14T22:13:20.123456Z"
    assert (body["type"], body["reason"], body["note"]) == ("Warning", "ChargeRefused", "a note")
    assert "series" not in body
    assert path_of(ONE, is_there=False) == "/apis/events.k8s.io/v1/namespaces/shop/events"


def test_an_event_on_the_node_is_where_kubelets_are_listed_and_in_no_namespace_of_its_own() -> None:
    on_node = replace(ONE, namespace="default", pod="n1", pod_uid="", field_path="", of_node=True)
    body = json.loads(created(on_node))
    assert body["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
    assert (body["metadata"]["namespace"], body["action"]) == ("default", "Grant")


def test_what_happened_more_than_once_has_a_series() -> None:
    many = replace(ONE, count=7)
    series = {"count": 7, "lastObservedTime": "2023-11-14T22:13:21.000000Z"}
    assert json.loads(created(many))["series"] == series
    assert json.loads(counted_up(many)) == {"series": series}
    assert path_of(many, is_there=True).endswith("/shop/events/web.1.1")


def test_a_note_is_cut_at_what_the_api_server_takes() -> None:
    note = json.loads(created(replace(ONE, note="ä" * 5000)))["note"]
    assert len(note.encode()) == MOST_NOTE
    json.loads(created(replace(ONE, note="half a pair \ud800")))


@pytest.mark.parametrize("bad", ["../pods", "a/b", "", "a?x=1", "a b", ".", "ä", "a" * 254], ids=repr)
def test_a_name_that_leads_elsewhere_is_refused(bad: str) -> None:
    for event in (replace(ONE, namespace=bad), replace(ONE, name=bad), replace(ONE, pod=bad)):
        with pytest.raises(ValueError, match="is no name of Kubernetes"):
            path_of(event, is_there=True)
