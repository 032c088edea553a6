"""Our device plugin beside kubelet's device manager double, on real sockets: registration, questions, restarts; and of
several kinds, each for itself.

Beside others who want its name: test_rivals.py.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from nodeward.contracts import deviceplugin_pb2 as protocol
from nodeward.core.decision import Adjustment, Final, Goal
from nodeward.core.events import Allocating, Question, Starting
from nodeward.core.modes import Mode
from nodeward.core.refusal import Reason
from nodeward.features.all import ENGINE
from nodeward.features.keys.settings import KeyKind, KeysSettings, Publisher
from nodeward.features.keys.wiring import checkpoint_file, device_plugin
from nodeward.features.pods.wiring import NoFacts
from nodeward.features.root import State
from nodeward.features.settings import KubeSection, Settings
from nodeward.host.backoff import Backoff
from nodeward.host.clock import SystemClock
from nodeward.host.hostfs import OsFiles
from nodeward.host.lanes import ThreadLane
from nodeward.host.runner import Core
from nodeward.host.slots import ByEdge
from nodeward.host.supervise import forever
from nodeward.neighbours.kubelet import plugin
from nodeward.neighbours.kubelet.folder import Folder, FolderState
from nodeward.neighbours.sockets.grpc_unix import MAX_CALLS, Code, GrpcError
from nodeward_sim.doubles.kernel import SimKernel
from nodeward_sim.doubles.kubelet import AdmissionError, Asks
from tests.bad_grpc import send_bad_path
from tests.component.kubelet.node import TDX, WITHIN_S, YES, Node, ids, node, played, refused
from tests.component.kubernetes.support import until
from tests.goals import slots_of, target
from tests.lanes import InlineLane

APP = (Asks("app"),)


def allocation(*names: str) -> bytes:
    one = protocol.ContainerAllocateRequest(devices_ids=names)
    return protocol.AllocateRequest(container_requests=[one]).SerializeToString()


@played()
async def test_what_is_offered_is_what_the_node_has_and_each_change_is_a_whole_list(found: Node) -> None:
    life = found.live()
    await until(lambda: life.said.standing == "ended", "nothing to publish")
    assert found.sockets == []
    life.offer(ids(8, 5))
    await found.becomes((8, 5))
    life.offer(ids(8, 3))
    await found.becomes((8, 3))
    assert [told.standing.value for told in life.said.told] == ["ended", "serving"]
    assert [(count, healthy) for _, count, healthy in found.kubelet.lists] == [(8, 5), (8, 3)]


@played()
async def test_the_lowest_ids_are_given_first_and_the_pod_that_asks_is_asked_about(found: Node) -> None:
    life = await found.serves(12)
    await found.kubelet.admit("a", TDX, (Asks("app", 2),))
    await found.kubelet.admit("b", TDX, (Asks("setup", 1, init=True), Asks("app", 2)))
    assert found.kubelet.held("a", TDX) == ("tdx-key-0000", "tdx-key-0001")
    assert found.kubelet.held("b", TDX) == ("tdx-key-0002", "tdx-key-0003")
    assert await found.kubelet.start_container("b", "app") == ""
    assert life.said.asked == [
        Allocating(TDX, ("tdx-key-0000", "tdx-key-0001")),
        Allocating(TDX, ("tdx-key-0002",)),
        Allocating(TDX, ("tdx-key-0002", "tdx-key-0003")),
        Starting(TDX, ("tdx-key-0002", "tdx-key-0003")),
    ]


@played()
async def test_a_refusal_is_told_with_its_words(found: Node) -> None:
    life = await found.serves(2)
    life.said.answer = lambda _: refused("no tdx key is free: 2 of 2 are in use")
    with pytest.raises(AdmissionError, match="code = ResourceExhausted desc = no tdx key is free: 2 of 2 are in"):
        await found.kubelet.admit("a", TDX, APP)
    life.said.answer = lambda _: YES
    await found.kubelet.admit("b", TDX, APP)
    life.said.answer = lambda _: refused("the key is not free yet")
    assert "code = Unavailable desc = the key is not free yet" in await found.kubelet.start_container("b", "app")
    life.said.answer = lambda _: YES
    assert await found.kubelet.start_container("b", "app") == ""


async def never() -> Final:
    await asyncio.Event().wait()
    return YES


def fault(_: Question) -> Final:
    raise ValueError("a secret")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda _: never(), "was not decided within"),
        (fault, "met a fault"),
        (lambda _: Final(Adjustment(), Reason("no-opinion")), "is not offered now"),
    ],
    ids=["the answer does not come", "the question fails", "no feature has an opinion"],
)
@played()
async def test_what_nobody_has_said_yes_to_is_refused_in_time(
    found: Node, answer: Callable[[Question], Final | Awaitable[Final]], told: str
) -> None:
    life = await found.serves(2)
    life.said.answer = answer
    with pytest.raises(AdmissionError, match=told) as refusal:
        await found.kubelet.admit("a", TDX, APP)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (allocation("tdx-key-0007"), "'tdx-key-0007' was never offered"),
        (allocation("tdx-key-0001", "tdx-key-0001"), "'tdx-key-0001' is named twice"),
        (allocation(), "no id at all"),
        (allocation(*(f"tdx-key-{number:04d}" for number in range(10_000))), "10000 ids at once"),
        (allocation("x" * 1_000_000), "x... was never offered".replace("...", r"\.\.\.'")),
        (b"\xff\xff\xff", "no AllocateRequest"),
    ],
    ids=["never offered", "twice", "none", "ten thousand", "a giant name", "garbage"],
)
@played()
async def test_a_hostile_request_is_refused_and_nobody_is_asked(found: Node, request_: bytes, told: str) -> None:
    life = await found.serves(2)
    with pytest.raises(GrpcError, match=told) as refusal:
        await found.called("Allocate", request_)
    assert refusal.value.code is Code.INVALID_ARGUMENT
    assert len(refusal.value.text) < 200
    assert life.said.asked == []
    assert protocol.AllocateResponse.FromString(await found.called("Allocate", b"")) == protocol.AllocateResponse()


@played()
async def test_several_containers_of_one_request_are_one_question_with_an_answer_each(found: Node, home: Path) -> None:
    quotes = home / "qgs"
    quotes.mkdir()
    life = await found.serves(3, mount=str(quotes), nodes=("/dev/null",))
    one = [protocol.ContainerAllocateRequest(devices_ids=[f"tdx-key-000{number}"]) for number in (0, 2)]
    request = protocol.AllocateRequest(container_requests=one).SerializeToString()
    answer = protocol.AllocateResponse.FromString(await found.called("Allocate", request))
    mounts = [[(m.host_path, m.container_path, m.read_only) for m in c.mounts] for c in answer.container_responses]
    devices = [[(d.host_path, d.container_path, d.permissions) for d in c.devices] for c in answer.container_responses]
    assert mounts == [[(str(quotes), str(quotes), True)]] * 2
    assert devices == [[("/dev/null", "/dev/null", "rw")]] * 2
    assert life.said.asked == [Allocating(TDX, ("tdx-key-0000", "tdx-key-0002"))]


@played()
async def test_very_many_starts_that_wait_leave_room_for_an_allocate(found: Node) -> None:
    count = MAX_CALLS + 10
    life = await found.serves(count + 1)
    for number in range(count):
        await found.kubelet.admit(f"pod-{number}", TDX, APP)
    life.said.answer = lambda question: YES if isinstance(question, Allocating) else never()
    starts = [asyncio.ensure_future(found.kubelet.start_container(f"pod-{number}", "app")) for number in range(count)]
    await until(lambda: sum(one.done() for one in starts) == count - plugin.MOST_STARTS, "those that are too many")
    assert all("code = Unavailable desc = nodeward: 48 starts" in one.result() for one in starts if one.done())
    await found.kubelet.admit("new", TDX, APP)
    for one in starts:
        one.cancel()
    await asyncio.gather(*starts, return_exceptions=True)
    life.said.answer = lambda _: YES
    assert await found.kubelet.start_container("pod-0", "app") == "", "those that have gone take no room"


@played(begins=False)
async def test_kubelet_is_found_when_it_comes(found: Node) -> None:
    life = found.live(ids(2))
    await until(lambda: life.said.standing == "waiting", "it waits")
    await found.kubelet.start()
    await found.becomes((2, 2))


@pytest.mark.parametrize("sign", ["killed", "stopped", "its socket alone", "our socket alone", "the stream alone"])
@played()
async def test_a_kubelet_that_begins_anew_is_registered_with_by_the_next_looks(
    found: Node, sign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look sees that it has, the next that it answers; looks are LOOK_S apart, so that is within a second. One more
    may have begun before the sign."""
    looks = list[str]()
    really = Folder.look

    def look(folder: Folder, own: str, mount: str) -> FolderState:
        looks.append(own)
        return really(folder, own, mount)

    monkeypatch.setattr(Folder, "look", look)

    life = await found.serves(4)
    await found.kubelet.admit("a", TDX, APP)
    (first,) = found.sockets
    await give(found, sign, first)
    before = len(looks)
    await until(lambda: found.sockets not in ([first], []), "another socket")
    spent = len(looks) - before
    await until(lambda: found.kubelet.capacity(TDX) == (4, 4), "all ids again")
    assert spent <= 3
    assert 3 * plugin.LOOK_S < 1.0
    assert found.kubelet.held("a", TDX) == ("tdx-key-0000",)
    assert life.said.standing == "serving"
    restarted = sign in ("killed", "stopped", "its socket alone")
    await until(lambda: life.said.told[-1].restarts == int(restarted), "the restarts")


