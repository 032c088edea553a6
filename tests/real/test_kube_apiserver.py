"""The API server contract on a kube-apiserver that is started for it, without anybody setting a variable.

The cases are those of tests/contract/apiserver, which run on the double there. To run the contract's own `real` row:
`python -m tests.peers.kube pytest tests/contract/apiserver`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.apiserver.adapter import VARIABLE, http, opened
from tests.contract.apiserver.test_apiserver_contract import CASES, unique
from tests.peers.kube import ApiServer, running_apiserver


@pytest.fixture(name="apiserver", scope="module")
def _apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """One API server for all cases: each uses a node name of its own."""
    folder: Path = tmp_path_factory.mktemp("kube")
    with running_apiserver(folder) as server:
        yield server


@pytest.mark.parametrize("case", CASES)
def test_api_server(case: str, apiserver: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a real API server, when the contract's case is played on it, then it holds."""
    monkeypatch.setenv(VARIABLE, f"{apiserver.base_url} {apiserver.token} {apiserver.ca_file}")

    async def play() -> None:
        async with opened("real") as api, http(api.endpoint) as session:
            await CASES[case](api, unique("node"), session)

    asyncio.run(play())
