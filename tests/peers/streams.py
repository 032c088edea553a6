"""A client of a runtime's streaming server, as a kubelet is for exec, attach and port-forward: one websocket a URL.

The server listens on the loopback of containerd's own network, so the client runs in there: `followed` starts it.
"""

import asyncio
import base64
import json
import ssl
import subprocess
import sys
from collections.abc import Mapping

import aiohttp

from tests.patience import scaled
from tests.peers.containerd import Containerd

PROTOCOL = "v4.channel.k8s.io"
"""The first byte of each message is its channel. A command's are 0 to 3: what it reads, its output, its errors, how it
ended. Of the port numbered n (from 0) 2n has the data and 2n + 1 the faults."""
WAIT_S = scaled(30.0)
Said = dict[int, bytes]


async def talk(
    url: str,
    protocol: str,
    *,
    sent: bytes = b"",
    awaited: bytes = b"",
    trust: ssl.SSLContext | None = None,
    headers: Mapping[str, str] | None = None,
) -> Said:
    """What comes by channel until the other side ends the stream, or until `awaited` has come."""
    said: Said = {}
    async with (
        asyncio.timeout(WAIT_S),
        aiohttp.ClientSession() as session,
        session.ws_connect(url, protocols=(protocol,), ssl=trust or True, headers=headers) as link,
    ):
        if sent:
            await link.send_bytes(b"\0" + sent)
        async for message in link:
            if message.type == aiohttp.WSMsgType.BINARY and message.data:
                channel = message.data[0]
                said[channel] = said.get(channel, b"") + message.data[1:]
            if awaited and any(awaited in one for one in said.values()):
                break
    return said


def followed(containerd: Containerd, url: str, sent: bytes = b"", awaited: bytes = b"") -> Said:
    """What came by channel until the runtime ended the stream, or until `awaited` had come."""
    asked = json.dumps([url, base64.b64encode(sent).decode(), base64.b64encode(awaited).decode()])
    command = ["nsenter", "-t", str(containerd.pid), "-n", "--", sys.executable, "-m", "tests.peers.streams"]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=2 * WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, str] = json.loads(done.stdout)
    return {int(channel): base64.b64decode(data) for channel, data in told.items()}


def main() -> None:
    url, sent, awaited = json.load(sys.stdin)
    said = asyncio.run(talk(url, PROTOCOL, sent=base64.b64decode(sent), awaited=base64.b64decode(awaited)))
    print(json.dumps({channel: base64.b64encode(data).decode() for channel, data in said.items()}))


if __name__ == "__main__":
    main()
