"""Node Feature Discovery's kinds and the Node in the API server double: served, or not there, as a CRD is.

What the daemon's NFD edge and the double of NFD's master (`nfd.NfdMaster`) ask for: lists by the node's label, a watch
that tells of any change, NodeFeatures that are made, replaced at one version, and deleted by uid; a Node whose status
takes JSON patches. A kind that is taken away takes its objects with it and ends the watches.

Must not: validate objects, page, or know any other kind.
"""

import asyncio
import contextlib
import copy
import json
from functools import partial

from aiohttp import web

from nodeward_sim.doubles.kube_refusals import Handler, Json, Refuse, guarded, refusal

API = "/apis/nfd.k8s-sigs.io/v1alpha1"
NODE_LABEL = "nfd.node.kubernetes.io/node-name"
NODE = "/api/v1/nodes/{name}"
_FEATURE = f"{API}/namespaces/{{namespace}}/nodefeatures"


class SimNfdKinds:
    """The kinds. `refuse` is asked first, with every request."""

    def __init__(self, refuse: Refuse) -> None:
        self._refuse = refuse
        self.served = False
        self.features: dict[tuple[str, str], Json] = {}
        self.rules: list[Json] = []
        self.nodes: dict[str, Json] = {}
        self.frozen = False
        """A mutant: what is written a second time is answered as taken, and is not."""
        self.forgets = False
        """A mutant: what is created is answered as taken, and is gone at once."""
        self._version = 0
        self._changed = asyncio.Event()

    def routes(self, app: web.Application) -> None:
        """Adds what is served."""
        there, let_in = self._if_served, partial(guarded, self._refuse)
        app.router.add_get(f"{API}/nodefeatures", let_in(there(self._features)))
        app.router.add_get(f"{API}/nodefeaturerules", let_in(there(self._rules)))
        app.router.add_get(f"{_FEATURE}/{{name}}", let_in(there(self._get)))
        app.router.add_post(_FEATURE, let_in(there(self._create)))
        app.router.add_put(f"{_FEATURE}/{{name}}", let_in(there(self._replace)))
        app.router.add_delete(f"{_FEATURE}/{{name}}", let_in(there(self._delete)))
        app.router.add_get(NODE, let_in(self._node))
        app.router.add_patch(NODE, let_in(self._patch))
        app.router.add_patch(f"{NODE}/status", let_in(self._patch))

    def install(self, *features: Json, rule: Json) -> None:
        """The kinds are served from now on, with these objects."""
        self.served, self.rules = True, [rule]
        for one in features:
            self._put(_key_of(one), one)

    def uninstall(self) -> None:
        """The kinds are gone, and all objects with them."""
        self.served = False
        self.features.clear()
        self.rules.clear()
        self._touch()

    # ---- inside ------------------------------------------------------------------------------------------------------

    def _if_served(self, handler: Handler) -> Handler:
        async def answered(request: web.Request) -> web.StreamResponse:
            if not self.served:
                return web.Response(status=404, text="404 page not found")
            return await handler(request)

        return answered

    def _touch(self) -> None:
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def _put(self, key: tuple[str, str], body: Json) -> Json:
        self._touch()
        made = copy.deepcopy(body)
        old = self.features.get(key)
        uid = _metadata(old)["uid"] if old is not None else f"feature-{self._version}"
        made["metadata"] = {**_metadata(made), "uid": uid, "resourceVersion": str(self._version)}
        self.features[key] = made
        return made

    async def _features(self, request: web.Request) -> web.StreamResponse:
        label, _, wanted = request.query.get("labelSelector", "").partition("=")
        if request.query.get("watch"):
            return await self._watch(request)
        items = [one for one in self.features.values() if not label or _labels(one).get(label) == wanted]
        return web.json_response({"metadata": {"resourceVersion": str(self._version)}, "items": items})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        """One line at the first change after the version, whatever it was, and the end."""
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        with contextlib.suppress(TimeoutError, ConnectionError):
            await response.prepare(request)
            if self._version <= int(request.query.get("resourceVersion", "0")):
                await asyncio.wait_for(self._changed.wait(), float(request.query.get("timeoutSeconds", "240")))
            await response.write(b'{"type":"MODIFIED","object":{}}\n')
        return response

    async def _rules(self, request: web.Request) -> web.Response:
        return web.json_response({"metadata": {"resourceVersion": str(self._version)}, "items": self.rules})

    async def _get(self, request: web.Request) -> web.Response:
        found = self.features.get(_key(request))
        return web.json_response(found) if found is not None else refusal(404, "NotFound")

    async def _create(self, request: web.Request) -> web.Response:
        body: Json = json.loads(await request.read())
        if _key_of(body) in self.features:
            return refusal(409, "AlreadyExists")
        made = self._put(_key_of(body), body)
        if self.forgets:
            del self.features[_key_of(body)]
        return web.json_response(made, status=201)

    async def _replace(self, request: web.Request) -> web.Response:
        body: Json = json.loads(await request.read())
        found = self.features.get(_key(request))
        if found is None:
            return refusal(404, "NotFound")
        if _metadata(body).get("resourceVersion") != _metadata(found)["resourceVersion"]:
            return refusal(409, "Conflict")
        return web.json_response(found if self.frozen else self._put(_key(request), body))

    async def _delete(self, request: web.Request) -> web.Response:
        asked: Json = json.loads(await request.read() or b"{}")
        found = self.features.get(_key(request))
        if found is None:
            return refusal(404, "NotFound")
        conditions = asked.get("preconditions")
        if isinstance(conditions, dict) and conditions.get("uid") not in (None, _metadata(found)["uid"]):
            return refusal(409, "Conflict")
        del self.features[_key(request)]
        self._touch()
        return web.json_response(found)

    async def _node(self, request: web.Request) -> web.Response:
        found = self.nodes.get(request.match_info["name"])
        return web.json_response(found) if found is not None else refusal(404, "NotFound")

    async def _patch(self, request: web.Request) -> web.Response:
        """A JSON patch: all of it, or none where a place of it is not there. As beside a kubelet, a capacity that is
        added is allocatable too."""
        found = self.nodes[request.match_info["name"]]
        made = copy.deepcopy(found)
        try:
            for one in json.loads(await request.read()):
                *above, last = [name.replace("~1", "/").replace("~0", "~") for name in one["path"].split("/")[1:]]
                table = _within(made, above)
                if one["op"] != "add":
                    del table[last]
                if one["op"] != "remove":
                    table[last] = one["value"]
                if one["op"] == "add" and above == ["status", "capacity"]:
                    _within(made, ["status", "allocatable"]).setdefault(last, one["value"])
        except KeyError:
            return refusal(422, "Invalid")
        found.update(made)
        return web.json_response(found)


def _within(table: Json, path: list[str]) -> Json:
    for name in path:
        inner = table[name]
        assert isinstance(inner, dict)
        table = inner
    return table


def _key(request: web.Request) -> tuple[str, str]:
    return request.match_info["namespace"], request.match_info["name"]


def _key_of(body: Json) -> tuple[str, str]:
    metadata = _metadata(body)
    return str(metadata["namespace"]), str(metadata["name"])


def _metadata(body: Json) -> Json:
    found = body.setdefault("metadata", {})
    assert isinstance(found, dict)
    return found


def _labels(body: Json) -> Json:
    found = _metadata(body).get("labels")
    return found if isinstance(found, dict) else {}
