"""Resident memory of the daemon on a full node: NRI, API watch, limits, record; and what its imports take of it.

The API server double runs in a process of its own and shows the same 110 pods that nriside lists. Looked at when every
limit is enforced, and once more after container lives at full speed. *Private* is what no other process shares; the
rest is code of the interpreter and of libraries.
"""

import asyncio
import subprocess
import sys

from bench import api_pods, plugins, tree
from bench.measure import memory_mib, memory_of
from tests.peers.nriside import nriside

NODE = tree.Shape(pods=110, per_pod=3, calls=2000)
STEPS = {
    "an empty interpreter": "",
    "asyncio": "import asyncio",
    "protobuf, NRI's messages": "import asyncio, nodeward.contracts.nri_pb2",
    "msgspec": "import asyncio, nodeward.contracts.nri_pb2, msgspec",
    "aiohttp (web: local socket)": "import asyncio, nodeward.contracts.nri_pb2, msgspec, aiohttp.web",
    "all that a daemon imports": (
        "import nodeward.programs.node.run, nodeward.neighbours.nri.session, nodeward.neighbours.kubernetes.reflector"
    ),
}
SHOW = "\nprint(open('/proc/self/smaps_rollup').read())"


def run() -> None:
    """Resident and private memory, in MiB."""
    asyncio.run(_daemon())
    print("  of which, imported into an interpreter of its own:")
    for title, code in STEPS.items():
        done = subprocess.run([sys.executable, "-c", code + SHOW], check=True, capture_output=True, text=True)
        resident, private = memory_of(done.stdout)
        print(f"    {title:30} {resident:5.1f} resident, {private:5.1f} private")


async def _daemon() -> None:
    home = plugins.built("nriside-0.12")
    with tree.scratch() as folder, api_pods.running(NODE) as url:
        command = plugins.daemon(folder, folder / "s", NODE, url)
        async with asyncio.timeout(180), nriside(home, folder / "s") as side:
            await side.command("populate", pods=NODE.pods, per_pod=NODE.per_pod, filler=2000)
            await side.command("listen")
            with plugins.running(command) as process:
                await side.event("log", "connected and synchronized")
                await plugins.settled(folder, NODE)
                print(f"resident memory of the daemon, {NODE} containers, MiB")
                _say("all enforced", process.pid)
                await side.command("bench", calls=NODE.calls, filler=2000, lives=True)
                await plugins.settled(folder, NODE)
                _say(f"after {NODE.calls} container lives", process.pid)
                plugins.check(folder)


def _say(when: str, pid: int) -> None:
    resident, private = memory_mib(pid)
    print(f"  {when:28} {resident:6.1f} resident, {private:6.1f} private   goal 60")
