"""A real Prometheus that scrapes a picture of VM sandboxes, with the shipped rules and the dashboard's queries on them.

The picture is a value, served by the daemon's own metrics server: `test_prometheus.py` has the whole daemon.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.component.metrics.test_server import site
from tests.peers.prometheus import Prometheus, prometheus, queries
from tests.unit.edges.metrics.build import node
from tests.unit.edges.metrics.sandboxes import MIB, SANDBOXES


def told(server: Prometheus) -> None:
    """The picture's numbers, what the rules make of them, and an answer to each query."""
    server.until('nodeward_sandboxes_memory_bytes{part="vmm", node="127.0.0.1"}', [120 * MIB])
    server.until("sandbox:nodeward_sandboxes_headroom:ratio", [-0.1])
    server.until("sandbox:nodeward_sandboxes_overhead_cpu:rate5m", [0.0])
    server.until('ALERTS{alertname="NodewardSandboxWillBeKilled", pod="web"}', [1.0])
    server.until('ALERTS{alertname="NodewardSandboxAnnotated", alertstate="firing"}', [1.0])
    for query in queries(of_sandboxes=True):
        print(f"{query}  {server.until(query)}")
    assert len(queries(of_sandboxes=True)) > 10


async def test_every_query_of_the_dashboard_on_sandboxes_has_an_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with site(caplog, lambda: replace(node(), sandboxes=SANDBOXES)) as own:
        with prometheus(tmp_path, own.port) as server:
            await asyncio.to_thread(told, server)
