"""The Pod API's gRPC door: the service `nodeward.podapi.v1.PodApi` on a unix socket of its own, with reflection.

gRPC's Python server does not tell whose process asks, so the socket is for its owner alone (mode 0600).
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from typing import Final

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import DecodeError

from nodeward.contracts import reflection_pb2 as reflection
from nodeward.core.errors import AnswerError
from nodeward.features.podapi.door import messages as codec
from nodeward.features.podapi.door.methods import MOST_AT_ONCE, STALLED_S, Api, Desk, Method, asked_by
from nodeward.host.hostfs import make_folders
from nodeward.neighbours.sockets.grpc_unix import Code, GrpcError, GrpcServer, Unary

SPARE_CALLS: Final = 128
"""Calls that the transport takes beyond `MOST_AT_ONCE` of each method: watchers, streams of reflection, and those who
are refused with a reason."""
MOST_REFLECTING: Final = 16
REFLECTIONS: Final = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
NOT_FOUND: Final = 5


async def run(path: str, api: Api, desk: Desk, serving: Callable[[], None] = lambda: None) -> None:
    """Serves until cancelled; the socket's file is there meanwhile. Calls `serving` once it is. ServerEndedError where
    a bad request has ended the server."""
    unary = {name: _unary(desk, method) for name, method in api.methods.items()}

    async def watch(_: bytes) -> AsyncIterator[bytes]:
        try:
            with api.watch() as events:
                async for event in events:
                    yield codec.message_of("Watch", event)
        except AnswerError as error:
            raise _status(error) from error

    service = codec.SERVICE.full_name
    calls = len(unary) * MOST_AT_ONCE + SPARE_CALLS
    bounds = {"max_calls": calls, "max_request": codec.MAX_REQUEST}
    server = GrpcServer(service, unary, {"Watch": watch}, write_s=STALLED_S, **bounds)
    reflection_of_us = _Reflection()
    for name in REFLECTIONS:
        server.also(name, {}, exchanges={"ServerReflectionInfo": reflection_of_us.answers})
    make_folders(os.path.dirname(path))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # left by a daemon that was killed; the lock says there is no other
    try:
        await server.start(path)
        serving()
        await server.serve()
    finally:
        await server.stop()


def _unary(desk: Desk, method: Method) -> Unary:
    async def called(request: bytes) -> bytes:
        asked_by.set(os.geteuid())  # nobody else can open the socket, but root
        try:
            return await desk.answered(method.name, method.by_message, request)
        except AnswerError as error:
            raise _status(error) from error

    return called


def _status(error: AnswerError) -> GrpcError:
    return GrpcError(Code[error.failure.name], str(error))


# ---- reflection: which services there are, and their descriptors


class _Reflection:
    """Its streams, which are bounded in number, and end where nothing is asked."""

    def __init__(self) -> None:
        self._open = 0

    async def answers(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """One stream's."""
        if self._open >= MOST_REFLECTING:
            why = f"{MOST_REFLECTING} streams of reflection are open, which is the most: ask again"
            raise GrpcError(Code.RESOURCE_EXHAUSTED, why)
        self._open += 1
        try:
            while (data := await _next(requests)) is not None:
                yield _reflected(data).SerializeToString()
        finally:
            self._open -= 1


async def _next(requests: AsyncIterator[bytes]) -> bytes | None:
    try:
        async with asyncio.timeout(STALLED_S):
            return await anext(requests, None)
    except TimeoutError:
        raise GrpcError(Code.DEADLINE_EXCEEDED, f"nothing was asked for {STALLED_S:g} s") from None


def _reflected(data: bytes) -> reflection.ServerReflectionResponse:
    asked = reflection.ServerReflectionRequest()
    try:
        asked.ParseFromString(data)
    except DecodeError:
        raise GrpcError(Code.INVALID_ARGUMENT, f"{len(data)} bytes that are no ServerReflectionRequest") from None
    return _reflection(asked)


def _reflection(asked: reflection.ServerReflectionRequest) -> reflection.ServerReflectionResponse:
    answer = reflection.ServerReflectionResponse(valid_host=asked.host, original_request=asked)
    own = codec.SERVICE.file
    match asked.WhichOneof("message_request"):
        case "list_services":
            names = (codec.SERVICE.full_name, *REFLECTIONS)
            answer.list_services_response.service.extend(reflection.ServiceResponse(name=name) for name in names)
            return answer
        case "file_by_filename":
            found = next((one for one in _files(own) if one.name == asked.file_by_filename), None)
        case "file_containing_symbol":
            found = next((one for one in _files(own) if _holds(one, asked.file_containing_symbol)), None)
        case _:
            found = None
    if found is None:
        answer.error_response.error_code = NOT_FOUND
        answer.error_response.error_message = "no such file or symbol; list_services names the services"
    else:
        answer.file_descriptor_response.file_descriptor_proto.append(found.serialized_pb)
    return answer


def _files(own: FileDescriptor) -> tuple[FileDescriptor, ...]:
    """What may be asked for; none of these imports another file."""
    return own, reflection.DESCRIPTOR


def _holds(file: FileDescriptor, symbol: str) -> bool:
    """Whether the file declares the service, one of its methods, or the message."""
    if not symbol.startswith(f"{file.package}."):
        return False
    name, _, below = symbol.removeprefix(f"{file.package}.").partition(".")
    service = file.services_by_name.get(name)
    if service is not None:
        return not below or below in service.methods_by_name
    return name in file.message_types_by_name
