"""SetGate in the node daemon: on disk before it is answered, there again after a kill, and what is refused."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from nodeward.aio.clock import SystemClock
from nodeward.aio.hostfs import HostFiles
from nodeward.aio.lanes import ThreadLane
from nodeward.app.host.core import Core
from nodeward.app.node.assemble import ensure_folder
from nodeward.app.node.gate import MOST_VERDICTS, WIRING, Gates, SetGateError, path_in, read
from nodeward.app.node.pods import NoFacts
from nodeward.app.node.wiring import Node
from nodeward.doubles.kernel import SimKernel
from nodeward.engine.state.root import State
from nodeward.model.events import GateAsked, GateRecalled, PodGone
from nodeward.model.gate import Gated, GateSettings, Verdict
from nodeward.model.podapi_gate import SetGateRequest
from nodeward.model.settings import Mode, Settings
from nodeward.model.workload import PodUid
from tests.faults import FaultyFiles
from tests.goals import slots_of
from tests.lanes import InlineLane
from tests.patience import scaled

SETTINGS = Settings(gate=GateSettings(Mode.ENFORCE, {"kata": ("verdict",)}, uids=(0, 7)))
POD = Gated("u", "shop", "web", ("verdict",))
PASS = SetGateRequest("PASSED", namespace="shop", name="web")


def disk() -> SimKernel:
    kernel = SimKernel({})
    ensure_folder(kernel, SETTINGS.state_dir)
    return kernel


def life(files: HostFiles, tale: Callable[[Gates, Core], Awaitable[None]], *pods: Gated) -> None:
    """One life of the daemon's gates, with what the disk has; these pods have asked."""

    async def no_commit(_: str) -> str:
        return ""

    async def main() -> None:
        clock = SystemClock()
        core = Core(State(settings=SETTINGS.engine), clock, slots_of(InlineLane(), disk(), clock), NoFacts(), no_commit)
        core.tell(read(files, SETTINGS))
        for pod in pods or (POD,):
            core.tell(GateAsked(pod))
        lane = ThreadLane("disk", asyncio.get_running_loop(), lambda _: None)
        async with asyncio.timeout(scaled(20)):
            await tale(Gates(core, files, lane, SETTINGS, clock), core)
        lane.close(1.0)
        core.close()

    asyncio.run(main())


async def waits(gates: Gates, within_s: float = 0.0) -> str:
    return await gates.wait(_unread, POD, within_s)


async def _unread(_: str) -> str:
    return "nobody knows"


def test_a_verdict_opens_the_gate_for_who_waits_and_for_the_next_life() -> None:
    files = disk()

    async def first(gates: Gates, core: Core) -> None:
        assert "no verdict was set yet" in await waits(gates)
        waiting = asyncio.ensure_future(waits(gates, scaled(10)))
        await asyncio.sleep(0)
        answer = await gates.set_gate(replace(PASS, expires_s=600), by=7)
        assert (answer.uid, answer.expires_at - answer.set_at) == ("u", 600 * 1_000_000_000)
        assert read(files, SETTINGS).verdicts[PodUid("u")].by == 7
        assert await waiting == ""

    async def second(gates: Gates, _: Core) -> None:
        assert await waits(gates) == ""
        await gates.set_gate(SetGateRequest("DENIED", uid="u", reason="no"))

    async def third(gates: Gates, core: Core) -> None:
        assert "DENIED (no)" in await waits(gates, scaled(60)), "nobody waits for what is final"
        with pytest.raises(SetGateError, match="final") as caught:
            await gates.set_gate(PASS)
        assert caught.value.status == 409

    for one in (first, second, third):
        life(files, one)


def test_a_disk_that_fails_keeps_the_gate_shut() -> None:
    async def tale(gates: Gates, _: Core) -> None:
        with pytest.raises(SetGateError, match="cannot be written") as caught:
            await gates.set_gate(PASS)
        assert caught.value.status == 503
        assert "no verdict was set yet" in await waits(gates)

    life(FaultyFiles(disk(), fail_at=2, fail_errno=errno.ENOSPC), tale)


