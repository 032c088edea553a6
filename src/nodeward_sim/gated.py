"""Kata pods of the simulated node that wait at a gate, and an attestation that says who may start.

Judged is by the runtime double: a container that was made before its pod's verdict, or in spite of it, and one that is
not made though it was passed. Must not: know the engine.
"""

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from nodeward_sim.doubles.runtime_plugins import RuntimeRefusalError
from nodeward_sim.invariants import Judge
from nodeward_sim.shapes import KATA_HANDLERS

EARLY, STUCK = "gate-unopened", "gate-stuck"
IGNORED, DEAF = "gate-ignored", "gate-deaf"
MUTANTS = (IGNORED, DEAF)
AGAIN_S = 0.5
"""Kubelet tries a refused container again so soon; a real one takes longer each time."""
ATTESTS_S = (0.5, 2.5)
"""So long the attestation of a pod takes."""
OPENS_S = 3.0
"""Within this time after PASSED its container is there."""
DENIED_SHARE = 0.3
ANSWER_S = 5.0
MAX_ANSWER = 65536
Sections = dict[str, dict[str, object]]


class DeniedError(Exception):
    """The pod never starts: its user deletes it."""


@dataclass(slots=True)
class Counts:
    """What happened, for the summary."""

    passed: int = 0
    denied: int = 0
    refused: int = 0
    """Creates at a shut gate."""


@dataclass(slots=True)
class _Pod:
    denied: bool
    said_s: float | None = None
    """When its verdict was answered."""


class Gated:
    """The gates of a node's Kata pods. Times are the simulation's."""

    def __init__(self, folder: Path, judge: Judge, now: Callable[[], float], random: Random, mutant: str = "") -> None:
        self._socket, self._judge, self._now, self._random = folder / "run" / "podapi.sock", judge, now, random
        self._mutant = mutant
        self._pods: dict[str, _Pod] = {}
        self.counts = Counts()

    @property
    def sections(self) -> Sections:
        """The daemon's settings; a mutant's daemon has a gate that it does not enforce."""
        handlers: dict[str, object] = {name: ["verdict"] for name in KATA_HANDLERS}
        mode = "observe" if self._mutant == IGNORED else "enforce"
        gate: dict[str, object] = {"mode": mode, "handlers": handlers, "uids": [os.getuid()]}
        return {"gate": gate, "podapi": {"enabled": True, "uids": [os.getuid()]}}

    async def attest(self, uid: str) -> None:
        """The pod's VM says what it is, and the verdict on it is set."""
        self._pods[uid] = one = _Pod(self._random.random() < DENIED_SHARE)
        await asyncio.sleep(self._random.uniform(*ATTESTS_S))
        if self._mutant != DEAF:
            while not await self._set(uid, "DENIED" if one.denied else "PASSED"):
                await asyncio.sleep(AGAIN_S)
        one.said_s = self._now()
        if one.denied:
            self.counts.denied += 1
        else:
            self.counts.passed += 1

    def made(self, uid: str) -> None:
        """A container of the pod was made."""
        one = self._pods[uid]
        self._judge.checks += 1
        if one.denied or one.said_s is None:
            self._judge.broken(
                EARLY, f"{uid}: a container was made, and the pod is {'denied' if one.denied else 'not passed'}"
            )

    async def refused(self, uid: str, error: RuntimeRefusalError) -> None:
        """Its creation was refused: waits until kubelet tries again. DeniedError for a pod that is given up."""
        one = self._pods[uid]
        self.counts.refused += 1
        if "its gate is shut" not in str(error):
            raise error
        if one.said_s is not None and one.denied:
            raise DeniedError
        if one.said_s is not None and self._now() - one.said_s > OPENS_S:
            self._judge.broken(
                STUCK, f"{uid}: was passed {self._now() - one.said_s:.1f} s ago, and is refused: {error}"
            )
        await asyncio.sleep(AGAIN_S)

    def ended(self, uid: str) -> None:
        """The pod is gone."""
        self._pods.pop(uid, None)

    async def _set(self, uid: str, verdict: str) -> bool:
        """SetGate, as an adapter calls it; whether it was answered well."""
        body = json.dumps({"uid": uid, "verdict": verdict, "reason": "simulated"}).encode()
        about = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(self._socket, limit=MAX_ANSWER)
                try:
                    writer.write(b"POST /v1/SetGate HTTP/1.0\r\nHost: nodeward\r\n" + about.encode() + body)
                    await writer.drain()
                    return b" 200 " in await reader.readline()
                finally:
                    writer.close()
        except (OSError, TimeoutError, ValueError):
            return False
