"""What the Pod API's methods go by: verdicts on disk, reports, devices, and facts of several views."""

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest

from nodeward.contracts import podresources_pb2 as pb
from nodeward.core.devices import ContainerNuma, Judged
from nodeward.core.errors import AnswerError
from nodeward.core.events import GateAsked, GateRecalled, PodGone
from nodeward.core.gating import Gated, Verdict
from nodeward.core.modes import Mode
from nodeward.core.workload import PodUid, Sandbox, SandboxId
from nodeward.features.all import ENGINE
from nodeward.features.gate.rows import SetGateRequest
from nodeward.features.gate.settings import GateSettings
from nodeward.features.gate.wiring import FILE, MOST_VERDICTS, Gates, SetGateError, read
from nodeward.features.podapi.effects.answers import EARLY_NS, MOST_REPORTS, Reports
from nodeward.features.podapi.effects.devices import FRESH_S, PodDevices
from nodeward.features.podapi.rows import ReportSandboxRequest
from nodeward.features.podapi.settings import ColdPlugSection
from nodeward.features.pods.state import KnownSandbox, Pods
from nodeward.features.pods.wiring import NoFacts
from nodeward.features.root import State
from nodeward.features.settings import KubeSection, Settings
from nodeward.host import facts
from nodeward.host.clock import SystemClock
from nodeward.host.facts import either
from nodeward.host.hostfs import HostFiles, ensure_folder
from nodeward.host.lanes import ThreadLane
from nodeward.host.runner import Core
from nodeward_sim.doubles.kernel import SimKernel
from tests.faults import FaultyFiles
from tests.goals import slots_of
from tests.lanes import InlineLane
from tests.patience import scaled
from tests.rigs.daemon import folders
from tests.unit.features.build import ManualClock

SETTINGS = Settings(gate=GateSettings(Mode.ENFORCE, {"kata": ("verdict",)}, uids=(0, 7)))
POD = Gated("u", "shop", "web", ("verdict",))
PASS = SetGateRequest("PASSED", namespace="shop", name="web")


@asynccontextmanager
async def life(files: HostFiles, *pods: Gated) -> AsyncIterator[Gates]:
    """One life of the daemon's gates, with what the disk has; these pods have asked."""
    clock = SystemClock()
    slots = slots_of(InlineLane(), folders(), clock)
    core = Core(State(settings=SETTINGS.engine), ENGINE, clock, slots, NoFacts(), _unread)
    core.tell(read(files, SETTINGS))
    for pod in pods or (POD,):
        core.tell(GateAsked(pod))
    lane = ThreadLane("disk", asyncio.get_running_loop(), lambda _: None)
    yield Gates(core, files, lane, SETTINGS, clock)
    lane.close(1.0)
    core.close()


async def waits(gates: Gates, within_s: float = 0.0) -> str:
    return await gates._wait(_unread, POD, within_s)


async def _unread(_: str) -> str:
    return "nobody knows"


async def test_a_verdict_opens_the_gate_for_who_waits_and_for_the_next_life() -> None:
    files = folders()
    async with life(files) as gates:
        assert "no verdict was set yet" in await waits(gates)
        waiting = asyncio.ensure_future(waits(gates, scaled(10)))
        await asyncio.sleep(0)
        answer = await gates.set_gate(replace(PASS, expires_s=600), by=7)
        assert (answer.uid, answer.expires_at - answer.set_at) == ("u", 600 * 1_000_000_000)
        assert read(files, SETTINGS).verdicts[PodUid("u")].by == 7
        assert await waiting == ""

    async with life(files) as gates:
        assert await waits(gates) == ""
        await gates.set_gate(SetGateRequest("DENIED", uid="u", reason="no"))

    async with life(files) as gates:
        assert "DENIED (no)" in await waits(gates, scaled(60)), "nobody waits for what is final"
        with pytest.raises(SetGateError, match="final") as caught:
            await gates.set_gate(PASS)
        assert caught.value.status == 409


@pytest.mark.parametrize("data", [b"{", b'{"v":2,"holds":{}}', b'{"v":1}'])
async def test_a_file_that_cannot_be_read_leaves_pods_waiting_and_says_so(data: bytes) -> None:
    files = folders()
    files.replace(FILE.path_in(SETTINGS.state_dir), data)

    async with life(files) as gates:
        assert "verdicts of before are lost" in await waits(gates)
        await gates.set_gate(PASS)
        assert await waits(gates) == ""
    assert PodUid("u") in read(files, SETTINGS).verdicts


class Soon(SystemClock):
    """Sleeps once, for no time."""

    turns = 0

    async def sleep(self, seconds: float) -> None:
        self.turns += 1
        if self.turns > 1:
            raise asyncio.CancelledError


async def one_turn(gates: Gates) -> None:
    gates._clock = Soon()
    with pytest.raises(asyncio.CancelledError):
        await gates.keep()


class Written(SimKernel):
    """Its disk says that the first list of verdicts was not written, though it was."""

    def replace(self, path: str, data: bytes) -> None:
        super().replace(path, data)
        if path == FILE.path_in(SETTINGS.state_dir) and not self.said:
            self.said = True
            raise OSError(errno.EIO, "Input/output error")

    said = False


async def test_a_verdict_that_was_not_written_keeps_the_gate_shut_in_this_life_and_the_next() -> None:
    ensure_folder(written := Written({}), SETTINGS.state_dir)
    for files in (written, FaultyFiles(folders(), fail_at=2, fail_errno=errno.ENOSPC)):
        async with life(files) as gates:
            with pytest.raises(SetGateError, match="cannot be written") as caught:
                await gates.set_gate(PASS)
            assert caught.value.status == 503
            assert "no verdict was set yet" in await waits(gates)
            await one_turn(gates)
        assert read(files, SETTINGS) == GateRecalled()


