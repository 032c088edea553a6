"""Several kinds of key are offered by components of their own: a fault in one keeps no other from kubelet."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

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
from nodeward.engine.state.root import State
from nodeward.model.decision import Goal, Reason
from nodeward.model.settings import KeySettings, KubeSection, LedgerSettings, Mode, Publisher, Settings
from tests.component.kubelet.node import TDX, WITHIN_S, node, until
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


def _settings(home: Path) -> Settings:
    rows = {"tdx": TDX, "sev_es": SEV}
    keys = {key: KeySettings((name,), publisher=Publisher.DEVICE_PLUGIN, publish=name) for key, name in rows.items()}
    return Settings(ledger=LedgerSettings(Mode.ENFORCE, keys, str(home)), kube=KubeSection(enabled=False))


def test_one_kinds_fault_leaves_the_other_registered_and_is_tried_again_by_itself() -> None:
    async def story(home: Path) -> None:
        kernel, clock, failures = SimKernel({}), SystemClock(), list[str]()
        slots = slots_of(InlineLane(), kernel, clock)
        settings, offers = _settings(home), Faulty("offer")
        core = Core(State(settings=settings.engine), clock, slots, NoFacts(), _no_commit)
        loop = asyncio.get_running_loop()

        def lane() -> ThreadLane:
            return ThreadLane("plugin", loop, lambda job: None)

        read, note = (lambda: checkpoint_file(settings, OsFiles())), (lambda *_: None)
        chosen, _ = device_plugin(settings, offers, core, lane, clock, read, note)
        offers.set([Goal(target(f"offer:{name}"), f'[["{name[-3:]}-0", true]]', Reason("test")) for name in (TDX, SEV)])
        async with node(home) as found:
            running = [
                loop.create_task(
                    forever(name, start, clock, Backoff(0.05, 0.1, lambda: 0.0), lambda who, _: failures.append(who))
                )
                for name, start in chosen
            ]
            try:
                await found.becomes((1, 1))
                await until(lambda: len(failures) > 3, "it is tried again and again")
                assert list(dict.fromkeys(failures)) == ["device-plugin-sev_es"]
                registered = found.kubelet.lists[:]
                offers.broken = False
                await until(lambda: found.kubelet.capacity(SEV) == (1, 1), "it is there once it is mended")
                assert found.kubelet.capacity(TDX) == (1, 1)
                assert [name for name, *_ in registered] == [TDX]
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)
        core.close()

    async def bounded(home: Path) -> None:
        async with asyncio.timeout(3 * WITHIN_S):
            await story(home)

    with tempfile.TemporaryDirectory(prefix="kub") as folder:
        asyncio.run(bounded(Path(folder)))
