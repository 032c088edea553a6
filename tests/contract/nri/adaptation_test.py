"""The NRI contract: every case on the runtime double, on containerd's own pkg/adaptation and on containerd itself, with
the same id.

Where a real end is not built the case skips; scripts/build-peers builds it.
"""

import asyncio
import tempfile
from pathlib import Path

import pytest

from tests.contract.nri.adaptation_cases import CASES, Case
from tests.contract.nri.adaptation_sides import SIDES, opened
from tests.patience import scaled

CASE_TIMEOUT_S = scaled(60.0)


@pytest.mark.parametrize(
    ("case", "side"), [pytest.param(case, side, id=f"{name}-{side}") for name, case in CASES.items() for side in SIDES]
)
async def test_contract(case: Case, side: str) -> None:
    # A folder with a short name: pytest's are too long for the path of a unix socket.
    with tempfile.TemporaryDirectory(prefix="nri") as folder:
        async with asyncio.timeout(CASE_TIMEOUT_S), opened(side, Path(folder)) as runtime:
            await case(runtime)