@played()
async def test_a_plugin_whose_server_a_bad_request_has_ended_offers_again_and_is_not_ready_meanwhile(
    found: Node, home: Path
) -> None:
    life = await found.serves(2)
    await until(lambda: life.said.standing == "serving", "kubelet reads our list")
    await asyncio.to_thread(send_bad_path, str(home / "device-plugins" / found.sockets[0]))
    await until(lambda: [ready for ready, _ in life.noted] == [True, False, True], f"{life.noted}")
    assert "ended by a request that it could not read (UnicodeDecodeError)" in life.noted[1][1]
    await found.becomes((2, 2))
    await found.kubelet.admit("a", TDX, APP)


async def give(found: Node, sign: str, endpoint: str) -> None:
    folder = tmp = found.home / "device-plugins"
    match sign:
        case "killed" | "stopped":
            await (found.kubelet.kill() if sign == "killed" else found.kubelet.stop())
            await found.kubelet.start()
        case "its socket alone":  # another inode in its place, and the stream goes on
            (folder / "kubelet.sock").rename(tmp / "moved.sock")
            (folder / "kubelet.sock").hardlink_to(tmp / "moved.sock")
            (tmp / "moved.sock").unlink()
        case "our socket alone":
            (folder / endpoint).unlink()
        case _:
            await found.kubelet.drop(TDX)


