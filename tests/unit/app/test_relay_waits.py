"""Calls that wait in the relay for what its node daemon knows of a pod: how long, for whom, and when nobody waits."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from nodeward.aio.clock import SystemClock
from nodeward.app.node.pod_facts import SOCKET
from nodeward.app.relay.limits import RelayLimits
from nodeward.model.events import ApiBack, PodSeen
from nodeward.model.relayed import Verdict
from nodeward.model.settings import Settings
from nodeward.model.workload import ContainerSpec, PodSpec, PodUid
from tests.unit.app.relayed import Relayed, create, created, listed, update, updated

SPEC = PodSpec(PodUid("uid-1"), "default", "pod", (ContainerSpec("app", declared={"sgx_epc": 4096}),))
SECOND_NS = 1_000_000_000
CALLS = {"CreateContainer": (create(), created), "UpdateContainerResources": (update("c1"), updated)}


def asks(node: Relayed, name: str) -> Awaitable[Verdict]:
    """The verdict of a call that has to wait for it."""
    found = node.decider.decide(node.begin(name), CALLS[name][0], SECOND_NS)
    assert isinstance(found, Awaitable)
    return found


def facts_from(
    node: Relayed, monkeypatch: pytest.MonkeyPatch, fetch: Callable[[str, str], Awaitable[str]]
) -> Callable[[], bool]:
    """A daemon that is there; whether a call waits."""
    monkeypatch.setattr(node.limits.facts, "fetch", fetch)
    node.limits.core.tell(ApiBack())
    return lambda: bool(node.limits.core.state.asks)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_waits_for_its_pods_spec_within_its_deadline(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a relay that was restarted and has only the runtime's lists, when a call comes before the daemon has told
    of its pod, then the spec decides and not the annotation."""
    node, told = Relayed(), asyncio.Event()
    node.decider.asked(*listed(c1=True), 0)

    async def fetch(fact: str, key: str) -> str:
        assert key == "default/pod/uid-1"
        await told.wait()
        node.limits.core.tell(PodSeen(SPEC))
        return ""

    facts_from(node, monkeypatch, fetch)
    verdict = asks(node, name)
    told.set()
    assert CALLS[name][1](await verdict) == "sgx_epc 4096"
    assert node.limits.core.asks == {"after-a-fact": 1}


async def test_before_it_is_known_whether_a_daemon_is_there_a_call_waits_for_that(tmp_path: Path) -> None:
    """Given a relay that has just begun, before somebody who takes his time and then goes, then its first create is
    decided once that is found out, by the annotations."""
    node, goes = Relayed(), asyncio.Event()
    node.limits = RelayLimits(Settings(run_dir=str(tmp_path)), node.kernel, SystemClock(), lambda do, _: do())
    node.decider = node.limits.decider

    async def hesitates(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await goes.wait()
        writer.close()

    async with await asyncio.start_unix_server(hesitates, tmp_path / SOCKET):
        keeps = asyncio.ensure_future(node.limits.facts.keep())
        await turns()
        verdict = asks(node, "CreateContainer")
        goes.set()
        assert created(await verdict) == "sgx_epc 8192"
        assert node.limits.facts.source == "annotations"
        keeps.cancel()


async def test_a_call_that_is_cancelled_before_anything_of_it_ran_leaves_no_open_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Relayed()

    async def fetch(fact: str, key: str) -> str:
        await asyncio.Event().wait()
        return ""

    waits = facts_from(node, monkeypatch, fetch)
    verdict = asyncio.ensure_future(asks(node, "CreateContainer"))
    assert waits()
    verdict.cancel()
    await turns()
    assert not waits()
    assert (node.containers, node.limits.core.asks) == ([], {"abandoned": 1})
