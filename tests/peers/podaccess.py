"""Logs of a pod and commands in it, as people have them: through the API server, which asks the kubelet.

For a command the kubelet connects to the runtime's streaming server, which listens on the loopback of containerd's own
network; `streams_reachable` makes it answer on ours too.
"""

import asyncio
import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlencode, urlsplit

from tests.patience import scaled
from tests.peers.containerd import Containerd
from tests.peers.kube import ApiServer
from tests.peers.relay import Relay
from tests.peers.streams import talk

WAIT_S = scaled(30.0)
STREAMS = "v5.channel.k8s.io"
STDOUT, STATUS = 1, 3
"""Channels of that protocol: the first byte of each message."""


def logs(server: ApiServer, pod: str) -> str:
    trust = ssl.create_default_context(cafile=str(server.ca_file))
    link = http.client.HTTPSConnection(urlsplit(server.base_url).netloc, timeout=WAIT_S, context=trust)
    with contextlib.closing(link):
        path = f"/api/v1/namespaces/default/pods/{pod}/log"
        link.request("GET", path, headers={"Authorization": f"Bearer {server.token}"})
        return link.getresponse().read().decode()


def execute(server: ApiServer, pod: str, command: Sequence[str]) -> tuple[str, str]:
    asked = urlencode([("stdout", "1"), *(("command", word) for word in command)])
    url = f"{server.base_url}/api/v1/namespaces/default/pods/{pod}/exec?{asked}"
    trust = ssl.create_default_context(cafile=str(server.ca_file))
    said = asyncio.run(talk(url, STREAMS, trust=trust, headers={"Authorization": f"Bearer {server.token}"}))
    status = json.loads(said.get(STATUS) or b"{}")
    return said.get(STDOUT, b"").decode(), str(status.get("message") or status.get("status"))


@contextmanager
def streams_reachable(containerd: Containerd, port: int) -> Iterator[None]:
    """This port of our loopback is that port of containerd's, for as long as the block."""
    way = Relay("127.0.0.1", port, toward=containerd.holder.pid, at=("127.0.0.1", port))
    try:
        yield
    finally:
        way.cut()
