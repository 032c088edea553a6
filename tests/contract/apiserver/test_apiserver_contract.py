"""What Nodeward relies on in an API server, checked on the double and on a real one by the same cases."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from urllib.parse import urlencode

import aiohttp
import pytest

from nodeward.core.events import ApiLost, PodGone, PodSeen, PodsListed
from nodeward.neighbours.formats.kube_objects import PodListPage
from nodeward.neighbours.kubernetes.client import PodsClient
from nodeward.neighbours.kubernetes.errors import KubeError
from nodeward.neighbours.kubernetes.events import EventObject, EventSender, created
from nodeward.neighbours.kubernetes.reflector import Missing, PodReader
from nodeward.neighbours.kubernetes.settings import KubeSettings
from tests.component.kubernetes.support import HandClock, reflecting
from tests.contract.apiserver.adapter import Adapter, at, http, items, listed, opened, watched, watched_at
from tests.patience import scaled
from tests.rigs.stories import under_way

Case = Callable[[Adapter, str, aiohttp.ClientSession], Awaitable[None]]


def unique(word: str) -> str:
    return f"{word}-{uuid.uuid4().hex[:8]}"


async def _field_selector(api: Adapter, node: str, session: aiohttp.ClientSession) -> None:
    mine, other = unique("mine"), unique("other")
    await api.create_pod(mine, node)
    await api.create_pod(other, unique("node"))
    assert items(await listed(session, fieldSelector=f"spec.nodeName={node}")) == [mine]


async def _pages(api: Adapter, node: str, session: aiohttp.ClientSession) -> None:
    made = sorted(unique("p") for _ in range(5))
    for name in made:
        await api.create_pod(name, node)
    got: list[str] = []
    versions, token = [], ""
    while True:
        more = {"continue": token} if token else {}
        page = await listed(session, fieldSelector=f"spec.nodeName={node}", limit="2", **more)
        got += items(page)
        metadata = page["metadata"]
        assert isinstance(metadata, dict)
        versions.append(metadata["resourceVersion"])
        token = str(metadata.get("continue", ""))
        if not token:
            break
        await api.create_pod(unique("late"), node)
    assert got == made
    assert len(set(versions)) == 1


async def _watch_from_version(api: Adapter, node: str, session: aiohttp.ClientSession) -> None:
    name = unique("a")
    before = await listed(session, fieldSelector=f"spec.nodeName={node}")
    await api.create_pod(name, node)
    await api.create_pod(unique("other"), unique("node"))
    await api.delete_pod(name)
    seen: list[tuple[object, object]] = []
    async for event in watched(
        session,
        fieldSelector=f"spec.nodeName={node}",
        resourceVersion=str(at(before, "metadata", "resourceVersion")),
        timeoutSeconds="5",
    ):
        seen.append((event["type"], at(event, "object", "metadata", "name")))
        if event["type"] == "DELETED":
            break
    assert seen[0] == ("ADDED", name)
    assert seen[-1] == ("DELETED", name)
    assert {each for _, each in seen} == {name}


async def _compacted(api: Adapter, node: str, session: aiohttp.ClientSession) -> None:
    path = await api.expired_watch()
    events = [event async for event in watched_at(session, path)]
    assert len(events) == 1
    assert events[0]["type"] == "ERROR"
    assert at(events[0], "object", "code") == 410
    assert at(events[0], "object", "reason") in ("Expired", "Gone")


class _SlowList(PodsClient):
    """A client to which something happens between the first page of its first list and the next one."""

    def __init__(self, settings: KubeSettings, between: Callable[[str], Awaitable[None]]) -> None:
        super().__init__(settings, HandClock())
        self.pages: list[str] = []
        self._between = between

    async def list_page(self, continue_token: str = "") -> PodListPage:
        self.pages.append(continue_token)
        page = await super().list_page(continue_token)
        if len(self.pages) == 1:
            await self._between(page.metadata.continue_token)
        return page


async def _expired_page(api: Adapter, node: str, session: aiohttp.ClientSession) -> None:
    """A page whose version is compacted meanwhile; the reflector, to which that happens, lists anew and tells of what
    is there then."""
    first, second, later = made = sorted(unique("p") for _ in range(3))
    for name in (first, second):
        await api.create_pod(name, node)
    ours = {"fieldSelector": f"spec.nodeName={node}", "limit": "1"}

    async def compacted(token: str) -> None:
        await api.create_pod(later, node)
        said = await api.compact(f"/api/v1/pods?{urlencode({**ours, 'continue': token})}")
        assert (at(said, "code"), at(said, "reason")) == (410, "Expired")
        rest = await listed(session, **{**ours, "limit": "2"}, **{"continue": str(at(said, "metadata", "continue"))})
        assert items(rest) == [second, later], "by the refusal's own token comes the rest as it is now"

    settings = KubeSettings(endpoint=api.endpoint, node_name=node, page_limit=1, watch_s=5)
    client = _SlowList(settings, compacted)
    async with reflecting(settings, client=client) as ears:
        found = await ears.wait(PodsListed)
    assert [one.name for one in found.pods] == made
    assert [bool(token) for token in client.pages] == [False, True, False, True, True]
    assert ears.all(ApiLost) == []


async def _life_elsewhere(api: Adapter) -> None:
    """A pod a second on other nodes: a real server sends bookmarks only while something happens."""
    while True:
        await api.create_pod(unique("elsewhere"), unique("node"))
        await asyncio.sleep(1)


async def _bookmark(api: Adapter, node: str, session: aiohttp.ClientSession) -> None:
    before = await listed(session, fieldSelector=f"spec.nodeName={node}")
    version = str(at(before, "metadata", "resourceVersion"))
    query = {"allowWatchBookmarks": "true", "resourceVersion": version, "timeoutSeconds": str(api.bookmark_within_s)}
    async with under_way(_life_elsewhere(api)):
        events = [event async for event in watched(session, fieldSelector=f"spec.nodeName={node}", **query)]
    assert {event["type"] for event in events} == {"BOOKMARK"}
    assert int(str(at(events[-1], "object", "metadata", "resourceVersion"))) > int(version)


async def _watch_ends_in_time(api: Adapter, node: str, session: aiohttp.ClientSession) -> None:
    before = await listed(session, fieldSelector=f"spec.nodeName={node}")
    version = str(at(before, "metadata", "resourceVersion"))
    query = {"fieldSelector": f"spec.nodeName={node}", "resourceVersion": version, "timeoutSeconds": "1"}
    async with asyncio.timeout(scaled(10)):
        assert [event async for event in watched(session, **query)] == []


async def _wrong_token(api: Adapter, node: str, session: aiohttp.ClientSession) -> None:
    async with http(api.endpoint, token="wrong") as stranger, stranger.get("/api/v1/pods") as answer:
        assert answer.status == 401
        assert at(await answer.json(), "reason") == "Unauthorized"


async def _get_unknown(api: Adapter, node: str, session: aiohttp.ClientSession) -> None:
    async with session.get(f"/api/v1/namespaces/default/pods/{unique('none')}") as answer:
        assert answer.status == 404
        assert at(await answer.json(), "reason") == "NotFound"


async def _our_reflector(api: Adapter, node: str, session: aiohttp.ClientSession) -> None:
    first, second = unique("a"), unique("b")
    await api.create_pod(first, node)
    settings = KubeSettings(endpoint=api.endpoint, node_name=node, page_limit=1, watch_s=5, watch_silence_s=8.0)
    client = PodsClient(settings, HandClock())
    async with reflecting(settings, client=client) as ears:
        assert [one.name for one in (await ears.wait(PodsListed)).pods] == [first]
        await api.create_pod(second, node)
        seen = (await ears.wait(PodSeen)).pod
        assert seen.name == second
        await api.delete_pod(second)
        assert (await ears.wait(PodGone)).uid == seen.uid
        found = await PodReader(client).read_pod("default", first, "not its uid")
        assert isinstance(found, Missing)
        assert found.gone
        assert ears.all(ApiLost) == []


EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


def _event(name: str) -> EventObject:
    return EventObject(
        name=name,
        namespace="default",
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


async def _posted(session: aiohttp.ClientSession, change: Callable[[dict[str, object]], object]) -> int:
    body: dict[str, object] = json.loads(created(_event(unique("web"))))
    change(body)
    async with session.post(EVENTS, json=body) as answer:
        return answer.status


@asynccontextmanager
async def _sender(api: Adapter, node: str) -> AsyncIterator[EventSender]:
    async with aclosing(PodsClient(KubeSettings(endpoint=api.endpoint, node_name=node), HandClock())) as client:
        yield EventSender(client)


async def _found(session: aiohttp.ClientSession, event: EventObject) -> dict[str, object]:
    async with session.get(f"{EVENTS}/{event.name}") as answer:
        found: dict[str, object] = await answer.json()
        return found


async def _event_made(api: Adapter, node: str, session: aiohttp.ClientSession) -> None:
    event = _event(unique("web"))
    async with _sender(api, node) as sender:
        await sender.send(event, is_there=False)
        await sender.send(replace(event, count=3), is_there=True)
        await sender.send(replace(event, count=4), is_there=True)
        with pytest.raises(KubeError, match="409"):
            await sender.send(event, is_there=False)
    found = await _found(session, event)
    assert (found["reason"], found["type"], found["note"]) == ("ChargeRefused", "Warning", "a note")
    assert found["eventTime"] == "2023-11-14T22:13:20.123456Z"
    assert found["series"] == {"count": 4, "lastObservedTime": "2023-11-14T22:13:21.000000Z"}
    assert at(found, "regarding", "uid") == "u-1"


async def _event_gone(api: Adapter, node: str, session: aiohttp.ClientSession) -> None:
    event = replace(_event(unique("web")), count=7)
    async with _sender(api, node) as sender:
        await sender.send(event, is_there=True)
    assert at(await _found(session, event), "series", "count") == 7


async def _event_refused(api: Adapter, node: str, session: aiohttp.ClientSession) -> None:
    assert await _posted(session, lambda body: None) == 201
    assert await _posted(session, lambda body: body.update(note="x" * 1025)) == 422
    assert await _posted(session, lambda body: body.update(type="Bad")) == 422
    assert await _posted(session, lambda body: body.pop("action")) == 422
    assert await _posted(session, lambda body: body.pop("eventTime")) == 422
    once = {"count": 1, "lastObservedTime": "2023-11-14T22:13:21.000000Z"}
    assert await _posted(session, lambda body: body.update(series=once)) == 422


async def _event_note_stays(api: Adapter, node: str, session: aiohttp.ClientSession) -> None:
    name = unique("web")
    async with session.post(EVENTS, data=created(_event(name)), headers={"Content-Type": "application/json"}) as answer:
        assert answer.status == 201
    async with session.patch(
        f"{EVENTS}/{name}", data=b'{"note":"another"}', headers={"Content-Type": "application/merge-patch+json"}
    ) as answer:
        assert answer.status == 422


async def _event_on_node(api: Adapter, node: str, session: aiohttp.ClientSession) -> None:
    event = replace(_event(unique("n1")), pod="n1", pod_uid="", field_path="", of_node=True)
    async with _sender(api, node) as sender:
        await sender.send(event, is_there=False)
        await sender.send(replace(event, count=3), is_there=True)
        with pytest.raises(KubeError, match="422"):
            await sender.send(replace(event, namespace="kube-public"), is_there=False)
    found = await _found(session, event)
    assert found["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
    assert at(found, "series", "count") == 3


CASES: dict[str, Case] = {
    "a field selector picks the node's pods": _field_selector,
    "pages show one moment and one version": _pages,
    "a watch from a version misses nothing after it": _watch_from_version,
    "a watch from a compacted version is 410 Expired": _compacted,
    "a page of a compacted version is 410 Expired and our reflector lists anew": _expired_page,
    "a bookmark arrives before the watch ends": _bookmark,
    "a watch ends after timeoutSeconds": _watch_ends_in_time,
    "a wrong token is 401": _wrong_token,
    "an unknown pod is 404": _get_unknown,
    "our reflector and reader work on it": _our_reflector,
    "an Event of ours is made once and counted up": _event_made,
    "an Event of ours on a node is made in the namespace default, and in no other": _event_on_node,
    "an Event that is not there is made with its count": _event_gone,
    "an Event that lacks something is 422": _event_refused,
    "an Event's note cannot be changed": _event_note_stays,
}


@pytest.mark.parametrize("kind", ["double", "real"])
@pytest.mark.parametrize("case", CASES)
async def test_api_server(case: str, kind: str) -> None:
    async with opened(kind) as api, http(api.endpoint) as session:
        await CASES[case](api, unique("node"), session)
