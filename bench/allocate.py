"""What an Allocate takes of a daemon on a full node, as kubelet waits for it, and what it takes to offer keys at all.

A real daemon is asked over gRPC, by a client in Go as kubelet has (bench/cri_go): two reads of 500 pods' counters, the
decision, a line of the journal. Its cgroups are real ones that this makes and removes again, so it needs root; what
their counters say is played (bench/key_files.py): a hundred pods hold a key each, and one is held outside of pods. It
registers with the simulation's kubelet, which admits those pods; its pods come from nriside. Meanwhile its own period
goes on, and the checkpoint becomes another one five times a second, as kubelet replaces it at each admission: it has
two hundred entries, half of them of another resource. It writes no limits. The kernel counts the reads and writes
(/proc/PID/io). The decision alone is bench/grants.py's.
"""

import asyncio
import base64
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench import plugins, tree
from bench.key_files import FOREIGN, KEYS, WITH_KEYS
from bench.measure import calls_of, cpu_us, memory_mib, memory_of, quantile
from bench.sampler import own_cgroups
from nodeward.contracts import deviceplugin_pb2 as protocol
from nodeward.features.keys import device_ids
from nodeward.host.clock import SystemClock
from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.kubelet.checkpoint_file import PLACE, Data, Entry, File, checksum
from nodeward_sim.doubles.kubelet import PLUGIN, AdmissionError, Asks, SimKubelet
from tests.peers.nriside import nriside

PODS = 500
ASKED = 300
IDLE_S = 20
"""Longer than what comes every two, five and nine seconds."""
SETTLED_S = 5
"""After which `keys` knows who has which of the ids that were admitted first."""
REPLACED_S = 0.2
TRIES = 5
LATE = "not found in time"
VERSIONS = 8
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
    without, idle = await _daemon(offers=False)
    with_it, watching = await _daemon(offers=True)
    code = "import nodeward.programs.node.run, nodeward.neighbours.nri.session"
    show = "\nprint(open('/proc/self/smaps_rollup').read())"
    base, grpc = (
        memory_of(subprocess.run([sys.executable, "-c", one + show], check=True, capture_output=True, text=True).stdout)
        for one in (code, f"{code}, nodeward.neighbours.sockets.grpc_unix")
    )
    own = grpc[0] - base[0]
    more = watching - idle
    print(f"  a second of the idle daemon, keys not counted {idle:.1f} ms of a core, offered {watching:.1f}:")
    print(f"  all that counts and offers {more:6.1f} ms of a core = {more / 10:.2f} %   goal 1")
    print(f"  resident, keys not counted {without:6.1f} MiB, offered {with_it:6.1f}: {with_it - without:+.1f}")
    print(f"  of which importing grpcio  {own:6.1f} MiB, so {with_it - without - own:+.1f} beyond it   goal 8")


async def _daemon(*, offers: bool) -> tuple[float, float]:
    """Resident memory of a daemon on the full node, and what a second of it takes of a core while nothing happens, in
    milliseconds; with `offers`, after kubelet has asked it."""
    home = plugins.built("nriside-0.12")
    with tree.scratch() as folder, own_cgroups(NODE) as (root, _), _foreign(root):
        row = {"resources": [TDX], "publisher": "device-plugin", "publish": TDX}
        keys = {"mode": "enforce" if offers else "off", "kubelet_dir": f"{folder}/kubelet", "kinds": {"tdx": row}}
        _, *words = plugins.daemon(folder, folder / "s", NODE, more=f"keys: {json.dumps(keys)}\n")
        words += ["--set", f"cgroups.root={root}", "--set", "limits.mode=off"]
        kubelet = SimKubelet(f"{folder}/kubelet", OsFiles(), SystemClock())
        await kubelet.start()
        try:
            async with asyncio.timeout(180), nriside(home, folder / "s") as side:
                await side.command("populate", pods=NODE.pods, per_pod=NODE.per_pod, filler=2000)
                await side.command("listen")
                with plugins.running([sys.executable, "-m", "bench.key_files", *words]) as process:
                    await side.event("log", "connected and synchronized")
                    if offers:
                        await _asked(kubelet, process.pid)
                        plugins.check(folder)
                    else:
                        await asyncio.sleep(5)
                    resident, spent = memory_mib(process.pid)[0], cpu_us(process.pid)
                    await asyncio.sleep(IDLE_S)
                    return resident, (cpu_us(process.pid) - spent) / IDLE_S / 1000
        finally:
            await kubelet.stop()


