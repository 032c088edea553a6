"""Pods of the simulated node whose runtime pulls in the guest, as Kata does, and asks the Pod API instead of guessing.

At RunPodSandbox the runtime asks what its pod is: that is known before any container exists. At PullImage, which comes
through the relay, it asks for which sandbox the pull is, and reports the digest that its guest has. Judged is what the
Pod API answers against what kubelet and this runtime did, while daemon and relay are there.

Must not: know the daemon's inside, or take its word for what a pod is.
"""

import asyncio
import hashlib
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from nodeward.contracts import cri_pb2 as cri
from nodeward.features.podapi.rows import GuestState, PullMode, PullState, ReportPullRequest, ResolvePullRequest
from nodeward.features.podapi.wiring import SOCKET
from nodeward_sim.invariants import Judge

TRUTH = "podapi-truth"
NAMELESS = "pulls-nameless"
MUTANTS = (NAMELESS,)
ASK_S = 5.0
AGAIN_S = 0.1
LONG_S = 6.0
"""A runtime that is told nothing for so long goes on without, and kubelet's own deadlines are longer."""
Json = dict[str, object]


@dataclass(slots=True)
class Counts:
    """What the runtime asked and got, for the summary."""

    described: int = 0
    pending: int = 0
    """Pulls of which nobody knew the sandbox yet, at RunPodSandbox."""
    resolved: int = 0
    reported: int = 0
    compared: int = 0
    unjudged: int = 0
    """Pods that somebody began or ended daemon or relay meanwhile."""


@dataclass(slots=True)
class _One:
    """A pod: its image, what its containers request by the manifest, and, once it is reported, the digest."""

    image: str
    cpu_m: Mapping[str, int]
    digest: str = ""
    sandbox: str = ""


class Guests:
    """The runtime's pulls in guests, and what it learned of them."""

    def __init__(self, folder: Path, judge: Judge, life: Callable[[], object | None], mutant: str) -> None:
        """`life` differs whenever daemon or relay were begun anew, and is None while one of them is away."""
        self._path, self._judge, self.life, self.nameless = folder / "run" / SOCKET, judge, life, mutant == NAMELESS
        self._ones: dict[str, _One] = {}
        self.counts = Counts()

    @property
    def sections(self) -> dict[str, dict[str, object]]:
        """The settings of daemon and relay."""
        return {"podapi": {"enabled": True, "uids": [os.getuid()]}}

    def admit(self, uid: str, image: str, cpu_m: Mapping[str, int]) -> None:
        """Kubelet is to run this pod."""
        self._ones[uid] = _One(image, cpu_m)

    def end(self, uid: str) -> None:
        """It has ended."""
        self._ones.pop(uid, None)

    # ---- what the runtime does

    async def started(self, config: cri.PodSandboxConfig) -> None:
        """RunPodSandbox, before there is anything: asks for the pod and its containers."""
        one = self._ones.get(config.metadata.uid)
        if one is None:
            return
        life = self.life()
        found = await self._until(lambda: self._ask(f"/v1/pods/{config.metadata.namespace}/{config.metadata.name}"))
        told = await self._ask("/v1/ResolvePull", asdict(_key(config, one.image)))
        if not self._is_judged(life):
            return
        self.counts.described += 1
        self.counts.pending += told is not None and told["state"] == PullState.PENDING
        rows = _value(found, "containers")
        said = {str(row["name"]): row["cpu_request_m"] for row in rows} if isinstance(rows, list) else None
        self._same(config, "requests", said, dict(one.cpu_m))

    async def pulled(self, config: cri.PodSandboxConfig, image: str) -> str:
        """PullImage: its guest pulls. The reference of what the host has of it."""
        one = self._ones.get(config.metadata.uid)
        if one is not None:
            told = await self._until(lambda: self._resolved(config, image))
            if told is not None:
                self.counts.resolved += 1
                one.sandbox, digest = str(told["sandbox"]), f"sha256:{hashlib.sha256(one.image.encode()).hexdigest()}"
                report = ReportPullRequest(one.sandbox, image, GuestState.PULLED, digest, len(image))
                if (await self._ask("/v1/ReportPull", asdict(report)) or {}).get("accepted") is True:
                    one.digest = digest
                    self.counts.reported += 1
        return f"sha256:{'0' * 64}"

    # ---- judgement

    async def compare(self, namespace: str, name: str, uid: str, sandbox: str, life: object | None) -> None:
        """What the Pod API says of the pod's pulls, with what was done since `life`."""
        one = self._ones[uid]
        found = await self._ask(f"/v1/pods/{namespace}/{name}")
        if not self._is_judged(life):
            return
        self.counts.compared += 1
        seen = _value(found, "pulls")
        pulls = seen if isinstance(seen, dict) else {}
        config = cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(namespace=namespace, name=name))
        self._same(config, "sandbox", (one.sandbox, pulls.get("sandbox")), (sandbox, sandbox))
        host = [(row["image"], row["sandbox"], row["status"]) for row in pulls.get("host", ())]
        self._same(config, "host's pulls", host, [(one.image, sandbox, "OK")])
        guest = [(row["image"], row["sandbox"], row["digest"]) for row in pulls.get("guest", ())]
        self._same(config, "guest's images", guest, [(one.image, sandbox, one.digest)])
        self._same(config, "mode", pulls.get("mode"), PullMode.GUEST.value)

    def _is_judged(self, life: object | None) -> bool:
        is_judged = life is not None and life == self.life()
        self.counts.unjudged += not is_judged
        return is_judged

    def _same(self, config: cri.PodSandboxConfig, what: str, said: object, true: object) -> None:
        self._judge.checks += 1
        if said != true:
            self._judge.broken(TRUTH, f"{config.metadata.name}: {what}: said is {said}, and it is {true}")

    # ---- asking

    async def _resolved(self, config: cri.PodSandboxConfig, image: str) -> Json | None:
        told = await self._ask("/v1/ResolvePull", asdict(_key(config, image)))
        return told if told is not None and told["state"] == PullState.RESOLVED else None

    async def _until(self, ask: Callable[[], Awaitable[Json | None]]) -> Json | None:
        """The answer as soon as there is one, asked again for LONG_S."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + LONG_S
        while (found := await ask()) is None and loop.time() < end_s:
            await asyncio.sleep(AGAIN_S)
        return found

    async def _ask(self, path: str, body: Json | None = None) -> Json | None:
        """What is answered with 200; None for anything else."""
        data = json.dumps(body).encode() if body is not None else b""
        head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.0\r\nHost: n\r\nContent-Length: {len(data)}\r\n\r\n"
        try:
            async with asyncio.timeout(ASK_S):
                reader, writer = await asyncio.open_unix_connection(self._path)
                try:
                    writer.write(head.encode() + data)
                    answered, _, found = (await reader.read(-1)).partition(b"\r\n\r\n")
                finally:
                    writer.close()
            said = json.loads(found) if b" 200 " in answered.splitlines()[0] else None
        except (OSError, TimeoutError, ValueError, IndexError):
            return None
        return said if isinstance(said, dict) else None


def _key(config: cri.PodSandboxConfig, image: str) -> ResolvePullRequest:
    named = config.metadata
    return ResolvePullRequest(named.namespace, named.name, named.uid, named.attempt, image)


def _value(found: Json | None, section: str) -> object:
    part = found.get(section) if found is not None else None
    return part.get("value") if isinstance(part, dict) else None
