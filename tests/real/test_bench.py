"""The bench still works: one small round of each part that needs neighbours, so that it does not rot unseen."""

import asyncio
import dataclasses
import json
import re
import ssl
from pathlib import Path

import pytest

from bench import allocate, hook, nri, plugins, relay, tree, webhook
from tests.peers.find import absent, require

SMALL = tree.Shape(pods=3, per_pod=2, calls=40)


@pytest.mark.parametrize("program", plugins.PROGRAMS)
def test_a_round_gives_every_figure(program: str) -> None:
    require("nristub")

    figures = asyncio.run(nri.one_round(program, require("nriside-0.12"), SMALL))

    assert [name for name in ("sync", *nri.CREATE_LINES) if not figures[name] > 0] == []


def test_the_allocate_part_reads_real_cgroups(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_the_installed_hook_is_measured_and_sets_its_limit_each_time(capfd: pytest.CaptureFixture[str]) -> None:
    try:
        hook.run()
    except plugins.MissingError as error:
        absent(str(error))
    said = capfd.readouterr().out
    assert said.count("the installed script, by") == 2
    assert said.count("the bundle's program") in (1, 2)


def test_the_webhook_and_its_floor_answer_the_bench(tmp_path: Path) -> None:
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
    require("cribench")
    monkeypatch.setattr(relay, "ROUNDS", 1)
    monkeypatch.setattr(relay, "LOADS", [dataclasses.replace(load, calls=load.calls // 20) for load in relay.LOADS])

    relay.run()

    said = capsys.readouterr().out
    assert said.count("us of processor a call") == len(relay.LOADS)
    assert "resident memory of its node daemon" in said
    assert "resident memory" in said