@played()
async def test_the_end_of_the_daemon_sends_no_empty_list_and_the_next_one_finds_the_node_as_it_was(found: Node) -> None:
    life = await found.serves(4)
    await life.end()
    await found.becomes((4, 0))
    assert found.sockets == []
    found.live(ids(4, 3))
    await found.becomes((4, 3))
    assert [count for _, count, _ in found.kubelet.lists] == [4, 4]


@pytest.mark.parametrize("hangs_at", ["kubelet's folder", "the folder of quotes"])
@played()
async def test_a_file_call_that_hangs_is_named_and_not_taken_for_a_silent_kubelet(
    found: Node, home: Path, hangs_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, quotes, really = threading.Event(), home / "qgs", os.stat
    quotes.mkdir()
    place = quotes if hangs_at == "the folder of quotes" else home / "device-plugins" / "kubelet.sock"

    def stat(path: str | Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if str(path) == str(place) and threading.current_thread() is not threading.main_thread():
            over.wait(3 * WITHIN_S)
        return really(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(os.path, "isdir", lambda path: bool(stat(path)))
    try:
        life = found.live(ids(4), mount=str(quotes), deadline_s=0.2)
        await until(lambda: bool(life.said.told), "how it stands")
        told = life.said.told[-1]
        assert (told.standing.value, f"a look at {place} hangs in the kernel" in told.why) == ("waiting", True)
    finally:
        over.set()
    await found.becomes((4, 4))


@played()
async def test_what_is_withdrawn_is_gone_at_once_and_stays_so(found: Node) -> None:
    life = await found.serves(4)
    assert await life.plugin.withdraw() == f"{TDX}: kubelet has none left"
    life.offer(ids(3))
    await found.becomes((0, 0))
    await until(lambda: life.said.standing == "ended", "its end")
    assert found.sockets == []


@played()
async def test_a_refusal_of_kubelets_is_told_with_its_words_and_keeps_no_other_kubelet_waiting(
    found: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "FIRST_PAUSE_S", 1000.0)
    monkeypatch.setattr(plugin, "LAST_PAUSE_S", 1000.0)
    life = found.live(ids(4))
    found.kubelet.refuses = "no plugins today"
    await until(lambda: life.said.standing == "refused", "the refusal")
    assert "no plugins today" in life.said.told[-1].why
    await found.kubelet.stop()
    found.kubelet.refuses = ""
    await found.kubelet.start()
    await found.becomes((4, 4))


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
        key: KeyKind((name,), publisher=Publisher.DEVICE_PLUGIN, publish=name, devices=devices)
        for key, name in (("tdx", TDX), ("sev_es", SEV))
    }
    settings = Settings(keys=KeysSettings(Mode.ENFORCE, keys, str(home)), kube=KubeSection(enabled=False))
    kernel, clock, failures, loop = SimKernel({}), SystemClock(), list[str](), asyncio.get_running_loop()
    core = Core(
        State(settings=settings.engine), ENGINE, clock, slots_of(InlineLane(), kernel, clock), NoFacts(), _no_commit
    )

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
    place = home / "sev"
    async with offering(home, ByEdge("offer"), str(place)) as (found, _):
        with pytest.raises(AdmissionError) as gone:
            await found.kubelet.admit("a", TDX, (Asks("compute"),))
        place.touch()
        with pytest.raises(AdmissionError) as file:
            await found.kubelet.admit("b", TDX, (Asks("compute"),))
    assert f"nodeward: {place}: No such file or directory; keys.kinds.tdx.devices gives it to each" in str(gone.value)
    assert f"nodeward: {place} is not a character device; " in str(file.value)
