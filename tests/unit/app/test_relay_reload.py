"""What a running relay does for new settings, and by which thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from nodeward.aio import sd_notify
from nodeward.aio.backoff import Backoff
from nodeward.aio.clock import SystemClock
from nodeward.aio.hostfs import OsFiles
from nodeward.app.dump.feed import Feed, Writer
from nodeward.app.relay.reload import RelayReload, merged
from nodeward.app.settings.pushed import Pushed
from nodeward.app.settings.reload import SettingsSource
from nodeward.app.tools.cri_resmgr_pushed import over_file
from nodeward.model.policy_rule import Driver, PolicySettings
from nodeward.model.settings import CpusSettings, DumpSection, Mode, Settings
from nodeward.wire import dump_rules


def no_writer(again: bool) -> Writer:
    raise OSError


async def test_rules_of_a_dump_are_read_by_another_thread_than_the_one_that_relays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand expressions take tens of milliseconds, which no call waits for."""
    threads: list[int] = []
    parse: Callable[[str], dump_rules.Rules] = dump_rules.parse
    followed = asyncio.Event()

    class Followed(Feed):
        def follow(self, rules: dump_rules.Rules) -> None:
            super().follow(rules)
            followed.set()

    def parsed(spec: str) -> dump_rules.Rules:
        threads.append(threading.get_ident())
        return parse(spec)

    monkeypatch.setattr(dump_rules, "parse", parsed)
    backoff = Backoff(1.0, 1.0, lambda: 0.5)
    feed = Followed(parse("full:.*"), no_writer, SystemClock(), backoff)
    wanted = Settings(dump=DumpSection("/d", "off:.*"))
    source = SettingsSource(lambda: wanted, "a test")
    reload = asyncio.ensure_future(RelayReload(Settings(), source, None, feed).run(sd_notify.from_environment({}, 1)))
    source.asked.set()
    await asyncio.wait_for(followed.wait(), 30)
    reload.cancel()
    assert not feed.interest("/runtime.v1.RuntimeService/Version")
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


def test_a_relay_that_decides_takes_a_policy_at_once_but_neither_a_driver_nor_a_domain_that_was_off() -> None:
    running = Settings(cpus=CpusSettings(driver=Driver.RELAY))
    wanted = Settings(policy=PolicySettings("static"), cpus=CpusSettings(Mode.OBSERVE, Driver.NRI, late_ms=7))
    live = merged(running, wanted, limits=True, dump=False)

    assert live.policy == wanted.policy
    assert live.cpus == CpusSettings(Mode.OBSERVE, Driver.RELAY, late_ms=7)
    off = Settings(cpus=CpusSettings(Mode.OFF, Driver.RELAY))
    assert merged(off, wanted, limits=True, dump=False).cpus == off.cpus
    assert merged(running, wanted, limits=False, dump=False) == running


def test_an_agent_that_goes_while_its_policy_is_taken_back_leaves_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parse: Callable[[str], dump_rules.Rules] = dump_rules.parse
    held, go_on, calls = threading.Event(), threading.Event(), list[str]()

    def parsed(spec: str) -> dump_rules.Rules:
        calls.append(spec)
        if len(calls) == 2:
            held.set()
            go_on.wait(30)
        return parse(spec)

    class Limits:
        """Of a relay whose machine no policy fits but none."""

        def __init__(self) -> None:
            self.settled = list[str]()

        core = SimpleNamespace(state=SimpleNamespace(cpus=SimpleNamespace(refused=("too large",))))

        def settle(self, live: Settings) -> None:
            self.settled.append(live.policy.active)

    async def story() -> list[str]:
        pushed = Pushed(over_file(None, {}, {"state_dir": str(tmp_path)}), OsFiles())
        feed = Feed(parse("full:.*"), no_writer, SystemClock(), Backoff(1.0, 1.0, lambda: 0.5))
        limits = Limits()
        source = SettingsSource(pushed.read, "a test", pushed=pushed)
        reload = RelayReload(pushed.read(), source, limits, feed)  # type: ignore[arg-type]
        push = asyncio.create_task(reload.push("n", {"policy": "Active: balloons\n"}))
        await asyncio.to_thread(held.wait, 30)
        push.cancel()
        go_on.set()
        await asyncio.gather(push, return_exceptions=True)
        return ["none", *limits.settled]

    monkeypatch.setattr(dump_rules, "parse", parsed)
    assert asyncio.run(story())[-1] == "none"