async def test_an_ended_pods_verdict_leaves_the_file() -> None:
    files = folders()

    async with life(files) as gates:
        await gates.set_gate(PASS)
        gates._core.tell(PodGone(PodUid("u")))
        await one_turn(gates)
    assert read(files, SETTINGS) == GateRecalled()


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
async def test_a_request_that_makes_no_sense_sets_nothing(case: str) -> None:
    request, status, said = REFUSED[case]
    files = folders()

    twice = (Gated(uid, "shop", "twice", ("verdict",)) for uid in "ab")
    async with life(files, POD, *twice) as gates:
        with pytest.raises(SetGateError, match=said) as caught:
            await gates.set_gate(request)
        assert caught.value.status == status
    assert read(files, SETTINGS) == GateRecalled()


async def test_a_user_who_is_not_named_sets_nothing_and_verdicts_are_bounded() -> None:
    async with life(folders()) as gates:
        with pytest.raises(SetGateError, match=r"gate\.uids") as caught:
            await gates.set_gate(PASS, by=1000)
        assert caught.value.status == 403
        gates._core.tell(GateRecalled({PodUid(f"{n}"): Verdict(True) for n in range(MOST_VERDICTS)}))
        gates._core.tell(GateAsked(POD))
        with pytest.raises(SetGateError, match="which is the most"):
            await gates.set_gate(PASS)


class Reported:
    def __init__(self) -> None:
        self.state, self.clock = State(), ManualClock()
        self.reports = Reports(lambda: self.state, self.clock)

    def has(self, *ids: str) -> None:
        found = {SandboxId(one): KnownSandbox(Sandbox(SandboxId(one), PodUid("u"), "shop", "web"), 1) for one in ids}
        self.state = replace(self.state, pods=Pods(sandboxes=found))


def test_a_report_that_comes_before_its_sandbox_is_kept_for_a_minute() -> None:
    node = Reported()
    assert not node.reports.put(ReportSandboxRequest("early"))
    assert not node.reports.put(ReportSandboxRequest("never"))
    node.clock.ns += EARLY_NS
    node.has("early")
    assert node.reports.of("early")[0] is not None
    node.clock.ns += 1
    assert (node.reports.of("never")[0], node.reports.of("early")[0] is None) == (None, False)


def test_one_report_too_many_is_refused_and_one_that_replaces_is_not() -> None:
    node = Reported()
    for number in range(MOST_REPORTS):
        node.reports.put(ReportSandboxRequest(f"s{number}"))
    node.reports.put(ReportSandboxRequest("s0"))
    with pytest.raises(AnswerError, match="reports of 512 sandboxes"):
        node.reports.put(ReportSandboxRequest("more"))


class Listed(PodDevices):
    """Kubelet lists one pod without devices, whose name is now of the UID `uid`."""

    def __init__(self, uid: str | None = None) -> None:
        self._settings = replace(Settings(), kube=KubeSection(enabled=False), cold_plug=ColdPlugSection(True))
        self._listing, self._listed_ns, self.lists = None, 0, 0
        self._clock = self.clock = ManualClock()
        self._uid = PodUid(uid) if uid is not None else None
        self.refused = ""

    async def _list(self) -> tuple[dict[tuple[str, str], list[tuple[pb.PodResources, Judged]]], int]:
        self.lists += 1
        pod = pb.PodResources(namespace="shop", name="vm", cpu_ids=[2, 3])
        return {("shop", "vm"): [(pod, Judged(self._uid, refused=self.refused))]}, 7


def test_cpus_of_a_pod_that_has_taken_over_the_name_are_not_shown() -> None:
    async def numa(now: str | None) -> object:
        section = (await Listed(now).sections("u", "shop", "vm"))[1]
        return section.value.containers if section.value is not None else section.why

    for own in ("u", None):  # None: no API server has told
        assert asyncio.run(numa(own)) == (ContainerNuma("", (2, 3), ()),)
    assert asyncio.run(numa("u-new")) == "another pod has this name by now"


async def test_many_who_ask_for_devices_share_one_list_of_kubelets_as_long_as_it_is_fresh() -> None:
    devices = Listed()
    for asked, lists, later_s in ((30, 1, 0), (1, 1, FRESH_S + 1), (1, 2, 0)):
        await asyncio.gather(*(devices.sections("u", "shop", "vm") for _ in range(asked)))
        assert devices.lists == lists
        devices.clock.ns += int(later_s * 1e9)


def test_why_kubelets_word_on_devices_is_refused_is_shown() -> None:
    devices = Listed("u")
    devices.refused = "it is of pod UID another"
    section = asyncio.run(devices.sections("u", "shop", "vm"))[0]
    assert (section.value, section.why) == (None, "it is of pod UID another")


def test_a_cold_plug_socket_without_an_api_server_is_said(caplog: pytest.LogCaptureFixture) -> None:
    Listed().components(lambda name: pytest.fail(name), lambda *_: None)
    assert "cold_plug=no-api" in caplog.text


async def says(why: str, key: str) -> str:
    assert key == "tdx"
    return why


async def test_a_view_that_hangs_does_not_keep_what_another_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "SOON_S", 0.05)
    left, asked = list[str](), list[str]()

    async def hangs(key: str) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            left.append(key)
        return key

    async def last(key: str) -> str:
        asked.append(key)
        return ""

    assert await either((hangs, partial(says, "")), last, "tdx") == ""
    await asyncio.sleep(0)
    assert (left, asked) == (["tdx"], [])


async def test_where_none_knows_each_says_why() -> None:
    first, second, last = (partial(says, why) for why in ("torn", "no socket", "seldom"))
    assert await either((first, second), last, "tdx") == "torn; no socket; seldom"
