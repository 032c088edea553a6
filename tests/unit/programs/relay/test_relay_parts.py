"""Gates, chains of deciders, what becomes of calls while no daemon answers, new settings and note of a last policy,
without sockets; when a relay is missed."""

import asyncio
import errno
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from nodeward.contracts import cri_pb2 as cri
from nodeward.core.errors import WireError
from nodeward.core.gating import GateAt
from nodeward.core.modes import Mode, OnError
from nodeward.features.cpus.settings import CpusSettings, Driver
from nodeward.features.gate import wiring as gates
from nodeward.features.gate.settings import GateSettings
from nodeward.features.limits.settings import LimitsSettings
from nodeward.features.settings import AgentSection, DumpSection, RelaySection, Settings
from nodeward.host import sd_notify
from nodeward.host.backoff import Backoff
from nodeward.host.clock import SystemClock
from nodeward.host.hostfs import OsFiles, ensure_folder
from nodeward.neighbours.cri import dump_rules
from nodeward.neighbours.cri.calls import Call, Pass, Refuse, Replace, Verdict
from nodeward.neighbours.cri.chain import Chain
from nodeward.neighbours.cri.rows import DoorRow
from nodeward.neighbours.cri.sandbox_calls import Gatekeeper, Homes
from nodeward.people.relay_view import RelayView
from nodeward.programs.cri_resmgr import last_policy
from nodeward.programs.cri_resmgr.last_policy import PolicySwitchError
from nodeward.programs.dump.feed import Feed
from nodeward.programs.node.relay_reader import RelayReader
from nodeward.programs.relay.away import Rules
from nodeward.programs.relay.reload import RelayReload, merged
from nodeward.programs.relay.run import ImagesElsewhere
from nodeward.settings.source import SettingsSource
from nodeward_sim.doubles.kernel import SimKernel
from tests.faults import FaultyFiles
from tests.unit.features.build import ManualClock
from tests.unit.programs.relay.relayed import Relayed

CREATE = "/runtime.v1.RuntimeService/CreateContainer"
RUN = Call(1, 1, "/runtime.v1.RuntimeService/RunPodSandbox", 0, held=True)
ENFORCE = Settings(run_dir="/nowhere", gate=GateSettings(Mode.ENFORCE, {"kata": ("verdict",), "katta": ("key",)}))
OBSERVE = replace(ENFORCE, gate=replace(ENFORCE.gate, mode=Mode.OBSERVE))
CONFIG = "[plugins.{}.containerd.runtimes.kata]\nruntime_type = 'io.containerd.kata.v2'\n"


def asked(handler: str, uid: str = "u") -> bytes:
    made = cri.RunPodSandboxRequest(runtime_handler=handler)
    made.config.metadata.CopyFrom(cri.PodSandboxMetadata(name="web", namespace="shop", uid=uid))
    return made.SerializeToString()


def creating(source: str = "api", namespace: str = "shop") -> bytes:
    made = cri.CreateContainerRequest(pod_sandbox_id="s1")
    made.sandbox_config.metadata.CopyFrom(cri.PodSandboxMetadata(name="web", namespace=namespace, uid="u"))
    made.sandbox_config.annotations["kubernetes.io/config.source"] = source
    made.config.metadata.name = "app"
    return made.SerializeToString()


@pytest.mark.parametrize("plugin", ["'io.containerd.cri.v1.runtime'", "'io.containerd.grpc.v1.cri'", "cri"])
def test_a_handler_that_the_runtime_does_not_have_is_said(plugin: str, caplog: pytest.LogCaptureFixture) -> None:
    """In each version of containerd's file."""
    caplog.set_level(logging.WARNING)
    files = SimKernel({})
    ensure_folder(files, "/etc/containerd")
    files.replace("/etc/containerd/config.toml", CONFIG.format(plugin).encode())
    gates._say(files, ENFORCE.gate)
    assert [record.getMessage().partition(" why=")[0] for record in caplog.records] == [
        "gate=unknown-handler handler=katta"
    ]