@pytest.mark.parametrize("data", [b"{", b'{"version":2,"verdicts":{}}', b"[" * 9999, b'{"version":1}'])
def test_a_file_that_cannot_be_read_leaves_pods_waiting_and_says_so(data: bytes) -> None:
    files = disk()
    files.replace(path_in(SETTINGS.state_dir), data)

    async def tale(gates: Gates, core: Core) -> None:
        assert "verdicts of before are lost" in await waits(gates)
        await gates.set_gate(PASS)
        assert await waits(gates) == ""

    life(files, tale)
    assert PodUid("u") in read(files, SETTINGS).verdicts


def test_an_ended_pods_verdict_leaves_the_file() -> None:
    files = disk()

    async def tale(gates: Gates, core: Core) -> None:
        await gates.set_gate(PASS)
        core.tell(PodGone(PodUid("u")))
        gates._clock = Soon()
        with pytest.raises(asyncio.CancelledError):
            await gates.keep()

    life(files, tale)
    assert read(files, SETTINGS) == GateRecalled()


class Written(SimKernel):
    """Says once that it could not write, and has."""

    said = False

    def replace(self, path: str, data: bytes) -> None:
        super().replace(path, data)
        if not self.said and path == path_in(SETTINGS.state_dir):
            self.said = True
            raise OSError(errno.EIO, "Input/output error")


def test_a_verdict_that_was_not_set_is_not_in_the_next_life_either() -> None:
    ensure_folder(files := Written({}), SETTINGS.state_dir)

    async def tale(gates: Gates, _: Core) -> None:
        with pytest.raises(SetGateError, match="cannot be written"):
            await gates.set_gate(PASS)
        gates._clock = Soon()
        with pytest.raises(asyncio.CancelledError):
            await gates.keep()

    life(files, tale)
    assert read(files, SETTINGS) == GateRecalled()


class Soon(SystemClock):
    """Sleeps once, for no time."""

    turns = 0

    async def sleep(self, seconds: float) -> None:
        self.turns += 1
        if self.turns > 1:
            raise asyncio.CancelledError


REFUSED = {
    "a word that is no verdict": (replace(PASS, verdict="passed"), 400, "PASSED or DENIED"),
    "nobody named": (SetGateRequest("PASSED"), 400, "by uid, or by namespace and name"),
    "half a name": (SetGateRequest("PASSED", uid="u", name="web"), 400, "give both"),
    "an unknown pod": (replace(PASS, name="other"), 404, "no such pod"),
    "a UID of another name": (replace(PASS, uid="u", name="other"), 404, "no such pod"),
    "a name that two have": (replace(PASS, name="twice"), 400, "name the pod by its uid"),
    "a long reason": (replace(PASS, reason="x" * 257), 400, "reason"),
    "escapes": (replace(PASS, reason="\x1b[2J", evidence_digest="\n"), 400, "evidence_digest: characters"),
    "a time in the past": (replace(PASS, expires_s=-1), 400, "expires_s"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_request_that_makes_no_sense_sets_nothing(case: str) -> None:
    request, status, said = REFUSED[case]
    files = disk()

    async def tale(gates: Gates, _: Core) -> None:
        with pytest.raises(SetGateError, match=said) as caught:
            await gates.set_gate(request)
        assert caught.value.status == status

    life(files, tale, POD, Gated("a", "shop", "twice", ("verdict",)), Gated("b", "shop", "twice", ("verdict",)))
    assert read(files, SETTINGS) == GateRecalled()


def test_a_user_who_is_not_named_sets_nothing() -> None:
    async def tale(gates: Gates, _: Core) -> None:
        with pytest.raises(SetGateError, match=r"gate\.uids") as caught:
            await gates.set_gate(PASS, by=1000)
        assert caught.value.status == 403

    life(disk(), tale)


def test_conditions_that_nothing_can_open_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    gate = replace(SETTINGS.gate, handlers={"kata": ("key", "verdict")})
    WIRING.components(cast(Node, SimpleNamespace(settings=replace(SETTINGS, gate=gate), gates=SimpleNamespace(keep=0))))
    assert [one.partition(" ")[0] for one in caplog.messages] == ["gate=no-verdicts", "gate=no-keys"]


def test_verdicts_are_bounded() -> None:
    async def tale(gates: Gates, core: Core) -> None:
        core.tell(GateRecalled({PodUid(f"{n}"): Verdict(True) for n in range(MOST_VERDICTS)}))
        core.tell(GateAsked(POD))
        with pytest.raises(SetGateError, match="which is the most"):
            await gates.set_gate(PASS)

    life(disk(), tale)
