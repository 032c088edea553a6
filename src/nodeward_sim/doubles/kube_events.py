"""Kubernetes Events in the API server double: made, counted up and read, by the rules of `events.k8s.io/v1`.

What the real one refuses in an Event of ours is refused here (`tests/contract/apiserver`); nothing else is looked at.
"""

import json
import re
from collections.abc import Mapping

from aiohttp import web

from nodeward_sim.doubles.kube_refusals import Json, refusal

EVENTS = "/apis/events.k8s.io/v1/namespaces/{namespace}/events"
MERGE = "application/merge-patch+json"
MOST_NOTE = 1024
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_NEEDED = ("reportingController", "reportingInstance", "action", "reason")


class SimEvents:
    """The Events of all namespaces."""

    def __init__(self, objects: dict[tuple[str, str], Json]) -> None:
        self.objects = objects

    async def create(self, request: web.Request) -> web.Response:
        """POST."""
        body: Json = json.loads(await request.read())
        faults = _faults(body, request.match_info["namespace"])
        if faults:
            return refusal(422, "Invalid", f"Event is invalid: {'; '.join(faults)}")
        key = (request.match_info["namespace"], str(_at(body, "metadata").get("name", "")))
        if key in self.objects:
            return refusal(409, "AlreadyExists", f'events "{key[1]}" already exists')
        self.objects[key] = body
        return web.json_response(body, status=201)

    async def patch(self, request: web.Request) -> web.Response:
        """PATCH by merge, of the series alone."""
        known = self.objects.get(_key(request))
        if known is None:
            return refusal(404, "NotFound", f'events "{request.match_info["name"]}" not found')
        if request.content_type != MERGE:
            return refusal(415, "UnsupportedMediaType", request.content_type)
        change: Json = json.loads(await request.read())
        after = {**known, **change}
        faults = [
            f"{name}: field is immutable" for name in change if name != "series" and known.get(name) != change[name]
        ]
        faults += _series_faults(after)
        if faults:
            return refusal(422, "Invalid", f"Event is invalid: {'; '.join(faults)}")
        self.objects[_key(request)] = after
        return web.json_response(after)

    async def get(self, request: web.Request) -> web.Response:
        """GET of one."""
        known = self.objects.get(_key(request))
        if known is None:
            return refusal(404, "NotFound", f'events "{request.match_info["name"]}" not found')
        return web.json_response(known)


def _key(request: web.Request) -> tuple[str, str]:
    return request.match_info["namespace"], request.match_info["name"]


def _at(body: Mapping[str, object], name: str) -> Json:
    found = body.get(name)
    return found if isinstance(found, dict) else {}


def _faults(body: Json, namespace: str) -> list[str]:
    faults = [f"{name}: Required value" for name in _NEEDED if not body.get(name)]
    if not _TIME.fullmatch(str(body.get("eventTime"))):
        faults.append("eventTime: Required value")
    if body.get("type") not in ("Normal", "Warning"):
        faults.append("type: Invalid value")
    if len(str(body.get("note", "")).encode()) > MOST_NOTE:
        faults.append(f"note: can have at most {MOST_NOTE} bytes")
    of = _at(body, "regarding").get("namespace", "default")  # where Events are on what has no namespace, as a node
    if of != namespace or _at(body, "metadata").get("namespace") != namespace:
        faults.append("involvedObject.namespace: does not match event.namespace")
    return faults + _series_faults(body)


def _series_faults(body: Json) -> list[str]:
    if "series" not in body:
        return []
    series = _at(body, "series")
    count = series.get("count")
    faults = [] if isinstance(count, int) and count >= 2 else ["series.count: should be at least 2"]
    return faults + ([] if _TIME.fullmatch(str(series.get("lastObservedTime"))) else ["series.lastObservedTime"])