@contextmanager
def _foreign(root: str) -> Iterator[None]:
    """The cgroup of the VM that is no pod's."""
    folder = Path(f"{root}{FOREIGN}")
    folder.mkdir()
    try:
        yield
    finally:
        folder.rmdir()


class _Answers(msgspec.Struct):
    """What `cribench each` says."""

    times_ns: list[int]
    refusals: list[str]


def _request(name: str) -> bytes:
    """The line that asks for this id."""
    one = protocol.ContainerAllocateRequest(devices_ids=[name])
    return base64.b64encode(protocol.AllocateRequest(container_requests=[one]).SerializeToString()) + b"\n"


async def _admitted(kubelet: SimKubelet) -> set[str]:
    """The ids of the pods whose VMs run."""
    pods = [tree.pod_uid(number) for number in range(min(WITH_KEYS, NODE.pods))]
    for uid in pods:
        await _admit(kubelet, uid)
    await asyncio.sleep(SETTLED_S)
    return {name for uid in pods for name in kubelet.held(uid, TDX)}


async def _admit(kubelet: SimKubelet, uid: str) -> None:
    """A pod of these, made again where this machine was too busy to answer kubelet in time."""
    for left in reversed(range(TRIES)):
        try:
            await kubelet.admit(uid, TDX, [Asks("app")])
        except AdmissionError as error:
            if not left or LATE not in str(error):
                raise
        else:
            return


def _versions(written: bytes) -> list[bytes]:
    """What kubelet writes as pods with another resource come: each is to be decoded anew."""
    file = msgspec.json.decode(written, type=File)
    found, answer = file.data.entries or (), b"\n\x1e\n\x03ENV\x12\x17a-value-of-some-length" * 4
    entries = [Entry(f"other-{one}", "app", "example.com/nic", {-1: (f"nic-{one}",)}, answer) for one in range(200)]
    versions = [Data((*found, *entries[: WITH_KEYS + more]), file.data.registered) for more in range(VERSIONS)]
    return [msgspec.json.encode(File(data, checksum(data))) for data in versions]


async def _replaced(place: str, versions: list[bytes]) -> None:
    files = OsFiles()
    for version in itertools.cycle(versions):
        files.replace(place, version)
        await asyncio.sleep(REPLACED_S)


async def _asked(kubelet: SimKubelet, pid: int) -> None:
    """Allocates one id after the other, and says how long each took."""
    while (kubelet.capacity(TDX) or (0, 0))[1] < ASKED:
        await asyncio.sleep(0.1)
    (socket,) = [path for path in Path(kubelet.folder).iterdir() if path.name.startswith("nodeward-")]
    taken = await _admitted(kubelet)
    names = [name for name in (device_ids.id_name("tdx", number) for number in range(KEYS)) if name not in taken]
    place = f"{os.path.dirname(kubelet.folder)}/{PLACE}"
    replacing = asyncio.create_task(_replaced(place, _versions(Path(place).read_bytes())))
    spent, calls = cpu_us(pid), calls_of(pid)
    command = [str(plugins.built("cribench") / "cribench"), "each", str(socket), f"{PLUGIN}/Allocate"]
    lines = b"".join(map(_request, names[:ASKED]))
    said = await asyncio.to_thread(lambda: subprocess.run(command, input=lines, capture_output=True, check=False))
    replacing.cancel()
    if said.returncode:
        raise RuntimeError(f"the client of Allocate ended with {said.returncode}: {said.stderr.decode()}")
    answers = msgspec.json.decode(said.stdout, type=_Answers)
    for text in answers.refusals:
        if LATE not in text:
            raise RuntimeError(f"Allocate was refused: {text}")
    took = [one / 1e6 for one in answers.times_ns]
    refused = len(answers.refusals)  # on a busy machine
    spent = (cpu_us(pid) - spent) / ASKED / 1000
    reads, writes = ((now - before) / ASKED for now, before in zip(calls_of(pid), calls, strict=True))
    p50, p99 = quantile(took, 0.5), quantile(took, 0.99)
    print(f"  Allocate, as kubelet waits p50 {p50:6.2f}  p99 {p99:6.2f} ms, {spent:.2f} ms of a core   goal 3, 15")
    if refused:
        print(f"  refused for being late     {refused:6} of {ASKED}: this machine is too busy for these figures")
    print(f"  system calls of one        {reads:6.0f} read(2) or pread(2), {writes:.0f} write(2); sockets' not counted")
