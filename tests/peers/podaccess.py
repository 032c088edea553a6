"""Logs of a pod and commands in it, as people have them: through the API server, which asks the kubelet.

For a command the kubelet connects to the runtime's streaming server, which listens on the loopback of containerd's own
network; `streams_reachable` makes it answer on ours too.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlencode, urlsplit

import aiohttp

from tests.patience import scaled
from tests.peers.containerd import Containerd
from tests.peers.kube import ApiServer

WAIT_S = scaled(30.0)
STREAMS = "v5.channel.k8s.io"
STDOUT, STATUS = 1, 3
"""Channels of that protocol: the first byte of each message."""
PUMP = """
import socket, sys, threading
near, far = socket.socket(fileno=0), socket.create_connection(("127.0.0.1", int(sys.argv[1])), 20)
far.settimeout(None)
def pump(source, target):
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)
threading.Thread(target=pump, args=(near, far), daemon=True).start()
pump(far, near)
"""


def logs(server: ApiServer, pod: str) -> str:
    """What the pod's container wrote."""
    trust = ssl.create_default_context(cafile=str(server.ca_file))
    link = http.client.HTTPSConnection(urlsplit(server.base_url).netloc, timeout=WAIT_S, context=trust)
    with contextlib.closing(link):
        path = f"/api/v1/namespaces/default/pods/{pod}/log"
        link.request("GET", path, headers={"Authorization": f"Bearer {server.token}"})
        return link.getresponse().read().decode()


def execute(server: ApiServer, pod: str, command: Sequence[str]) -> tuple[str, str]:
    """What a command in the pod's container wrote, and how it ended (`Success`, or the fault)."""
    asked = urlencode([("stdout", "1"), *(("command", word) for word in command)])
    url = f"{server.base_url}/api/v1/namespaces/default/pods/{pod}/exec?{asked}"

    async def talk() -> tuple[str, str]:
        said = {STDOUT: b"", STATUS: b""}
        trust = ssl.create_default_context(cafile=str(server.ca_file))
        shown = {"Authorization": f"Bearer {server.token}"}
        async with (
            asyncio.timeout(WAIT_S),
            aiohttp.ClientSession() as session,
            session.ws_connect(url, protocols=(STREAMS,), ssl=trust, headers=shown) as stream,
        ):
            async for message in stream:
                if message.type == aiohttp.WSMsgType.BINARY and message.data[0] in said:
                    said[message.data[0]] += message.data[1:]
        status = json.loads(said[STATUS] or b"{}")
        return said[STDOUT].decode(), str(status.get("message") or status.get("status"))

    return asyncio.run(talk())


@contextmanager
def streams_reachable(containerd: Containerd, port: int) -> Iterator[None]:
    """This port of our loopback is that port of containerd's, for as long as the block."""
    pumps: list[subprocess.Popen[bytes]] = []
    line = containerd.inside("python3", "-c", PUMP, str(port))

    def serve(listening: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the end of the block
            while True:
                near, _ = listening.accept()
                with near:
                    pumps.append(subprocess.Popen(line, stdin=near.fileno()))

    with socket.create_server(("127.0.0.1", port)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        try:
            yield
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(WAIT_S)
            for pump in pumps:
                pump.terminate()
                pump.wait(WAIT_S)
