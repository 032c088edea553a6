"""Asks Nodeward on each node of a cluster through kubectl, with its login and certificates.

Promises: at most `AT_ONCE` kubectl at a time, each with a bound on its time and its output; a node that does not answer
is an answer with a reason, and holds up no other. Must not know what is asked, nor talk to the API server by itself.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from nodeward.core.errors import NodewardError
from nodeward.core.text import printable
from nodeward.people.pods import natural

KUBECTL = "kubectl"
AT_ONCE = 8
MAX_ANSWER = 16 * 1024 * 1024
MAX_LIST = 64 * 1024 * 1024
LABEL = "app.kubernetes.io/name=nodeward-node"
MAX_SAID = 400
"""So much of what kubectl says of a fault is shown."""
_KEPT = 4096
S = TypeVar("S", bound=msgspec.Struct)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)


class KubectlError(NodewardError):
    """kubectl is not there, was refused, or did not answer in time."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which cluster kubectl is to ask, where Nodeward's pods are in it, and how long one call may take."""

    context: str | None
    kubeconfig: str | None
    home: str
    timeout_s: float

    def command(self, *words: str) -> list[str]:
        """kubectl's command line."""
        given = {"--context": self.context, "--kubeconfig": self.kubeconfig}
        flags = [f"{name}={value}" for name, value in given.items() if value]
        return [KUBECTL, *flags, *words]


class _Meta(msgspec.Struct):
    name: str
    namespace: str = ""
    deletionTimestamp: str | None = None  # noqa: N815


class _Container(msgspec.Struct):
    name: str
    args: list[str] = []


class _Spec(msgspec.Struct):
    nodeName: str = ""  # noqa: N815
    containers: list[_Container] = []


class _Status(msgspec.Struct):
    phase: str = "Unknown"


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


class _Pods(msgspec.Struct):
    items: list[_Pod]


@dataclass(frozen=True, slots=True)
class NodewardPod:
    """The pod of Nodeward on one node. `fault`: why it cannot be asked."""

    node: str
    pod: str
    container: str = ""
    config: str = ""
    """The daemon's settings file, as the pod has it."""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """Output and exit code of the command in one node's pod, or why they are missing."""

    place: NodewardPod
    said: bytes = b""
    code: int = 0
    complaint: str = ""
    """The last line of its standard error."""
    fault: str = ""


async def places(cluster: Cluster, node: str = "") -> list[NodewardPod]:
    """Nodeward's pods, one for each node, in natural order; with `node` only that node's. KubectlError for none."""
    chosen = [f"--field-selector=spec.nodeName={node}"] if node else []
    words = ("get", "pods", "-n", cluster.home, "-l", LABEL, "-o", "json", *chosen)
    found = _decoded(await _must(cluster, *words), _Pods).items
    if not found:
        where = f"on node {node}" if node else f"with the label {LABEL}"
        raise KubectlError(
            f"namespace {cluster.home}: no pod of Nodeward {where}; name Nodeward's namespace by --nodeward-namespace"
        )
    by_node: dict[str, NodewardPod] = {}
    for pod in sorted(found, key=_is_usable):
        one = _place(pod)
        by_node[one.node or one.pod] = one  # of two, as in a roll-out, the one that runs
    return sorted(by_node.values(), key=lambda place: natural(place.node))


async def node_of(cluster: Cluster, namespace: str | None, pod: str) -> tuple[str, str]:
    """The pod's namespace, which is kubectl's own where none is given, and its node."""
    for kind, name in (("namespace", namespace), ("pod", pod)):
        if name is not None and not _NAME.fullmatch(name):
            raise KubectlError(f"{printable(name)!r} is no name of a {kind}; write NAMESPACE/POD[/CONTAINER]")
    there = ["-n", namespace] if namespace else []
    found = _decoded(await _must(cluster, "get", "pod", pod, *there, "-o", "json"), _Pod)
    if not found.spec.nodeName:
        raise KubectlError(f"pod {found.metadata.namespace}/{pod} is on no node yet; see kubectl describe pod {pod}")
    return found.metadata.namespace, found.spec.nodeName


async def ask(
    cluster: Cluster, asked: Sequence[NodewardPod], command: Callable[[NodewardPod], Sequence[str]]
) -> list[Answer]:
    """Each place's answer to the command, in the order of the places."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(place: NodewardPod) -> Answer:
        async with room:
            return await _asked(cluster, place, command(place))

    return list(await asyncio.gather(*map(one, asked)))


async def _asked(cluster: Cluster, place: NodewardPod, words: Sequence[str]) -> Answer:
    if place.fault:
        return Answer(place, fault=place.fault)
    line = cluster.command("exec", "-n", cluster.home, place.pod, "-c", place.container, "--", *words)
    try:
        code, said, complaint = await _run(line, MAX_ANSWER, cluster.timeout_s)
    except KubectlError as error:
        return Answer(place, fault=str(error))
    return Answer(place, said, code, complaint=complaint)


def _is_usable(pod: _Pod) -> bool:
    return pod.status.phase == "Running" and pod.metadata.deletionTimestamp is None


def _place(pod: _Pod) -> NodewardPod:
    container = pod.spec.containers[0] if pod.spec.containers else _Container("")
    after = iter(container.args)
    config = next(after, "") if "--config" in after else ""
    fault = "" if pod.status.phase == "Running" else f"pod {pod.metadata.name} is {pod.status.phase}"
    return NodewardPod(pod.spec.nodeName, pod.metadata.name, container.name, config, fault)


async def _must(cluster: Cluster, *words: str) -> bytes:
    """What kubectl prints; KubectlError with what it says where it fails."""
    code, said, complaint = await _run(cluster.command(*words), MAX_LIST, cluster.timeout_s)
    if code:
        raise KubectlError(f"kubectl {' '.join(words[:2])}: {complaint or f'ended with {code}'}")
    return said


async def _run(line: Sequence[str], most: int, timeout_s: float) -> tuple[int, bytes, str]:
    """Exit code, output and the last line of the complaint. The process is gone afterwards, in any case."""
    try:
        process = await asyncio.create_subprocess_exec(
            *line, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise KubectlError(f"{KUBECTL} cannot be run: {error.strerror}; it has to be on PATH") from error
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(timeout_s):
            said, complaint = await asyncio.gather(_within(process.stdout, most), _end_of(process.stderr))
            code = await process.wait()
    except TimeoutError as error:
        raise KubectlError(f"no answer within {timeout_s:g} s (--timeout)") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return code, said, complaint


async def _within(stream: asyncio.StreamReader, most: int) -> bytes:
    found = bytearray()
    while piece := await stream.read(1 << 16):
        found += piece
        if len(found) > most:
            raise KubectlError(f"the answer is longer than {most} bytes")
    return bytes(found)


async def _end_of(stream: asyncio.StreamReader) -> str:
    kept = b""
    while piece := await stream.read(1 << 16):
        kept = (kept + piece)[-_KEPT:]
    lines = [line for line in kept.decode(errors="replace").splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith("command terminated with exit code")] or lines
    return printable(told[-1].strip(), MAX_SAID) if told else ""


def _decoded(said: bytes, kind: type[S]) -> S:
    try:
        return msgspec.json.decode(said, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise KubectlError(f"what kubectl prints is no pod: {printable(str(error), MAX_SAID)}") from error
