"""A bare NRI plugin: the floor under Nodeward's own answer time.

    python -m bench.nri_bare SOCKET    (or the socket's path in NRI_SOCKET)

Exists to compare with: it blocks on its socket, decodes what CreateContainer and UpdateContainer bring and answers a
constant. What Nodeward's session needs beyond this is asyncio, mapping, and the decision. It has no bounds, no deadline
and no second chance, so it must not be used for anything else.
"""

import os
import socket
import sys

from nodeward.contracts import nri_pb2
from nodeward.neighbours.nri import mux, ttrpc
from nodeward.neighbours.nri.ttrpc import Code, Message, MessageType, Request, Status

VALUE = "sgx_epc 1048576"
READ_BYTES = 1 << 16
EVENTS = 0x7DF
"""What Nodeward subscribes to."""
NOTIFICATIONS = (
    "StateChange",
    "Shutdown",
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "PostCreateContainer",
)
MORE_NOTIFICATIONS = ("PostStartContainer", "PostUpdateContainer", "StopContainer", "RemoveContainer")


def answer(request: Request) -> bytes | Status:
    """The constant answer to `request`."""
    match request.method:
        case "Configure":
            return nri_pb2.ConfigureResponse(events=EVENTS).SerializeToString()
        case "Synchronize":
            more = nri_pb2.SynchronizeRequest.FromString(request.payload).more
            return nri_pb2.SynchronizeResponse(more=more).SerializeToString()
        case "CreateContainer":
            nri_pb2.CreateContainerRequest.FromString(request.payload)
            created = nri_pb2.CreateContainerResponse()
            created.adjust.linux.resources.unified["misc.max"] = VALUE
            return created.SerializeToString()
        case "UpdateContainer":
            asked = nri_pb2.UpdateContainerRequest.FromString(request.payload)
            updated = nri_pb2.UpdateContainerResponse()
            update = updated.update.add(container_id=asked.container.id)
            update.linux.resources.unified["misc.max"] = VALUE
            return updated.SerializeToString()
    known = request.method in NOTIFICATIONS or request.method in MORE_NOTIFICATIONS
    return b"" if known else Status(Code.UNIMPLEMENTED, request.method)


def main(path: str) -> None:
    """Serves the runtime at `path` until it goes away."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    registration = nri_pb2.RegisterPluginRequest(plugin_name="bare", plugin_idx="10").SerializeToString()
    register = Request("nri.pkg.api.v1alpha1.Runtime", "RegisterPlugin", registration)
    first = Message(1, MessageType.REQUEST, 0, ttrpc.encode_request(register))
    sock.sendall(mux.encode_message(mux.RUNTIME_SERVICE, ttrpc.encode(first)))
    frames, messages = mux.MuxDecoder(), ttrpc.MessageDecoder()
    while data := sock.recv(READ_BYTES):
        for frame in frames.feed(data):
            if frame.connection != mux.PLUGIN_SERVICE:
                continue
            for message in messages.feed(frame.payload):
                reply = ttrpc.encode_response(answer(ttrpc.decode_request(message.payload)))
                out = ttrpc.encode(Message(message.stream, MessageType.RESPONSE, 0, reply))
                sock.sendall(mux.encode_message(mux.PLUGIN_SERVICE, out))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else os.environ["NRI_SOCKET"])
