"""The simulated kubelet's calls through the relay: what the judge hears of those that fail."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from nodeward.doubles.kernel import SimKernel
from nodeward.doubles.runtime import SimRuntime
from nodeward.proto import cri_pb2 as cri
from nodeward.sim import relayed
from nodeward.sim.charges import Charges
from nodeward.sim.invariants import Judge
from nodeward.sim.relayed import Relayed
from nodeward.transport.grpc_unix import Code, GrpcError


class Client:
    """A create fails by the runtime's word; a stop ends when the client is closed."""

    def __init__(self, path: str) -> None:
        self._closed = asyncio.Event()

    async def call(self, method: str, request: bytes, timeout_s: float) -> bytes:
        if method.endswith("/StopContainer"):
            await self._closed.wait()
            raise GrpcError(Code.CANCELLED, "the client was closed meanwhile")
        raise GrpcError(Code.UNKNOWN, 'name "a" is reserved for another')

    async def close(self) -> None:
        self._closed.set()


def test_a_call_that_ends_because_one_beside_it_closed_the_client_breaks_no_invariant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relayed, "GrpcClient", Client)
    monkeypatch.setattr(relayed, "AGAIN_S", 0.0)

    async def story() -> None:
        kernel, judge = SimKernel({}), Judge(1.0)
        charges = Charges(kernel, judge, Random(1), 0.0)
        one = Relayed(tmp_path, SimRuntime(tmp_path / "nri"), judge, charges, lambda: 1.0, Random(1), "", None)
        one._there_since_s = 1.0
        async with asyncio.timeout(30):
            said = await asyncio.gather(
                one._call("StopContainer", cri.StopContainerRequest()),
                one._call("CreateContainer", cri.CreateContainerRequest()),
            )
        assert list(said) == [None, None]
        assert judge.violations == []

    asyncio.run(story())
