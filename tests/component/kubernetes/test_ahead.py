"""A pod that the watch has not told of is asked for when its sandbox starts, once, and its creates wait for that."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from nodeward.core.decision import Adjustment, Final
from nodeward.core.events import ApiBack, ApiLost, CapacityRead, Creating, PodGone, PodSeen, SandboxStarted
from nodeward.core.ports import Tell
from nodeward.core.workload import Container, ContainerId, ContainerSpec, PodSpec, PodUid, Sandbox, SandboxId
from nodeward.features.all import ENGINE
from nodeward.features.pods.wiring import MOST_AHEAD, ApiFacts
from nodeward.features.root import State
from nodeward.features.settings import KubeSection
from nodeward.host.clock import SystemClock
from nodeward.host.facts import FactsByKind
from nodeward.host.runner import Core
from nodeward.neighbours.kubernetes.client import PodsClient
from nodeward.neighbours.kubernetes.reflector import Missing, PodReader
from nodeward_sim.doubles.apiserver import ApiServer
from nodeward_sim.doubles.kernel import SimKernel
from nodeward_sim.doubles.runtime import SimContainer, SimPod
from tests.component.daemon.rig import rig
from tests.component.kubernetes.support import WITHIN_S, HandClock, pod, settings_for, until
from tests.goals import slots_of
from tests.lanes import InlineLane
from tests.rigs.daemon import no_commit
from tests.rigs.stories import told_in

SECOND = 1_000_000_000
EPC = "sgx_epc"


def sandbox(name: str) -> Sandbox:
    return Sandbox(SandboxId(f"s-{name}"), PodUid(f"u-{name}"), "default", name, cgroup_parent=f"/kubepods/{name}")


def creating(name: str, container: str = "c") -> Creating:
    made = Container(ContainerId(f"{name}-{container}"), SandboxId(f"s-{name}"), container)
    return Creating(sandbox(name), made)


class LateReader(PodReader):
    def __init__(self, fault: Exception | None = None) -> None:
        self.asked: list[str] = []
        self.go, self._fault = asyncio.Event(), fault

    async def read_pod(self, namespace: str, name: str, uid: str) -> PodSeen | Missing:
        self.asked.append(name)
        if self._fault is not None:
            raise self._fault
        await self.go.wait()
        return PodSeen(spec(name, 1))


def spec(name: str, epc: int) -> PodSpec:
    return PodSpec(PodUid(f"u-{name}"), "default", name, (ContainerSpec("c", declared={EPC: epc}),))


def wired(reader: PodReader) -> tuple[Core[State], ApiFacts, Tell]:
    kernel, clock = SimKernel({EPC: 1 << 30}), SystemClock()
    slots = slots_of(InlineLane(), kernel, clock)
    by_kind = FactsByKind()
    core = Core(State(), ENGINE, clock, slots, by_kind, no_commit)
    facts = ApiFacts(reader, core)
    by_kind.offer("pod", partial(facts.fetch, "pod"))
    core.tell(CapacityRead(controller=True, capacity={EPC: 1 << 30}))
    core.tell(ApiBack())
    return core, facts, facts.listens(core.tell)


async def answer(core: Core[State], question: Creating) -> Final:
    found = core.ask(question, SECOND)
    return found if isinstance(found, Final) else await found


@asynccontextmanager
async def beside_a_server() -> AsyncIterator[tuple[ApiServer, Core[State], Tell]]:
    async with (
        asyncio.timeout(6 * WITHIN_S),
        ApiServer() as server,
        aclosing(PodsClient(settings_for(server), HandClock())) as client,
    ):
        core, facts, heard = wired(PodReader(client))
        with closing(facts):
            yield server, core, heard


def gets(server: ApiServer) -> int:
    return sum("/pods/" in request for request in server.requests)


@told_in(beside_a_server, gives=3)
async def test_the_sandbox_starts_one_get_and_each_create_joins_it(
    server: ApiServer, core: Core[State], heard: Tell
) -> None:
    server.add_pod(pod("web"))
    heard(SandboxStarted(sandbox("web")))
    heard(SandboxStarted(sandbox("web")))
    answers = await asyncio.gather(*(answer(core, creating("web", name)) for name in ("c", "other")))

    assert [one.value for one in answers] == [
        Adjustment({"misc.max": f"{EPC} {1 << 20}"}),
        Adjustment({"misc.max": f"{EPC} 0"}),
    ]
    assert gets(server) == 1


@pytest.mark.parametrize("away", [True, False], ids=["the API server is away", "the watch has told"])
async def test_no_get_where(away: bool) -> None:
    reader = LateReader()
    core, _, heard = wired(reader)
    core.tell(ApiLost("down") if away else PodSeen(spec("web", 5)))
    heard(SandboxStarted(sandbox("web")))
    await asyncio.sleep(0)

    assert reader.asked == []


async def test_a_create_that_waits_no_longer_does_not_end_the_get() -> None:
    reader = LateReader()
    core, facts, heard = wired(reader)
    heard(SandboxStarted(sandbox("web")))
    first = await answer(core, creating("web"))
    assert (first.value, reader.asked, facts.under_way) == (Adjustment(), ["web"], 1)
    reader.go.set()
    await until(lambda: PodUid("u-web") in core.state.pods.specs)
    await until(lambda: facts.under_way == 0)

    assert reader.asked == ["web"]


async def test_so_many_gets_are_started_ahead_and_no_more() -> None:
    reader = LateReader()
    core, facts, heard = wired(reader)
    for number in range(MOST_AHEAD + 5):
        heard(SandboxStarted(sandbox(f"p{number}")))
    await asyncio.sleep(0)
    assert (facts.under_way, len(reader.asked)) == (MOST_AHEAD, MOST_AHEAD)
    reader.go.set()
    await until(lambda: len(core.state.pods.specs) == MOST_AHEAD)
    await until(lambda: facts.under_way == 0)


async def test_an_answer_that_the_watch_has_overtaken_is_not_told() -> None:
    reader = LateReader()
    core, facts, heard = wired(reader)
    for name in ("changed", "deleted"):
        heard(SandboxStarted(sandbox(name)))
    core.tell(PodSeen(spec("changed", 9)))
    core.tell(PodGone(PodUid("u-deleted")))
    reader.go.set()
    await until(lambda: facts.under_way == 0)

    found = {uid: known.spec.containers[0].declared for uid, known in core.state.pods.specs.items()}
    assert found == {"u-changed": {EPC: 9}}


async def test_what_is_under_way_ends_with_the_watch_and_fails_no_create() -> None:
    core, facts, heard = wired(LateReader())
    heard(SandboxStarted(sandbox("web")))
    waiting = asyncio.ensure_future(answer(core, creating("web")))
    await asyncio.sleep(0)
    facts.close()

    assert (await waiting).value == Adjustment()
    assert facts.under_way == 0


async def test_a_reader_that_fails_is_an_answer_too() -> None:
    core, facts, heard = wired(LateReader(ZeroDivisionError()))
    heard(SandboxStarted(sandbox("web")))
    assert (await answer(core, creating("web"))).value == Adjustment()
    assert "ZeroDivisionError" in await facts.fetch("pod", "default/web/u-web")


async def test_the_daemon_asks_once_the_runtime_has_told_of_the_sandbox(tmp_path: Path) -> None:
    async with ApiServer() as server:
        server.faults.silent_watches = True  # so that nothing but a GET can tell of the pod
        section = KubeSection(url=server.url)
        async with rig(tmp_path, change=lambda settings: replace(settings, kube=section)) as node:
            await node.until(lambda view: view.get("api") == "answers")
            server.add_pod({**pod("late"), "metadata": {"name": "late", "namespace": "default", "uid": "late"}})
            sandbox_id = await node.runtime.run_pod(SimPod("late", "late"))
            await until(lambda: gets(server) == 1)
            await node.runtime.create_container(sandbox_id, SimContainer("c"))

            assert gets(server) == 1