def test_observe_lets_pass_what_enforce_refuses_from_the_next_settings_on() -> None:
    node = Relayed(OBSERVE)

    async def nobody(key: str) -> str:
        return "no API server"

    held = gates.Gates(node.core, node.kernel, node.lane, OBSERVE, node.clock)
    keeper = Gatekeeper(
        lambda: node.core.state.settings.gate.at,
        partial(held.holds, nobody),
        Homes(mock.Mock(side_effect=AssertionError)),
    )

    def decided(message: bytes) -> Verdict:
        async def wait() -> Verdict:
            found = keeper.decide(RUN, message, 1_000_000_000)
            return found if isinstance(found, Verdict) else await found

        return asyncio.run(wait())

    assert decided(asked("kata")) == Pass()
    node.settle(ENFORCE)
    assert isinstance(decided(asked("kata")), Refuse)
    assert "tells no UID" in str(decided(asked("kata", uid="")))
    assert decided(asked("runc")) == Pass()
    assert held.row().counts == {"would-refuse": 1, "refused": 2}


def test_a_call_without_a_verdict_passes_only_if_its_pod_is_known_to_have_no_gate() -> None:
    rules = Rules(lambda: ENFORCE)
    assert rules.undecided(RUN, asked("runc"), "the relay ends", ending=True) == Pass()
    for message in (asked("kata"), None, b"\x0a\xff"):
        refused = rules.undecided(RUN, message, "the relay ends", ending=True)
        assert isinstance(refused, Refuse)
        assert (refused.status, "the relay ends" in refused.text) == (14, True)
    assert Rules(lambda: OBSERVE).undecided(RUN, None, "too large", ending=False) == Pass()


STRICT = Settings(relay=RelaySection(limits=True), limits=LimitsSettings(on_error=OnError.REFUSE))
LOOSE = Settings(relay=RelaySection(limits=True))
BY_AGENT = Settings(
    cpus=CpusSettings(driver=Driver.RELAY, on_error=OnError.REFUSE), agent=AgentSection("/run/config.sock")
)
"""Which policy is in force only the daemon knows."""
UNREADABLE = b"\xff"
WHO = "shop/web, container app"


