"""`v1.Agent` of CRI Resource Manager: its relay reads and patches the node by it, and its probe asks for health.

Promises: only labels, annotations and extended resources under CRI Resource Manager's own names are changed, never the
label by which the cluster chooses this node's configuration; what asks for anything else is refused whole, before
anything is sent. Must not speak to the API server: it is given functions that do.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from nodeward.contracts import resmgr_agent_pb2 as pb
from nodeward.core.errors import NodewardError, WireError
from nodeward.core.quantity import QuantityError, whole_units
from nodeward.neighbours.formats.protobuf import read
from nodeward.neighbours.sockets import unary_client
from nodeward.neighbours.sockets.unary_client import CallFailedError
from nodeward.neighbours.sockets.unary_server import INVALID_ARGUMENT, AnswerError, UnaryServer, distrusted

CONFIG_STATUS: Final = "config-status"
"""The query for what became of the last configuration."""
DOMAINS: Final = ("cri-resource-manager.intel.com", "cmk.intel.com")
"""What it names labels, annotations and resources by; names below these too."""
MOST_CHANGES: Final = 64
MOST_VALUE: Final = 16 * 1024
HEALTH_S: Final = 1.0
"""As its probe waits."""
_HEALTH: Final = "/v1.Agent/HealthCheck"
_FORMAT: Final = "v1.Agent"
_PLACES: Final = ("/metadata/labels/", "/metadata/annotations/")

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
Patch = Callable[[str, bytes, str], Awaitable[None]]
"""Sends a patch: below which path of the node, its body and content type."""


class UnhealthyError(NodewardError):
    """The agent is missing, or reports a fault."""


class AgentService:
    """Answers. `get` is the node's JSON; `status` says what is wrong with the last configuration, or nothing."""

    def __init__(
        self, get: Callable[[], Awaitable[bytes]], patch: Patch, status: Callable[[], str], group_label: str
    ) -> None:
        self._get, self._patch, self._status, self._group_label = get, patch, status, group_label

    async def serve(self, path: str) -> None:
        """Serves until cancelled. ListenError where the socket cannot be had."""
        methods = {
            "/v1.Agent/GetNode": self._get_node,
            "/v1.Agent/PatchNode": self._patch_node,
            "/v1.Agent/UpdateNodeCapacity": self._update_capacity,
            _HEALTH: self._health,
        }
        await UnaryServer(methods).run(path)

    async def _get_node(self, _: bytes) -> bytes:
        node = await self._get()
        return pb.GetNodeReply(node=node.decode("utf-8", "replace")).SerializeToString()

    async def _patch_node(self, message: bytes) -> bytes:
        patches = read(_FORMAT, pb.PatchNodeRequest, message).patches
        if patches:
            await self._patch("", json_patch(patches, self._group_label), JSON_PATCH)
        return pb.PatchNodeReply().SerializeToString()

    async def _update_capacity(self, message: bytes) -> bytes:
        capacities = read(_FORMAT, pb.UpdateNodeCapacityRequest, message).capacities
        if capacities:
            await self._patch("/status", capacity_patch(capacities), MERGE_PATCH)
        return pb.UpdateNodeCapacityReply().SerializeToString()

    async def _health(self, message: bytes) -> bytes:
        query = read(_FORMAT, pb.HealthCheckRequest, message).query
        why = self._status() if query == CONFIG_STATUS else ""
        return pb.HealthCheckReply(error=f"configuration error: {why}" if why else "").SerializeToString()


def json_patch(patches: Sequence[pb.JsonPatch], group_label: str) -> bytes:
    """The patches as the API server takes them; AnswerError for one that is not allowed."""
    if len(patches) > MOST_CHANGES:
        raise AnswerError(INVALID_ARGUMENT, f"{len(patches)} patches; at most {MOST_CHANGES} at once")
    found = []
    for number, one in enumerate(patches):
        place = next((place for place in _PLACES if one.path.startswith(place)), "")
        name = one.path[len(place) :]
        key = name.replace("~1", "/").replace("~0", "~")
        why = ""
        if one.op not in ("add", "remove", "replace"):
            why = f"op {one.op[:16]!r} is none of add, remove, replace"
        elif not place or "/" in name or not _is_ours(key):
            rule = f"only labels and annotations of {' and '.join(DOMAINS)} are changed here"
            why = f"path {one.path[:128]!r}: {rule}"
        elif key == group_label:
            why = f"the label {key} is the cluster's: by it this node's configuration is chosen"
        elif len(one.value) > MOST_VALUE:
            why = f"a value of {len(one.value)} characters; at most {MOST_VALUE}"
        if why:
            raise AnswerError(INVALID_ARGUMENT, f"patches[{number}]: {why}")
        value = {} if one.op == "remove" else {"value": one.value}
        found.append({"op": one.op, "path": one.path, **value})
    return msgspec.json.encode(found)


def capacity_patch(capacities: Mapping[str, str]) -> bytes:
    """The capacities as a merge patch of the node's status; AnswerError for a name or amount that is not allowed."""
    if len(capacities) > MOST_CHANGES:
        raise AnswerError(INVALID_ARGUMENT, f"{len(capacities)} capacities; at most {MOST_CHANGES} at once")
    for name, amount in capacities.items():
        if not _is_ours(name):
            rule = f"only extended resources of {' and '.join(DOMAINS)} are changed here"
            raise AnswerError(INVALID_ARGUMENT, f"capacities[{name[:128]!r}]: {rule}")
        try:
            whole_units(amount)
        except QuantityError as error:
            raise AnswerError(INVALID_ARGUMENT, f"capacities[{name[:128]!r}]: {error}") from error
    return msgspec.json.encode({"status": {"capacity": dict(sorted(capacities.items()))}})


def _is_ours(name: str) -> bool:
    domain, slash, rest = name.partition("/")
    known = any(domain == one or domain.endswith(f".{one}") for one in DOMAINS)
    return known and bool(slash and rest) and "/" not in rest and len(name) <= 317


async def check_health(path: str, query: str) -> None:
    """Asks the agent at `path`. UnhealthyError says why it is not healthy."""
    if why := distrusted(path):
        raise UnhealthyError(why)
    request = pb.HealthCheckRequest(query=query).SerializeToString()
    try:
        answer = await unary_client.call(path, _HEALTH, request, HEALTH_S)
        said = read(_FORMAT, pb.HealthCheckReply, answer).error
    except TimeoutError as error:
        raise UnhealthyError(f"{path}: no answer within {HEALTH_S:g} s") from error
    except (OSError, CallFailedError, WireError) as error:
        raise UnhealthyError(f"{path}: {error}") from error
    if said:
        raise UnhealthyError(f"health check negative: {said}")
