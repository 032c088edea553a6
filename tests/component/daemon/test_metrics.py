"""The daemon's `/metrics`: what Prometheus sees of a pod's life, and of the daemon itself."""

import asyncio
import logging
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nodeward.edges.metrics.mapping import COUNTERS
from nodeward.model.settings import MetricsSection, Settings
from tests.component.daemon.rig import EPC, ROOT, WITHIN_S, Rig, play, rig
from tests.unit.edges.metrics.build import untold

Found = dict[tuple[str, str, str], float]
"""Values by name, level and container or other label."""


def with_metrics(settings: Settings) -> Settings:
    return replace(settings, metrics=MetricsSection(enabled=True, listen="127.0.0.1:0"))


async def port(caplog: pytest.LogCaptureFixture) -> int:
    """Where it listens, once it does."""
    async with asyncio.timeout(WITHIN_S):
        while not (lines := [line for line in caplog.messages if line.startswith("metrics=served")]):
            await asyncio.sleep(0.02)
    return int(lines[-1].rpartition("=")[2])


async def scrape(at: int) -> Found:
    """One scrape, in which each type is told once and each series given once."""

    def read() -> str:
        with urlopen(f"http://127.0.0.1:{at}/metrics", timeout=WITHIN_S) as answer:
            body: bytes = answer.read(1 << 24)
        return body.decode()

    text = await asyncio.to_thread(read)
    assert untold(text) == []
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {
        (one.name, one.labels.get("level", ""), one.labels.get("container", one.labels.get("scope", ""))): one.value
        for one in samples
    }


async def until(at: int, name: str, level: str, container: str, value: float | None) -> Found:
    """Scrapes until a series has this value; None: until it is gone."""
    async with asyncio.timeout(WITHIN_S):
        while (found := await scrape(at)).get((name, level, container)) != value:
            await asyncio.sleep(0.1)
    return found


def test_a_pods_series_come_with_its_limit_and_go_with_the_pod(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Given a running daemon, when a pod with EPC starts, is charged and ends, then its series say so and vanish."""
    caplog.set_level(logging.INFO, "nodeward")

    async def story(node: Rig) -> None:
        at = await port(caplog)
        home = await node.pod("a")
        found = await until(at, "nodeward_misc_limit", "container", "app", 4096.0)
        assert found["nodeward_misc_declared", "container", "app"] == 4096.0
        _, container = node.made["a"]
        with node.files.lock:
            node.kernel.charge(f"{ROOT}{home}/{container}", EPC, 1024)
        found = await until(at, "nodeward_misc_usage", "container", "app", 1024.0)
        assert found["nodeward_misc_usage", "pod", ""] == 1024.0
        await node.runtime.stop(container)
        await node.runtime.remove_container(container)
        await until(at, "nodeward_misc_limit", "container", "app", None)

    play(rig(tmp_path, change=with_metrics), story)


def test_every_counter_of_the_daemon_is_a_metric(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Given what `nodeward status` has under `health`, then a metric is made of each."""
    caplog.set_level(logging.INFO, "nodeward")

    async def main() -> None:
        async with rig(tmp_path, change=with_metrics) as node:
            await node.pod("a")
            health = await node.health()
            assert health
            grouped = ("lane_", "asks_", "kube_events_")
            assert [name for name in health if name not in COUNTERS and not name.startswith(grouped)] == []
            assert ("nodeward_loop_lag_max_seconds", "", "") in await scrape(await port(caplog))

    asyncio.run(main())


def test_metrics_are_off_unless_they_are_chosen(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nodeward")

    async def main() -> None:
        async with rig(tmp_path) as node:
            await node.pod("a")
            assert not any(line.startswith("metrics=") for line in caplog.messages)

    asyncio.run(main())


def test_an_address_that_is_held_is_told_with_its_setting_and_served_once_it_is_free(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Given a stranger at metrics.listen, then limits hold and the daemon is ready; when it goes, they are served."""

    async def source(node: Rig, ready: bool) -> dict[str, object]:
        async with asyncio.timeout(WITHIN_S):
            while True:
                rows = (await node.ask()).get("components")
                for row in rows if isinstance(rows, list) else ():
                    if row["name"] == "metrics" and row["ready"] is ready and row["since_wall_ns"]:
                        assert isinstance(row, dict)
                        return row
                await asyncio.sleep(0.02)

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as holder:
            listen = f"127.0.0.1:{holder.getsockname()[1]}"
            taken = MetricsSection(enabled=True, listen=listen)
            async with rig(tmp_path, change=lambda settings: replace(settings, metrics=taken)) as node:
                said = f"metrics.listen {listen}: Address already in use; choose another, or stop who holds it"
                assert (await source(node, ready=False))["detail"] == said
                assert f"component=metrics failed=ListenError error={said}" in caplog.messages
                await node.until_state(await node.pod("a"), "enforced")
                async with asyncio.timeout(WITHIN_S):
                    while not (await node.ask())["ready"]:
                        await asyncio.sleep(0.02)
                holder.close()
                assert (await source(node, ready=True))["detail"] == f"served at {listen}"

    asyncio.run(main())


def test_a_daemon_without_metrics_loads_nothing_for_them() -> None:
    """Given the modules of the daemon, then the metrics' library, some 7 MiB, is not among what they load."""
    code = "import sys, nodeward.app.node.run, nodeward.edges.nri.session; sys.exit('prometheus_client' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], timeout=WITHIN_S, check=False).returncode == 0
