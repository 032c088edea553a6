"""The programs that the NRI part compares, and how each is started and looked at.

`bare` is bench/nri_bare.py, the floor for Python; `go` is bench/nri_stub, the same on the Go stub that most plugins are
made with. `nodeward` is the whole daemon as `nodeward node` starts it: engine,
slots, cgroup lane, sampler at 1 Hz, record, operators' socket. It knows the pods from disk, as after a restart, so that
each limit comes from a pod's spec and each pod has a budget, but no API server takes part.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from bench import tree
from nodeward.core.workload import ContainerSpec, PodSpec, PodUid
from nodeward.features.pods.effects import last_known
from nodeward.people import client
from nodeward.people.rows import NodeView
from tests.peers.find import peer

FLOORS, DAEMON = ("bare", "go"), "nodeward"
PROGRAMS = (*FLOORS, DAEMON)
EPC_BYTES = 1048576
SETTLE_S = 30.0


class MissingError(Exception):
    """A program that is compared with has not been built; the text says how."""


class UnfairError(Exception):
    """The daemon was not in the state that the figures are about."""


def installed(program: str) -> str:
    """The program as it is installed beside this interpreter."""
    script = Path(sys.executable).with_name(program)
    if not script.is_file():
        raise MissingError(f"{script} is not there: run make .venv/.ready, and the bench by the interpreter beside it")
    return str(script)


def specs(shape: tree.Shape) -> tuple[PodSpec, ...]:
    """nriside's pods as the API server would show them; each declares EPC for each container."""

    def pod(number: int) -> PodSpec:
        names = [f"c-{number * shape.per_pod + inside}" for inside in range(shape.per_pod)]
        inside = tuple(ContainerSpec(name, declared={"sgx_epc": EPC_BYTES}) for name in (*names, "bench"))
        return PodSpec(PodUid(tree.pod_uid(number)), "default", f"pod-{number}", inside)

    return tuple(map(pod, range(shape.pods)))


def built(name: str) -> Path:
    """The folder of a peer that must be there."""
    home = peer(name)
    if home is None:
        raise MissingError(f"the neighbour {name} is not built: scripts/build-peers {name}")
    return home


def command_of(program: str, folder: Path, socket: Path, shape: tree.Shape) -> list[str]:
    """How the program is started; makes what it needs in `folder`."""
    if program == "bare":
        return [sys.executable, "-m", "bench.nri_bare", str(socket)]
    if program == "go":
        return [str(built("nristub") / "nristub"), str(socket)]
    return daemon(folder, socket, shape)


def daemon(folder: Path, socket: Path, shape: tree.Shape, api_url: str = "", more: str = "") -> list[str]:
    """How the daemon is started, with the pods from the API server at `api_url`, or else from disk; `more` are lines of
    its settings."""
    cgroup, state = folder / "cgroup", folder / "state"
    cgroup.mkdir()
    state.mkdir()
    tree.build(cgroup, shape)
    if not api_url:
        Path(last_known.FILE.path_in(str(state))).write_bytes(
            last_known.FILE.encode(last_known.Remembered(specs(shape), 1))
        )
    kube = f"url: '{api_url}'" if api_url else "enabled: false"
    config = folder / "nodeward.yaml"
    config.write_text(
        f"state_dir: {state}\nrun_dir: {folder}/run\nnode_name: bench\nkube: {{{kube}}}\nnri: {{socket: {socket}}}\n"
        f"cgroups: {{root: {cgroup}}}\nrecord: {{path: {folder}/record}}\n{more}"
    )
    return [str(Path(sys.executable).parent / "nodeward"), "node", "--log-level", "error", "--config", str(config)]


@contextmanager
def running(command: list[str], log: IO[str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """The program, for as long as the block."""
    process = subprocess.Popen(command, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def view(folder: Path) -> NodeView:
    """What the daemon in `folder` shows."""
    return msgspec.json.decode(client.get("/v1/status", str(folder / "run" / "nodeward.sock")), type=NodeView)


def standing(shown: NodeView) -> str:
    """How many cgroups are in which state, and what the daemon has not done."""
    states: dict[str, int] = {}
    for row in shown.rows:
        states[row.state] = states.get(row.state, 0) + 1
    unreached, faults = shown.health["goals_unreached"], shown.health["feature_faults"]
    return f"{states}, {unreached} goals not reached, {faults} faults, {shown.health['record_dropped']} not recorded"


async def settled(folder: Path, shape: tree.Shape, within_s: float = SETTLE_S) -> None:
    """Returns when every limit stands in the tree and the sampler has read it back."""
    shown: NodeView | None = None
    try:
        async with asyncio.timeout(within_s):
            while shown is None or not _is_settled(shown, shape):
                await asyncio.sleep(0.2)
                shown = await asyncio.to_thread(view, folder)
    except TimeoutError as error:
        raise UnfairError(f"not settled within {within_s} s: {standing(shown) if shown else 'no answer'}") from error


def check(folder: Path) -> None:
    """Refuses figures of a daemon that failed meanwhile: a fault, an unreached goal, a hole in the record."""
    shown = view(folder)
    if any(shown.health[name] for name in ("feature_faults", "record_dropped", "goals_unreached")):
        raise UnfairError(standing(shown))


def _is_settled(shown: NodeView, shape: tree.Shape) -> bool:
    enforced = sum(row.state == "enforced" for row in shown.rows)
    return enforced == shape.cgroups and not shown.health["goals_unreached"]
