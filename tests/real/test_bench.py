"""The bench still works: one small round of each part that needs neighbours, so that it does not rot unseen."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import ssl
from pathlib import Path

import pytest

from bench import allocate, api_pods, hook, metrics, nri, plugins, relay, sampler, ticking, tree, webhook
from tests.peers.find import absent, require
from tests.peers.nriside import nriside

SMALL = tree.Shape(pods=3, per_pod=2, calls=40)


@pytest.mark.parametrize("program", plugins.PROGRAMS)
def test_a_round_gives_every_figure(program: str) -> None:
    """Given a node of three pods, when a program is measured, then each of its figures is more than nothing."""
    require("nristub")

    figures = asyncio.run(nri.one_round(program, require("nriside-0.12"), SMALL))

    assert [name for name in ("sync", *nri.CREATE_LINES) if not figures[name] > 0] == []


@pytest.mark.parametrize("measured", [ticking.CALLBACKS, ticking.WAITS])
def test_the_metrics_part_looks_at_the_loop(
    measured: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a node of three pods that is scraped, then each of its times has figures, and nothing failed beside it."""
    require("nriside-0.12")
    monkeypatch.setattr(metrics, "ROUNDS", 1)
    monkeypatch.setattr(metrics, "SCRAPES_A_ROUND", 1)

    asyncio.run(metrics._lateness(SMALL, measured))

    said = capsys.readouterr().out
    for _, what, _ in metrics.TOLD[measured]:
        assert what in said
    assert [said.count(f"    {name:31} ") for name in metrics.TIMES] == [len(metrics.TOLD[measured])] * 3


def test_a_failed_daemon_gives_no_figures() -> None:
    """Given a tree without one container's cgroup, when the daemon is to settle in it, then the bench refuses."""

    async def story() -> None:
        with tree.scratch() as folder:
            command = plugins.daemon(folder, folder / "s", SMALL)
            (folder / "cgroup" / tree.container_path(2, 5)[1:] / "misc.max").unlink()
            async with nriside(require("nriside-0.12"), folder / "s") as side:
                await side.command("populate", pods=SMALL.pods, per_pod=SMALL.per_pod, filler=10)
                await side.command("listen")
                with plugins.running(command):
                    await side.event("log", "connected and synchronized")
                    await plugins.settled(folder, SMALL, within_s=4.0)

    with pytest.raises(plugins.UnfairError, match="1 goals not reached"):
        asyncio.run(story())


async def test_the_daemon_learns_the_pods_from_the_api_server_double() -> None:
    """Given the double with nriside's pods, when the daemon runs on it, then every limit of theirs is enforced."""

    with tree.scratch() as folder, api_pods.running(SMALL) as url:
        command = plugins.daemon(folder, folder / "s", SMALL, url)
        async with nriside(require("nriside-0.12"), folder / "s") as side:
            await side.command("populate", pods=SMALL.pods, per_pod=SMALL.per_pod, filler=10)
            await side.command("listen")
            with plugins.running(command):
                await side.event("log", "connected and synchronized")
                await plugins.settled(folder, SMALL)
                plugins.check(folder)


def test_the_samplers_own_cgroups_are_real_and_go_away() -> None:
    """Given a writable cgroup2, when the bench has made its cgroups and read them, then none is left."""
    try:
        with sampler.own_cgroups(SMALL) as (root, paths):
            seen = sampler.reader_of(root).read(paths)
            assert (len(paths), len(seen.readings), seen.gone) == (9, 9, ())
            sampler.check(seen, paths)
            short = dataclasses.replace(seen, readings=dict(list(seen.readings.items())[1:]))
            with pytest.raises(plugins.UnfairError, match=f"1 of 9 cgroups were not read, {paths[0]} among them"):
                sampler.check(short, paths)
    except plugins.MissingError as error:
        absent(str(error))
    assert not Path(root).exists()


def test_the_allocate_part_reads_real_cgroups(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given cgroups of three pods, when a daemon is asked for ids by the bench, then the kernel has counted two reads
    of each pod's counter and of the root's for each Allocate."""
    require("nriside-0.12")
    monkeypatch.setattr(allocate, "NODE", SMALL)
    monkeypatch.setattr(allocate, "ASKED", 20)
    monkeypatch.setattr(allocate, "IDLE_S", 0.2)
    monkeypatch.setattr(allocate, "SETTLED_S", 0.2)

    try:
        asyncio.run(allocate._daemons())
    except plugins.MissingError as error:
        absent(str(error))

    said = re.search(r"system calls of one +(\d+) read\(2\) or pread\(2\), (\d+) write\(2\)", capsys.readouterr().out)
    assert said is not None
    assert int(said[1]) >= 2 * (SMALL.pods + 1)
    assert int(said[2]) >= 1


def test_the_installed_hook_is_measured_and_sets_its_limit_each_time(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Given the script beside this interpreter, when the hook is measured, then both of its ways have a figure. The
    measuring process itself refuses where a run has set no limit. The bundle has rows, or a word that none is built."""
    try:
        hook.run()
    except plugins.MissingError as error:
        absent(str(error))
    said = capfd.readouterr().out
    assert said.count("the installed script, by") == 2
    assert said.count("the bundle's program") in (1, 2)


def test_the_webhook_and_its_floor_answer_the_bench(tmp_path: Path) -> None:
    """Given both servers, when each review of the bench is sent on two connections, then every one is answered."""
    folder = webhook.certificate(tmp_path)
    trust = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    with webhook.bare(folder) as floor, webhook.webhook(folder) as ours:
        for server in (floor, ours):
            for made in (webhook.small_pod(), webhook.large_pod()):
                times = webhook.drive(server.port, trust, json.dumps(made).encode(), connections=2, calls=9)
                assert len(times) == 9
                assert min(times) > 0


def test_the_relays_part_gives_a_figure_for_each_way(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a tenth of the calls, when the relay is measured, then each load has a line of figures, and memory too."""
    require("cribench")
    monkeypatch.setattr(relay, "ROUNDS", 1)
    monkeypatch.setattr(relay, "LOADS", [dataclasses.replace(load, calls=load.calls // 20) for load in relay.LOADS])

    relay.run()

    said = capsys.readouterr().out
    assert said.count("us of processor a call") == len(relay.LOADS)
    assert "lists that passed the engine has taken in" in said
    assert "resident memory" in said
