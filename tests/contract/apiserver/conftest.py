"""Starts a real kube-apiserver for the contract's real rows, unless a variable already names one."""

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.contract.apiserver.adapter import VARIABLE
from tests.peers.kube import running_apiserver


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ExitStack() as stack:
        if VARIABLE in os.environ:
            yield os.environ[VARIABLE]
            return
        server = stack.enter_context(running_apiserver(tmp_path_factory.mktemp("kube")))
        yield f"{server.base_url} {server.token} {server.ca_file} {server.etcd_url}"


@pytest.fixture(autouse=True)
def _real_row(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = getattr(request.node, "callspec", None)
    if spec is not None and spec.params.get("kind") == "real":
        monkeypatch.setenv(VARIABLE, request.getfixturevalue("real_server"))
