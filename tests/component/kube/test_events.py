"""Kubernetes Events on their way to an API server that takes them, refuses them, hangs, or has forgotten them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

import pytest

from nodeward.aio.backoff import Backoff
from nodeward.app.host.calls import MOST_WAITING, Calls
from nodeward.doubles.apiserver import ApiServer
from nodeward.edges.kube import events
from nodeward.edges.kube.client import PodsClient
from nodeward.model.decision import PodEvent, Reason
from nodeward.model.events import CallEnded
from nodeward.transport.kube_http import Waits
from tests.component.kube.support import WITHIN_S, Ears, HandClock, settings_for, until
from tests.rigs.stories import told_in

REFUSED = Reason("charge-refused", ("sgx_epc", "sgx.intel.com/epc", 4096, 4096, "the pod's spec in the API server"))
FIRST = PodEvent(1, 1, "shop", "web", "u-web", "app", "spec.containers{app}", REFUSED, 1, 10**9, 10**9)
LOST = PodEvent(1, 1, "default", "", "", "", "", Reason("journal-lost", ("journal",)), 1, 10**9, 10**9)
"""On the node itself."""


@dataclass
class Sent:
    """The calls of one daemon, and the server they go to."""

    server: ApiServer
    calls: Calls
    ears: Ears
    clock: HandClock

    async def send(self, *calls: PodEvent) -> list[str]:
        """How each ended."""
        before = len(self.ears.all(CallEnded))
        self.calls(calls)
        await self.ears.wait(CallEnded, before + len(calls))
        return [ended.error for ended in self.ears.all(CallEnded)[before:]]


@asynccontextmanager
async def sending() -> AsyncIterator[Sent]:
    async with asyncio.timeout(3 * WITHIN_S), ApiServer() as server:
        clock, ears = HandClock(), Ears()
        client = PodsClient(settings_for(server), clock)
        calls = Calls(ears, clock)
        task = asyncio.create_task(calls.run(events.EventSender(client), Backoff(0.5, 60.0, lambda: 1.0)))
        try:
            yield Sent(server, calls, ears, clock)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await client.aclose()


@told_in(sending)
async def test_an_event_is_made_and_counted_up(sent: Sent) -> None:
    assert await sent.send(FIRST, replace(FIRST, id=2, count=5, last_ns=2 * 10**9)) == ["", ""]
    ((key, made),) = sent.server.events.items()
    assert key[0] == "shop"
    assert made["series"] == {"count": 5, "lastObservedTime": "1970-01-01T00:00:02.000000Z"}
    assert made["reportingInstance"] == "nodeward-n1"
    assert sent.calls.outcomes == {"sent": 2, "failed": 0, "dropped": 0}


@told_in(sending)
async def test_an_event_on_the_node_itself_is_made_and_counted_up(sent: Sent) -> None:
    assert await sent.send(LOST, replace(LOST, id=2, count=5, last_ns=2 * 10**9)) == ["", ""]
    ((key, made),) = sent.server.events.items()
    assert key[0] == "default"
    assert key[1].startswith("n1.")
    assert made["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
    assert made["series"] == {"count": 5, "lastObservedTime": "1970-01-01T00:00:02.000000Z"}


@told_in(sending)
async def test_an_event_on_the_node_that_is_refused_is_named_in_the_log(
    sent: Sent, caplog: pytest.LogCaptureFixture
) -> None:
    sent.server.faults.refuse.append(403)
    assert ["403" in error for error in await sent.send(LOST)] == [True]
    assert "kube event=failed node=n1 why=" in caplog.text


@pytest.mark.parametrize("status", [403, 404, 409, 429, 503])
@told_in(sending)
async def test_a_refused_event_is_not_sent_again_and_the_next_one_waits(
    sent: Sent, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    sent.server.faults.refuse.extend([status, status])
    ended = await sent.send(FIRST, replace(FIRST, id=2, series=2), replace(FIRST, id=3, series=3))
    assert [str(status) in error for error in ended] == [True, True, False]
    assert len(sent.server.requests) == 3
    assert sent.calls.outcomes == {"sent": 1, "failed": 2, "dropped": 0}
    assert sent.clock.slept == [0.5, 1.0]
    lines = [line for line in caplog.messages if "event=failed" in line]
    assert len(lines) == 1
    assert status != 403 or "allow create and patch on events of events.k8s.io" in lines[0]


@told_in(sending)
async def test_an_api_server_that_hangs_holds_up_a_bounded_number_and_the_rest_is_dropped(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "WAITS", Waits(connect_s=0.2, read_s=0.2, total_s=0.2))
    sent.server.faults.hang = True
    sent.calls((FIRST,))
    await until(lambda: len(sent.server.requests) == 1)
    more = tuple(replace(FIRST, id=n, series=n) for n in range(2, MOST_WAITING + 12))
    sent.calls(more)
    assert sent.calls.waiting == MOST_WAITING
    await sent.ears.wait(CallEnded, 11)
    assert sent.calls.outcomes["dropped"] == 10
    assert "no answer in time" in sent.ears.all(CallEnded)[-1].error


@told_in(sending)
async def test_a_pod_whose_name_leads_elsewhere_is_not_asked_about(sent: Sent) -> None:
    (error,) = await sent.send(replace(FIRST, namespace="../../../api/v1/namespaces/x/secrets"))
    assert "is no name of Kubernetes" in error
    assert sent.server.requests == []
