"""What an Allocate takes of a daemon on a full node, as kubelet waits for it, and what offering keys takes of memory.

A real daemon is asked over gRPC: two reads of 500 pods' counters, the decision, a line of the journal. Its cgroups are
bench/tree.py's files, its kubelet is the simulation's double, its pods come from nriside. Its own period goes on
meanwhile. The decision alone is bench/ledger.py's.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from bench import plugins, tree
from bench.measure import cpu_us, memory_mib, memory_of, quantile
from nodeward.aio.clock import SystemClock
from nodeward.aio.hostfs import OsFiles
from nodeward.engine.ledger import gate
from nodeward.proto import deviceplugin_pb2 as protocol
from nodeward.sim.kubelet import PLUGIN, SimKubelet
from nodeward.transport.grpc_unix import GrpcClient
from tests.peers.nriside import nriside

KEYS, PODS, WITH_KEYS = 512, 500, 100
ASKED = 300
NODE = tree.Shape(pods=PODS, per_pod=1)
TDX = "devices.kubevirt.io/tdx"


def run() -> None:
    """Milliseconds and MiB."""
    load = os.getloadavg()[0]
    print(
        f"allocate, {KEYS} ids, {PODS} pods of which {WITH_KEYS} hold a key; load {load:.1f} on {os.cpu_count()} cores"
    )
    asyncio.run(_daemons())


async def _daemons() -> None:
    without = await _daemon(offers=False)
    with_it = await _daemon(offers=True)
    code = "import nodeward.app.node, nodeward.edges.nri.session"
    show = "\nprint(open('/proc/self/smaps_rollup').read())"
    base, grpc = (
        memory_of(subprocess.run([sys.executable, "-c", one + show], check=True, capture_output=True, text=True).stdout)
        for one in (code, f"{code}, nodeward.transport.grpc_unix")
    )
    own = grpc[0] - base[0]
    print(f"  resident, keys not counted {without:6.1f} MiB, offered {with_it:6.1f}: {with_it - without:+.1f}")
    print(f"  of which importing grpcio  {own:6.1f} MiB, so {with_it - without - own:+.1f} beyond it   goal 8")


async def _daemon(*, offers: bool) -> float:
    """Resident memory of a daemon on the full node; with `offers`, after kubelet has asked it."""
    home = plugins.built("nriside-0.12")
    with tree.scratch() as folder:
        row = {"resources": [TDX], "publisher": "device-plugin", "publish": TDX}
        ledger = {"mode": "enforce" if offers else "off", "kubelet_dir": f"{folder}/kubelet", "keys": {"tdx": row}}
        command = plugins.daemon(folder, folder / "s", NODE, more=f"ledger: {json.dumps(ledger)}\n")
        _keys(folder / "cgroup")
        kubelet = SimKubelet(f"{folder}/kubelet", OsFiles(), SystemClock())
        await kubelet.start()
        try:
            async with asyncio.timeout(180), nriside(home, folder / "s") as side:
                await side.command("populate", pods=NODE.pods, per_pod=NODE.per_pod, filler=2000)
                await side.command("listen")
                with plugins.running(command) as process:
                    await side.event("log", "connected and synchronized")
                    await plugins.settled(folder, NODE, 60)
                    if offers:
                        await _asked(kubelet, process.pid)
                    else:
                        await asyncio.sleep(5)
                    return memory_mib(process.pid)[0]
        finally:
            await kubelet.stop()


def _keys(cgroup: Path) -> None:
    """Some of the pods hold a key each."""
    (cgroup / "misc.capacity").write_text(f"sgx_epc 1099511627776\ntdx {KEYS}\n")
    others = cgroup / "misc.current"
    others.write_text("sgx_epc 10000\ntdx 0\n")  # one file for all
    for folder, amount in ((cgroup, WITH_KEYS), *((cgroup / tree.pod_path(n)[1:], 1) for n in range(WITH_KEYS))):
        (folder / "misc.current").unlink()
        (folder / "misc.current").write_text(f"sgx_epc 10000\ntdx {amount}\n")


async def _asked(kubelet: SimKubelet, pid: int) -> None:
    """Allocates one id after the other, and says how long each took."""
    while (kubelet.capacity(TDX) or (0, 0))[1] < ASKED:
        await asyncio.sleep(0.1)
    (socket,) = [path for path in Path(kubelet.folder).iterdir() if path.name.startswith("nodeward-")]
    client = GrpcClient(str(socket))
    took, spent = [], cpu_us(pid)
    try:
        for number in range(ASKED):
            one = protocol.ContainerAllocateRequest(devices_ids=[gate.id_name("tdx", number)])
            request = protocol.AllocateRequest(container_requests=[one]).SerializeToString()
            began = time.monotonic_ns()
            await client.call(f"{PLUGIN}/Allocate", request, 5.0)
            took.append((time.monotonic_ns() - began) / 1e6)
    finally:
        await client.close()
    spent = (cpu_us(pid) - spent) / ASKED / 1000
    p50, p99 = quantile(took, 0.5), quantile(took, 0.99)
    print(f"  Allocate, as kubelet waits p50 {p50:6.2f}  p99 {p99:6.2f} ms, {spent:.2f} ms of a core   goal 3, 15")
