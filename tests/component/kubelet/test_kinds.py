"""The device plugins of several kinds of key as the daemon runs them by its settings, each for itself."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nodeward.aio.backoff import Backoff
from nodeward.aio.clock import SystemClock
from nodeward.aio.hostfs import OsFiles
from nodeward.aio.lanes import ThreadLane
from nodeward.aio.supervise import forever
from nodeward.app.host.core import Core
from nodeward.app.host.performers import ByEdge
from nodeward.app.node.ledger import checkpoint_file, device_plugin
from nodeward.app.node.pods import NoFacts
from nodeward.doubles.kernel import SimKernel
from nodeward.doubles.kubelet import AdmissionError, Asks
from nodeward.engine.state.root import State
from nodeward.model.decision import Goal, Reason
from nodeward.model.settings import KeySettings, KubeSection, LedgerSettings, Mode, Publisher, Settings
from tests.component.kubelet.node import TDX, Node, node, until
from tests.goals import slots_of, target
from tests.lanes import InlineLane

SEV = "devices.kubevirt.io/sev-esids"


class Faulty(ByEdge):
    """Fails for one resource as often as it is asked, until it is mended."""

    broken = True

    def value(self, where: str) -> str | None:
        if self.broken and where == SEV:
            raise RuntimeError("a fault of our own")
        return super().value(where)


async def _no_commit(_: str) -> str:
    return "nothing commits here"


@contextlib.asynccontextmanager
async def offering(home: Path, offers: ByEdge, *devices: str) -> AsyncIterator[tuple[Node, list[str]]]:
    """Kubelet beside the two kinds as the daemon runs them, each with these device nodes; and which of them failed."""
    keys = {
        key: KeySettings((name,), publisher=Publisher.DEVICE_PLUGIN, publish=name, devices=devices)
        for key, name in (("tdx", TDX), ("sev_es", SEV))
    }
    settings = Settings(ledger=LedgerSettings(Mode.ENFORCE, keys, str(home)), kube=KubeSection(enabled=False))
    kernel, clock, failures, loop = SimKernel({}), SystemClock(), list[str](), asyncio.get_running_loop()
    core = Core(State(settings=settings.engine), clock, slots_of(InlineLane(), kernel, clock), NoFacts(), _no_commit)

    def lane() -> ThreadLane:
        return ThreadLane("plugin", loop, lambda job: None)

    chosen, _ = device_plugin(
        settings, offers, core, lane, clock, lambda: checkpoint_file(settings, OsFiles()), lambda *_: None
    )
    offers.set([Goal(target(f"offer:{name}"), f'[["{name[-3:]}-0", true]]', Reason("test")) for name in (TDX, SEV)])
    async with node(home) as found:
        running = [
            loop.create_task(
                forever(name, start, clock, Backoff(0.05, 0.1, lambda: 0.0), lambda who, _: failures.append(who))
            )
            for name, start in chosen
        ]
        await found.becomes((1, 1))
        yield found, failures
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    core.close()


async def test_one_kinds_fault_leaves_the_other_registered_and_is_tried_again_by_itself(home: Path) -> None:
    offers = Faulty("offer")
    async with offering(home, offers) as (found, failures):
        await until(lambda: len(failures) > 3, "it is tried again and again")
        assert list(dict.fromkeys(failures)) == ["device-plugin-sev_es"]
        registered = found.kubelet.lists[:]
        offers.broken = False
        await until(lambda: found.kubelet.capacity(SEV) == (1, 1), "it is there once it is mended")
        assert found.kubelet.capacity(TDX) == (1, 1)
        assert [name for name, *_ in registered] == [TDX]


async def test_a_device_node_of_the_settings_that_is_none_refuses_each_pod_with_the_remedy(home: Path) -> None:
    """Given one that has gone, and a file in its place."""
    place = home / "sev"
    async with offering(home, ByEdge("offer"), str(place)) as (found, _):
        with pytest.raises(AdmissionError) as gone:
            await found.kubelet.admit("a", TDX, (Asks("compute"),))
        place.touch()
        with pytest.raises(AdmissionError) as file:
            await found.kubelet.admit("b", TDX, (Asks("compute"),))
    assert f"nodeward: {place}: No such file or directory; ledger.keys.tdx.devices gives it to each" in str(gone.value)
    assert f"nodeward: {place} is not a character device; " in str(file.value)
