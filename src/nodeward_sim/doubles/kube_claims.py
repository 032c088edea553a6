"""ResourceSlices and ResourceClaims in the API server double (resource.k8s.io/v1).

What the daemon asks for: one slice by its name, watched, made after a dry run, changed by a merge patch at one version,
deleted by uid; claims that are read. The scheduler and the controllers of the simulated node use the tables themselves.

Must not: validate objects, or know what a device is.
"""

import asyncio
import contextlib
import copy
import json
from functools import partial

from aiohttp import web

from nodeward_sim.doubles.kube_refusals import Json, Refuse, guarded, refusal

API = "/apis/resource.k8s.io/v1"
SLICES = f"{API}/resourceslices"


class SimClaimKinds:
    """The kinds. `refuse` is asked first, with every request."""

    def __init__(self, refuse: Refuse) -> None:
        self._refuse = refuse
        self.slices: dict[str, Json] = {}
        self.claims: dict[tuple[str, str], Json] = {}
        """By namespace and name, as in the API server."""
        self._version = 0
        self._changed = asyncio.Event()

    def routes(self, app: web.Application) -> None:
        """Adds what is served."""
        let_in = partial(guarded, self._refuse)
        app.router.add_get(SLICES, let_in(self._watch))
        app.router.add_post(SLICES, let_in(self._create))
        app.router.add_get(f"{SLICES}/{{name}}", let_in(self._get))
        app.router.add_patch(f"{SLICES}/{{name}}", let_in(self._patch))
        app.router.add_delete(f"{SLICES}/{{name}}", let_in(self._delete))
        app.router.add_get(f"{API}/namespaces/{{namespace}}/resourceclaims/{{name}}", let_in(self._claim))

    def wipe(self, driver: str) -> None:
        """Deletes a driver's slices, or with an empty name all."""
        for name in [name for name, one in self.slices.items() if driver in ("", _spec(one).get("driver"))]:
            del self.slices[name]
        self._touch()

    # ---- inside ------------------------------------------------------------------------------------------------------

    def _touch(self) -> str:
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()
        return str(self._version)

    def _put(self, name: str, body: Json, uid: str) -> Json:
        version = self._touch()
        made = copy.deepcopy(body)
        made["metadata"] = {**_metadata(made), "uid": uid or f"slice-{version}", "resourceVersion": version}
        self.slices[name] = made
        return made

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        """One line at the first change after the version, whatever it was, and the end."""
        if not request.query.get("watch"):
            return web.json_response({"metadata": {}, "items": list(self.slices.values())})
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        with contextlib.suppress(TimeoutError, ConnectionError):
            await response.prepare(request)
            if self._version <= int(request.query.get("resourceVersion", "0")):
                await asyncio.wait_for(self._changed.wait(), float(request.query.get("timeoutSeconds", "240")))
            await response.write(b'{"type":"MODIFIED","object":{}}\n')
        return response

    async def _get(self, request: web.Request) -> web.Response:
        found = self.slices.get(request.match_info["name"])
        return web.json_response(found) if found is not None else refusal(404, "NotFound")

    async def _create(self, request: web.Request) -> web.Response:
        body: Json = json.loads(await request.read())
        name = str(_metadata(body)["name"])
        if name in self.slices:
            return refusal(409, "AlreadyExists")
        if request.query.get("dryRun"):
            return web.json_response(body | {"metadata": {**_metadata(body), "uid": "dry", "resourceVersion": "0"}})
        return web.json_response(self._put(name, body, ""), status=201)

    async def _patch(self, request: web.Request) -> web.Response:
        name, change = request.match_info["name"], json.loads(await request.read())
        found = self.slices.get(name)
        if found is None:
            return refusal(404, "NotFound")
        if _metadata(change).get("resourceVersion") not in (None, _metadata(found)["resourceVersion"]):
            return refusal(409, "Conflict")
        spec = {**_spec(found), **_spec(change)}
        return web.json_response(self._put(name, {**found, "spec": spec}, str(_metadata(found)["uid"])))

    async def _delete(self, request: web.Request) -> web.Response:
        name, asked = request.match_info["name"], json.loads(await request.read() or b"{}")
        found = self.slices.get(name)
        if found is None:
            return refusal(404, "NotFound")
        conditions = asked.get("preconditions") or {}
        if conditions.get("uid") not in (None, _metadata(found)["uid"]):
            return refusal(409, "Conflict")
        del self.slices[name]
        self._touch()
        return web.json_response(found)

    async def _claim(self, request: web.Request) -> web.Response:
        key = request.match_info["namespace"], request.match_info["name"]
        found = self.claims.get(key)
        return web.json_response(found) if found is not None else refusal(404, "NotFound")


def _metadata(body: Json) -> Json:
    found = body.get("metadata", {})
    assert isinstance(found, dict)
    return found


def _spec(body: Json) -> Json:
    found = body.get("spec", {})
    assert isinstance(found, dict)
    return found