@pytest.mark.parametrize(
    ("settings", "message", "said"),
    [
        (STRICT, creating(), f"{WHO}: Nodeward could not decide this request (odd), and limits.on_error is refuse"),
        (STRICT, UNREADABLE, "CreateContainer: Nodeward could not decide"),
        (STRICT, None, "CreateContainer: Nodeward could not decide"),
        (STRICT, creating("file"), ""),
        (STRICT, creating("http"), ""),
        (STRICT, creating(namespace="nodeward-system"), ""),
        (LOOSE, creating(), ""),
        (LOOSE, None, ""),
        (replace(STRICT, limits=replace(STRICT.limits, mode=Mode.OBSERVE)), creating(), ""),
        (replace(STRICT, relay=RelaySection()), creating(), ""),
        (BY_AGENT, creating(), f"{WHO}: Nodeward could not decide this request (odd), and cpus.on_error is refuse"),
        (replace(BY_AGENT, agent=AgentSection()), creating(), ""),
    ],
)
def test_a_create_without_a_verdict_goes_by_on_error_but_of_static_pods_and_our_own(
    settings: Settings, message: bytes | None, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    verdict = Rules(lambda: settings).undecided(replace(RUN, path=CREATE), message, "odd", ending=False)
    assert verdict == Pass() if not said else isinstance(verdict, Refuse) and verdict.text.startswith(said)
    assert ("undecided=passes pod=web why='it is" in caplog.text) == (settings is STRICT and not said)


def test_a_relay_that_ends_refuses_for_now_whatever_on_error_says() -> None:
    verdict = Rules(lambda: LOOSE).undecided(replace(RUN, path=CREATE), creating(), "the relay ends", ending=True)
    assert isinstance(verdict, Refuse)
    assert verdict.status == 14
    assert verdict.text.startswith(f"{WHO}: Nodeward's relay ends")
    start = replace(RUN, path=CREATE.replace("Create", "Start"))
    assert Rules(lambda: STRICT).undecided(start, b"", "odd", ending=True) == Pass(), "its container exists"


def test_image_calls_are_answered_with_their_own_place_whatever_else_is_held() -> None:
    both = ImagesElsewhere("/run/images.sock", One(NO))
    call = Call(1, 1, "/runtime.v1.ImageService/PullImage", 0, held=True)
    verdict = both.undecided(call, None, "the request is larger than what can be held", ending=False)
    assert isinstance(verdict, Refuse)
    assert (verdict.status, "unix:///run/images.sock" in verdict.text) == (12, True)
    assert both.undecided(CALL, None, "odd", ending=False) == both.decide(CALL, b"", 0) == NO
    assert [both.holds(path) for path in (call.path, "/held", "/nothing")] == [True, True, False]


@pytest.mark.parametrize("told", ["", "other"])
def test_a_runtime_that_tells_of_no_such_sandbox_leaves_a_container_undecided(told: str) -> None:
    """Else its pod would have no handler, and so no gate."""

    async def status(path: str, request: bytes, within_s: float) -> bytes:
        return cri.PodSandboxStatusResponse(status=cri.PodSandboxStatus(id=told)).SerializeToString()

    async def wait() -> None:
        found = keeper.decide(replace(RUN, path=CREATE), creating(), 1_000_000_000)
        assert isinstance(found, Awaitable)
        await found

    keeper = Gatekeeper(lambda: GateAt.CONTAINER, lambda home, within_s: None, Homes(status))
    with pytest.raises(WireError, match="no such sandbox"):
        asyncio.run(wait())


CALL = Call(1, 1, "/held", 0, held=True)
NO = Refuse(9, "no")


@dataclass
class One:
    """A decider with this verdict, which it has later where it `waits`."""

    verdict: Verdict = field(default_factory=Pass)
    waits: bool = False
    path: str = "/held"
    heard: list[object] = field(default_factory=list)

    def holds(self, path: str) -> bool:
        return path == self.path

    def decide(self, call: Call, message: bytes, within_ns: int) -> Verdict | Awaitable[Verdict]:
        self.heard.append((message, within_ns))
        return self._later() if self.waits else self.verdict

    async def _later(self) -> Verdict:
        await asyncio.sleep(0)
        return self.verdict

    def undecided(self, call: Call, message: bytes | None, why: str, ending: bool) -> Verdict:
        self.heard.append(why)
        return self.verdict


def verdict(*deciders: One) -> Verdict:
    ticks = iter(range(100))
    found = Chain(deciders, lambda: next(ticks)).decide(CALL, b"came", 10)
    if not isinstance(found, Awaitable):
        assert not any(one.waits for one in deciders)
        return found

    async def later() -> Verdict:
        return await found

    return asyncio.run(later())


@pytest.mark.parametrize("waits", [False, True])
def test_a_replaced_request_is_handed_on_and_a_refusal_ends_it(waits: bool) -> None:
    other, last = One(NO, path="/other"), One(waits=waits)
    first, second = One(Replace(b"one"), waits), One(Replace(b"two"))
    assert verdict(other, first, second, last) == Replace(b"two")
    assert [one.heard for one in (other, first, second, last)] == [[], [(b"came", 9)], [(b"one", 8)], [(b"two", 7)]]
    assert verdict(One(waits=waits), One()) == Pass()
    after = One()
    assert verdict(One(Replace(b"one")), One(NO, waits), after) == NO
    assert after.heard == []


GONE, DEAD, HANGS = FileNotFoundError(2, "gone"), ConnectionRefusedError(111, "refused"), TimeoutError()


def answer(clients: int) -> RelayView:
    return RelayView("1", 7, 1, doors=(DoorRow("/run/nodeward/cri.sock", "/run/runtime.sock", True, clients),))


@pytest.mark.parametrize(
    ("heard", "wanted", "missing"),
    [
        pytest.param([GONE], False, False, id="there never was one"),
        pytest.param([GONE], True, True, id="the settings want one"),
        pytest.param([answer(1)], True, False, id="it answers"),
        pytest.param([answer(1), GONE, GONE], False, True, id="it ended under its clients, however long ago"),
        pytest.param([answer(1), answer(0), GONE], False, False, id="nobody used it any more"),
        pytest.param([DEAD], False, True, id="a dead one's socket, before we began"),
        pytest.param([answer(0), DEAD], False, True, id="killed while nobody used it"),
        pytest.param([answer(0), DEAD, GONE], False, False, id="its socket was taken away"),
        pytest.param([HANGS], False, True, id="it hangs"),
        pytest.param([answer(1), GONE, answer(0)], False, False, id="it is back"),
    ],
)
async def test_a_relay_is_missing_as_long_as_one_is_expected(
    monkeypatch: pytest.MonkeyPatch, heard: list[RelayView | Exception], wanted: bool, missing: bool
) -> None:
    left = iter(heard)

    async def ask(path: str, what: str, kind: object, within_s: float) -> RelayView:
        one = next(left)
        if isinstance(one, Exception):
            raise one
        return one

    monkeypatch.setattr("nodeward.neighbours.cri.relay_socket.ask", ask)
    reader = RelayReader("/run/nodeward", ManualClock(), wanted=wanted)
    for _ in heard:
        await reader.look()
    assert reader.missing is missing


class Followed(Feed):
    """The feed of a dump of everything, which notes when it is to follow other rules."""

    def __init__(self) -> None:
        self.followed = asyncio.Queue[None]()
        no_writer, backoff = mock.Mock(side_effect=OSError), Backoff(1.0, 1.0, lambda: 0.5)
        super().__init__(dump_rules.parse("full:.*"), no_writer, SystemClock(), backoff)

    def follow(self, rules: dump_rules.Rules) -> None:
        super().follow(rules)
        self.followed.put_nowait(None)


async def test_rules_of_a_dump_are_read_by_another_thread_than_the_relays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand expressions take tens of milliseconds, which no call waits for."""
    threads: list[int] = []
    parse: Callable[[str], dump_rules.Rules] = dump_rules.parse
    feed = Followed()

    def parsed(spec: str) -> dump_rules.Rules:
        threads.append(threading.get_ident())
        return parse(spec)

    monkeypatch.setattr(dump_rules, "parse", parsed)
    wanted = Settings(dump=DumpSection("/d", "off:.*"))
    source = SettingsSource(lambda: wanted, "a test")
    reload = asyncio.ensure_future(RelayReload(Settings(), source, feed).run(sd_notify.from_environment({}, 1)))
    source.asked.set()
    await asyncio.wait_for(feed.followed.get(), 30)
    reload.cancel()
    assert not feed.interest("/runtime.v1.RuntimeService/Version")
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


async def test_rules_that_an_agent_pushed_hold_whatever_the_file_says_at_a_sighup() -> None:
    feed = Followed()
    source = SettingsSource(lambda: Settings(dump=DumpSection("/d", "full:.*")), "a test")
    reload = RelayReload(Settings(), source, feed)
    reading = asyncio.ensure_future(reload.run(sd_notify.from_environment({}, 1)))
    reload.follow("off:.*")
    source.asked.set()
    for _ in range(2):
        await asyncio.wait_for(feed.followed.get(), 30)
    reading.cancel()
    assert not feed.interest("/runtime.v1.RuntimeService/Version")


def test_what_becomes_of_undecided_calls_changes_at_once_and_what_is_held_at_the_next_start() -> None:
    wanted = replace(STRICT, gate=GateSettings(Mode.ENFORCE), cpus=CpusSettings(Mode.OBSERVE, Driver.RELAY))
    live = merged(LOOSE, wanted, dump=False)
    assert (live.limits.on_error, live.cpus.mode, live.cpus.driver) == (OnError.REFUSE, Mode.OBSERVE, Driver.NRI)
    assert (live.gate.mode, live.relayed) == (Mode.OFF, LOOSE.relayed)


def test_another_policy_than_the_last_is_refused_until_that_one_is_forgotten(tmp_path: Path) -> None:
    files, folder = OsFiles(), f"{tmp_path}/state"
    last_policy.check(files, folder, "static")
    last_policy.note(files, folder, "static")

    last_policy.check(files, folder, "static")
    with pytest.raises(PolicySwitchError, match=r"^policy static-plus: the last one was static .*--reset-policy"):
        last_policy.check(files, folder, "static-plus")

    assert [last_policy.erase(files, folder), last_policy.erase(files, folder)] == ["static", ""]
    last_policy.check(files, folder, "static-plus")


def test_a_relay_that_never_had_a_policy_writes_nothing_and_one_that_had_notes_that_it_has_none(tmp_path: Path) -> None:
    files, folder = OsFiles(), f"{tmp_path}/state"
    last_policy.note(files, folder, "none")
    assert not Path(folder).exists()

    last_policy.note(files, folder, "static")
    last_policy.note(files, folder, "none")
    assert last_policy.read(files, folder) == "none"


def test_a_note_that_cannot_be_read_is_no_leave_to_switch(tmp_path: Path) -> None:
    Path(last_policy.path_in(str(tmp_path))).write_bytes(b"x" * (last_policy.MAX_BYTES + 1))
    with pytest.raises(PolicySwitchError, match="cannot be read"):
        last_policy.check(OsFiles(), str(tmp_path), "static")


def test_a_disk_that_is_full_stops_no_relay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kernel = SimKernel({})
    last_policy.note(FaultyFiles(kernel, fail_at=1, fail_errno=errno.ENOSPC), str(tmp_path), "static")
    assert "last-policy=not-noted" in caplog.text
