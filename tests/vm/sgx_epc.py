"""A plugin that behaves like nri-plugins' sgx-epc, as far as another plugin and the operator can notice.

Written from what is known of it: it answers CreateContainer alone; of the annotations
`epc-limit.nri.io/container.NAME`, `/pod` and the bare key the first that is there counts, in decimal bytes; 0 or none
adjusts nothing, and what is no number fails the create; else `misc.max` becomes `sgx_epc N`, whatever the kernel has.
It never updates what runs.

    python -m tests.vm.sgx_epc SOCKET
"""

import asyncio
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nodeward.contracts import nri_pb2
from nodeward.neighbours.nri.ttrpc import Request
from nodeward.neighbours.nri.ttrpc_unix import Answer
from tests.peers.plugin import RawPlugin, raw_plugin

NAME: Final = "nri-sgx-epc"
"""Of the process: by it nodeward doctor knows the plugin."""
CREATE_CONTAINER: Final = 1 << 3
_PREFIX: Final = "epc-limit.nri.io"


def limit_bytes(annotations: Mapping[str, str], container: str) -> int:
    """What that container gets; ValueError for what is no number."""
    for key in (f"{_PREFIX}/container.{container}", f"{_PREFIX}/pod", _PREFIX):
        if key in annotations:
            if not re.fullmatch("[0-9]+", annotations[key]):
                raise ValueError(f"no number of bytes: {annotations[key]!r}")
            return int(annotations[key])
    return 0


def create_container(request: Request) -> Answer:
    asked = nri_pb2.CreateContainerRequest.FromString(request.payload)
    answer = nri_pb2.CreateContainerResponse()
    wanted = limit_bytes(asked.pod.annotations, asked.container.name)
    if wanted:
        answer.adjust.linux.resources.unified["misc.max"] = f"sgx_epc {wanted}"
    return answer.SerializeToString()


async def main(socket: Path) -> None:
    Path("/proc/self/comm").write_text(NAME)
    plugin = RawPlugin({"CreateContainer": create_container}, events=CREATE_CONTAINER)
    async with raw_plugin(socket, plugin, "sgx-epc", "40"):
        while "Synchronize" not in plugin.calls:
            await asyncio.sleep(0.05)
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
