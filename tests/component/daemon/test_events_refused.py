"""An API server that takes no Kubernetes Events: pods are enforced as ever, and what failed is counted."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.doubles.apiserver import ApiServer
from nodeward.doubles.kube_refusals import Json
from nodeward.edges.kube import events
from nodeward.model.settings import KubeSection, Settings
from nodeward.transport.kube_http import Waits
from tests.component.daemon.rig import EPC, PODS, ROOT, WITHIN_S, Rig, rig


def a_pod(uid: str) -> Json:
    container = {"name": "app", "resources": {"limits": {"sgx.intel.com/epc": "4096"}}}
    return {
        "metadata": {"name": f"pod-{uid}", "namespace": "default", "uid": uid},
        "spec": {"nodeName": "n1", "containers": [container]},
    }


def with_api(url: str) -> Callable[[Settings], Settings]:
    return lambda settings: replace(settings, kube=KubeSection(url=url), node_name="n1")


async def refused(node: Rig, uid: str) -> None:
    """A charge that the container's limit refuses, once it is enforced."""
    home = await node.pod(uid)
    path = f"{home}/{node.made[uid][1]}"
    await node.until_state(path, "enforced")
    with node.files.lock, contextlib.suppress(OSError):
        node.kernel.charge(f"{ROOT}{path}", EPC, 5000)


async def until(node: Rig, name: str, least: int) -> None:
    async with asyncio.timeout(WITHIN_S):
        while (await node.health()).get(name, 0) < least:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("status", [0, 403, 410, 429, 503], ids=["hangs", "403", "410", "429", "503"])
def test_enforcing_goes_on_where_events_are_not_taken(
    tmp_path: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an API server that refuses Events or never answers, when a charge is refused, then the failure is counted,
    the daemon stays ready, and the next pod gets its limit; once Events are taken, that pod is told."""
    monkeypatch.setattr(events, "WAITS", Waits(connect_s=0.5, read_s=0.5, total_s=0.5))

    async def story(server: ApiServer, node: Rig) -> None:
        await node.until_health("loop_stalls", 0)
        server.faults.events_refuse, server.faults.events_hang = status, not status
        await refused(node, "a")
        await until(node, "kube_events_failed", 1)
        server.faults.events_refuse, server.faults.events_hang = 0, False
        await refused(node, "b")
        await until(node, "kube_events_sent", 1)
        told = [one for one in server.events.values() if one["reason"] == "ChargeRefused"]
        assert [dict(one)["regarding"] for one in told] == [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": "default",
                "name": "pod-b",
                "uid": "b",
                "fieldPath": "spec.containers{app}",
            }
        ]
        assert (await node.ask())["ready"] is True

    async def main() -> None:
        async with ApiServer() as server:
            for uid in PODS:
                server.add_pod(a_pod(uid))
            async with rig(tmp_path, change=with_api(server.url)) as node:
                await story(server, node)

    asyncio.run(main())
