"""Answers the relay's questions about pods, a line each way (`neighbours.cri.facts_line`).

A pod that the daemon has not seen yet is read from the API server first, as it is for a create of the daemon's own.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from nodeward.core.errors import WireError
from nodeward.core.gating import Gated
from nodeward.core.vms import Allocatable
from nodeward.core.workload import PodUid
from nodeward.features.pods.state import Pods
from nodeward.neighbours.cri import facts_line
from nodeward.neighbours.sockets.lines import LineServer

SOCKET: Final = "facts.sock"
"""In the settings' `run_dir`."""
READ_S: Final = 1.0
"""How long the API server may take; the relay waits longer, so that it hears why."""


async def serve(
    run_dir: str,
    pods: Callable[[], Pods],
    read: Callable[[str], Awaitable[str]],
    gate: Callable[[Gated, float], Awaitable[str]],
    allocatable: Callable[[], Allocatable],
) -> None:
    """Serves until cancelled. `read` has the pod NAMESPACE/NAME/UID told to the core, and returns why it could not.
    `gate` waits at a pod's gate, for so many seconds at most, and returns why it is shut. `allocatable`: by
    the Node object, as it was read last."""

    async def answer(line: bytes) -> bytes:
        try:
            asked = facts_line.decode_question(line)
        except WireError as error:
            return facts_line.encode_answer(None, str(error))
        if isinstance(asked, facts_line.AskedGate):
            return facts_line.encode_gate_answer(await gate(asked.gate, asked.within_ms / 1000))
        if not asked.uid:
            return facts_line.encode_answer(None, "no pod is asked for", allocatable())
        uid, why = PodUid(asked.uid), ""
        if uid not in pods().specs:
            why = await _read(read, f"{asked.namespace}/{asked.name}/{uid}")
        known = pods().specs.get(uid)
        if known is None:
            return facts_line.encode_answer(None, why or "the pod ended meanwhile", allocatable())
        return facts_line.encode_answer(known.spec, allocatable=allocatable())

    await LineServer("facts", answer, facts_line.MAX_REQUEST).run(f"{run_dir}/{SOCKET}")


async def _read(read: Callable[[str], Awaitable[str]], key: str) -> str:
    try:
        return await asyncio.wait_for(read(key), READ_S)
    except TimeoutError:
        return f"the API server did not tell within {READ_S:g} s"
