"""`v1.Config` of CRI Resource Manager: its agent's configurations come in, and ours go out.

Promises: a call ends within its time; what is refused is answered with every fault. Must not know what is configured.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from nodeward.contracts import resmgr_config_pb2 as pb
from nodeward.core.errors import NodewardError, WireError
from nodeward.neighbours.formats.protobuf import read
from nodeward.neighbours.sockets import unary_client
from nodeward.neighbours.sockets.unary_client import CallFailedError
from nodeward.neighbours.sockets.unary_server import UNIMPLEMENTED, AnswerError, UnaryServer, distrusted

SET_S: Final = 5.0
_FORMAT: Final = "v1.Config"
_SET: Final = "/v1.Config/SetConfig"

Config = Mapping[str, str]
"""A module each, and its YAML."""
Push = Callable[[str, Config], Awaitable[str]]
"""Takes a configuration of the node of this name; why not, a fault a line, else nothing."""


class NotPushedError(NodewardError):
    """The configuration was not taken, or refused: nothing is known of what it is worth."""


async def serve(path: str, push: Push) -> None:
    """Serves `v1.Config` until cancelled. ListenError where the socket cannot be had."""

    async def set_config(message: bytes) -> bytes:
        asked = read(_FORMAT, pb.SetConfigRequest, message)
        return pb.SetConfigReply(error=await push(asked.node_name, dict(asked.config))).SerializeToString()

    async def set_adjustment(_: bytes) -> bytes:
        raise AnswerError(UNIMPLEMENTED, "adjustments of containers are not taken: set the policy's own settings")

    await UnaryServer({_SET: set_config, "/v1.Config/SetAdjustment": set_adjustment}).run(path)


async def push(path: str, node: str, config: Config) -> str:
    """Pushes a configuration, of less than 60 kB; why it is refused, a fault a line, else nothing. NotPushedError
    where nobody decided."""
    if why := distrusted(path):
        raise NotPushedError(why)
    request = pb.SetConfigRequest(node_name=node, config=config).SerializeToString()
    try:
        answer = await unary_client.call(path, _SET, request, SET_S)
        return read(_FORMAT, pb.SetConfigReply, answer).error
    except TimeoutError as error:
        raise NotPushedError(f"{path}: no answer within {SET_S:g} s") from error
    except (OSError, CallFailedError, WireError) as error:
        raise NotPushedError(f"{path}: {error}") from error
