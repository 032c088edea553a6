"""Our DRA driver on real sockets: registration, Prepare and its wait, what is kept on disk, and what goes wrong there.

The core says what the test wants, and the API server is a table; the real parts are in tests/real/test_claims.py.
"""

import asyncio
import contextlib
import errno
import json
import tempfile
import time
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from nodeward.contracts import dra_pb2, drahealth_pb2, pluginregistration_pb2
from nodeward.core import events as ev
from nodeward.core.claims import Claim, ClaimUid, Promised
from nodeward.core.decision import Adjustment, Final
from nodeward.core.errors import NodewardError
from nodeward.core.refusal import Reason, Refusal, Refused
from nodeward.host.backoff import Backoff
from nodeward.host.clock import SystemClock
from nodeward.host.hostfs import HostFiles, OsFiles
from nodeward.host.lanes import ThreadLane
from nodeward.neighbours.dra import claims as dra_claims
from nodeward.neighbours.dra.book import Book
from nodeward.neighbours.dra.cdi import CdiFolder, Edits
from nodeward.neighbours.dra.claims import Claims
from nodeward.neighbours.dra.driver import Driver
from nodeward.neighbours.dra.mapping import Health
from nodeward.neighbours.sockets.grpc_unix import Code, GrpcClient, GrpcError
from tests.component.kubelet.node import called
from tests.component.kubernetes.support import until
from tests.faults import FaultyFiles
from tests.patience import scaled
from tests.rigs.stories import told_in
from tests.unit.features.keys.fronts import claim
from tests.unit.formats import checkpoints

DRIVER, POOL = "tee.nodeward.io", "n1"
PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"
V1, V1BETA1 = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin"
WITHIN_S = scaled(10.0)
FULL = Refusal("no key is free", Refused.NO_CAPACITY)


@dataclass
class Host:
    """One life of the driver. `refusals` are what the core says, one after the other, before it says yes."""

    folder: Path
    files: HostFiles = field(default_factory=OsFiles)
    api: dict[str, Claim] = field(default_factory=dict)
    promised: dict[ClaimUid, Promised] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    told: list[ev.Event] = field(default_factory=list)
    notes: list[tuple[bool, str]] = field(default_factory=list)
    edits: Edits = field(default_factory=lambda: Edits(("/dev/sev",)))
    away: str = ""
    run: str = "run"
    asked: int = 0

    def ask(self, question: ev.Question, within_ns: int) -> Final:
        assert isinstance(question, ev.Preparing)
        self.asked += 1
        if self.refusals:
            return Final(self.refusals.pop(0), Reason("refused"))
        one = question.claim
        self.promised[one.uid] = Promised(one.uid, one.namespace, one.name, {"tdx": 1}, one.pods)
        return Final(Adjustment(), Reason("claim-prepared"))

    def tell(self, event: ev.Event) -> int:
        self.told.append(event)
        if isinstance(event, ev.Unprepared):
            self.promised.pop(event.claim, None)
        if isinstance(event, ev.ClaimsRecalled):
            self.promised |= {one.uid: one for one in event.claims}
            self.promised |= {
                one.uid: Promised(one.uid, one.namespace, one.name, {"tdx": 1}, one.pods) for one in event.adopted
            }
        return len(self.told)

    async def read(self, namespace: str, name: str) -> Claim | None:
        if self.away:
            raise NodewardError(self.away)
        return self.api.get(f"{namespace}/{name}")

    @property
    def cdi(self) -> list[str]:
        folder = self.folder / "cdi"
        return sorted(one.name for one in folder.iterdir()) if folder.is_dir() else []

    def recalled(self) -> ev.ClaimsRecalled:
        return next(one for one in reversed(self.told) if isinstance(one, ev.ClaimsRecalled))

    async def call(self, method: str, request: bytes, service: str = V1) -> bytes:
        return await called(
            self.folder / "kubelet/plugins" / DRIVER / "dra.sock", f"/{service}/{method}", request, WITHIN_S
        )

    async def prepare(self, *uids: str, service: str = V1) -> Mapping[str, dra_pb2.NodePrepareResourceResponse]:
        for uid in uids:
            one = claim(uid)
            self.api.setdefault(one.title, one)
        answer = await self.call(PREPARE, request(*uids), service)
        return dra_pb2.NodePrepareResourcesResponse.FromString(answer).claims


def request(*uids: str) -> bytes:
    named = [dra_pb2.Claim(namespace="shop", name=f"claim-{uid}", uid=uid) for uid in uids]
    return dra_pb2.NodePrepareResourcesRequest(claims=named).SerializeToString()


@contextlib.asynccontextmanager
async def life(host: Host, health: Callable[[], tuple[Health, ...]] = tuple) -> AsyncIterator[Host]:
    """The driver for as long as the block, once what was before is known, or has a fault."""
    root, run = host.folder / "kubelet", host.folder / host.run
    (root / "plugins_registry").mkdir(parents=True, exist_ok=True)
    run.mkdir(exist_ok=True)
    host.promised.clear()
    host.told.clear()
    clock, lane = SystemClock(), ThreadLane("claims", asyncio.get_running_loop())

    async def told() -> None:
        pass

    book = Book(DRIVER, host.files, str(run), str(root), lane, lambda: host.promised)
    cdi = CdiFolder(host.files, str(host.folder / "cdi"), DRIVER)
    now, edits = (lambda: host.promised), (lambda _: {"tdx": host.edits})
    of = Claims(DRIVER, POOL, host.read, book, cdi, lane, now, edits, told, host.ask, host.tell, clock)
    backoff = Backoff(0.05, 0.1, lambda: 1.0)
    driver = Driver(
        *(DRIVER, str(root), of.prepare, of.unprepare, health, host.tell, lambda *said: host.notes.append(said)),
        *(clock, backoff),
    )
    tasks = [asyncio.create_task(driver.run()), asyncio.create_task(of.keep())]
    try:
        door = root / "plugins_registry" / f"{DRIVER}-reg.sock"
        await until(lambda: any(isinstance(one, ev.ClaimsRecalled) for one in host.told))
        await until(lambda: door.exists() or bool(host.notes))
        yield host
    finally:
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        lane.close(0.0)


@contextlib.asynccontextmanager
async def beginning() -> AsyncIterator[Host]:
    with tempfile.TemporaryDirectory(prefix="dra") as folder:  # a socket's path has to be short
        yield Host(Path(folder))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dra_claims, "AGAIN_S", 0.02)
    monkeypatch.setattr(dra_claims, "WAIT_S", 0.3)
    monkeypatch.setattr(dra_claims, "LOOK_S", 0.05)


@told_in(beginning)
async def test_kubelet_is_told_who_we_are_and_both_versions_are_served(host: Host) -> None:
    async with life(host):
        door = host.folder / f"kubelet/plugins_registry/{DRIVER}-reg.sock"
        said = await called(door, "/pluginregistration.Registration/GetInfo")
        info = pluginregistration_pb2.PluginInfo.FromString(said)
        assert (info.type, info.name) == ("DRAPlugin", DRIVER)
        assert info.endpoint == str(host.folder / f"kubelet/plugins/{DRIVER}/dra.sock")
        health = ["v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"]
        assert list(info.supported_versions) == ["v1.DRAPlugin", "v1beta1.DRAPlugin", *health]
        for taken, why in ((False, "endpoint is taken"), (True, "")):
            status = pluginregistration_pb2.RegistrationStatus(plugin_registered=taken, error=why)
            notify = "/pluginregistration.Registration/NotifyRegistrationStatus"
            await called(door, notify, status.SerializeToString())
        assert [one for one in host.told if isinstance(one, ev.DriverTold)] == [
            ev.DriverTold(DRIVER, False, "endpoint is taken"),
            ev.DriverTold(DRIVER, True, ""),
        ]
        for service in (V1, V1BETA1):
            found = await host.prepare("a", service=service)
            (device,) = found["a"].devices
            assert (list(device.request_names), device.pool_name, device.device_name) == (["key"], POOL, "tdx")
            assert (list(device.cdi_device_ids), device.share_id) == ([f"{DRIVER}/claim=a-tdx"], "share-a")
    assert not list((host.folder / "kubelet").rglob("*.sock"))


@told_in(beginning)
async def test_kubelet_is_told_in_time_while_the_daemon_is_busy(host: Host) -> None:
    """Kubelet waits one second (pluginmanager, plugin_watcher) and asks ever more seldom after that."""

    def asked() -> pluginregistration_pb2.PluginInfo:
        with grpc.insecure_channel(f"unix:{host.folder}/kubelet/plugins_registry/{DRIVER}-reg.sock") as channel:
            of = channel.unary_unary("/pluginregistration.Registration/GetInfo")
            return pluginregistration_pb2.PluginInfo.FromString(of(b"", timeout=scaled(1.0)))

    async with life(host):
        answer = asyncio.create_task(asyncio.to_thread(asked))
        while not answer.done():
            time.sleep(0.02)  # as a large decision does
            await asyncio.sleep(0)
        assert answer.result().name == DRIVER


@told_in(beginning)
async def test_a_claim_is_on_disk_before_the_answer_and_known_to_the_next_life(host: Host) -> None:
    async with life(host):
        await host.prepare("a", "b")
        (spec,) = [json.loads((host.folder / "cdi" / f"{DRIVER}-a.json").read_text())["devices"]]
        assert spec == [
            {"name": "a-tdx", "containerEdits": {"deviceNodes": [{"path": "/dev/sev", "permissions": "rw"}]}}
        ]
        await host.call(UNPREPARE, request("b", "never-heard-of"))
        assert host.cdi == [f"{DRIVER}-a.json"]
    async with life(host):
        assert [one.title for one in host.recalled().claims] == ["shop/claim-a"]
        (host.folder / "cdi" / f"{DRIVER}-a.json").unlink()
        await until(lambda: host.cdi == [f"{DRIVER}-a.json"])


@told_in(beginning)
async def test_a_claim_for_which_nothing_is_free_waits_within_the_call(host: Host) -> None:
    async with life(host):
        host.refusals = [FULL, FULL]
        assert (await host.prepare("a"))["a"].error == ""
        assert host.asked == 3


A = claim("a")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"api": {A.title: replace(claim("other"), name=A.name)}}, "is another one of that name by now"),
        (
            {"api": {A.title: replace(A, allocated=(replace(A.allocated[0], pool="n2"),))}},
            "it has a device of the pool 'n2', and this is 'n1'",
        ),
        ({"api": {A.title: replace(A, allocated=())}}, "it has no device of tee.nodeward.io"),
        ({"away": "the API server does not answer"}, "the API server does not answer"),
        ({"refusals": [Refusal("it is no claim of ours", Refused.BAD_VALUE)]}, "it is no claim of ours"),
    ],
    ids=["another of its name", "another pool's", "without a device", "unread", "refused for good"],
)
@told_in(beginning)
async def test_a_claim_that_cannot_be_prepared_is_told_why(host: Host, changed: dict[str, Any], why: str) -> None:
    async with life(host):
        for name, value in changed.items():
            setattr(host, name, value.copy() if isinstance(value, dict | list) else value)
        found = await host.prepare("a", "b") if not host.away else await host.prepare("a")
        assert why in found["a"].error
        assert host.away or found["b"].error == ""
        assert ClaimUid("a") not in host.promised


@told_in(beginning)
async def test_a_promise_that_cannot_be_put_on_record_is_given_back(host: Host) -> None:
    async with life(host):
        (host.folder / "run").rename(host.folder / "gone")
        assert "cannot be written" in (await host.prepare("a"))["a"].error
        assert ev.Unprepared(DRIVER, ClaimUid("a")) in host.told
        (host.folder / "gone").rename(host.folder / "run")
        assert (await host.prepare("a"))["a"].error == ""


@told_in(beginning)
async def test_a_cdi_folder_that_cannot_be_written_is_told_and_the_promise_stays(host: Host) -> None:
    (host.folder / "cdi").write_text("a file")
    async with life(host):
        assert "cannot write what the containers of shop/claim-a get" in (await host.prepare("a"))["a"].error
        assert ClaimUid("a") in host.promised
        (host.folder / "cdi").unlink()
        assert (await host.prepare("a"))["a"].error == ""
        host.edits = Edits()
        (device,) = (await host.prepare("b"))["b"].devices
        assert not device.cdi_device_ids  # a CDI device without edits is refused by runtimes


@pytest.mark.parametrize(
    "torn",
    ['{"v":1,"holds', '{"v":2,"holds":["b",[]]}', "[]", '{"v":1,"holds":["another-boot",[]]}'],
    ids=["torn", "newer", "another file", "another boot"],
)
@told_in(beginning)
async def test_what_the_file_does_not_say_is_known_by_kubelet_and_the_api_server(host: Host, torn: str) -> None:
    async with life(host):
        await host.prepare("a")
    next((host.folder / "run").glob("claims-*")).write_text(torn)
    kubelets = host.folder / "kubelet/dra_manager_state"
    kubelets.write_bytes(checkpoints.claims({"shop/claim-a": ["a"], "shop/other": ["b"]}, DRIVER))
    host.away = "the API server is away"
    async with life(host):
        assert "shop/claim-a" in host.recalled().fault
        host.away = ""
        await until(lambda: not host.recalled().fault)
        assert [one.title for one in host.recalled().adopted] == ["shop/claim-a"]


@told_in(beginning)
async def test_a_claim_that_kubelet_still_prepares_is_none_that_it_has_prepared(host: Host) -> None:
    host.api["shop/claim-a"] = claim("a")
    async with life(host):
        pass
    data = checkpoints.claims({"shop/claim-a": ["a"]}, DRIVER).replace(
        b'[{\\"PoolName\\": \\"p\\", \\"DeviceName\\": \\"d\\"}]', b"null"
    )
    inner = json.loads(data)["Data"]
    whole = json.dumps({"Data": inner, "Checksum": zlib.crc32(inner.encode())})
    (host.folder / "kubelet/dra_manager_state").write_text(whole)
    async with life(host):
        assert '"Devices": null' in inner
        assert host.recalled() == ev.ClaimsRecalled(DRIVER)


@told_in(beginning)
async def test_a_claim_that_nobody_has_any_more_is_not_recalled(host: Host) -> None:
    async with life(host):
        await host.prepare("a", "b")
    (host.folder / "kubelet/dra_manager_state").write_bytes(checkpoints.claims({"shop/claim-b": ["b"]}, DRIVER))
    async with life(host):
        assert [one.title for one in host.recalled().claims] == ["shop/claim-a", "shop/claim-b"]
    host.api.pop("shop/claim-a")
    async with life(host):
        assert [one.title for one in host.recalled().claims] == ["shop/claim-b"]


@told_in(beginning)
async def test_nothing_is_known_where_neither_file_can_be_read(host: Host) -> None:
    async with life(host):
        await host.prepare("a")
    next((host.folder / "run").glob("claims-*")).write_text("{")
    kubelets = host.folder / "kubelet/dra_manager_state"
    kubelets.write_text("{")
    async with life(host):
        assert "cannot be understood" in host.recalled().fault
        assert "dra_manager_state" in host.recalled().fault
        kubelets.unlink()
        await until(lambda: "is not to be seen" in host.recalled().fault)
        kubelets.write_bytes(checkpoints.claims({"shop/claim-a": ["a"]}, DRIVER))
        await until(lambda: not host.recalled().fault)


@told_in(beginning)
async def test_every_write_of_a_prepare_may_fail_and_nothing_is_answered_that_is_not_on_disk(host: Host) -> None:
    async with life(host):
        pass
    for number in range(1, 40):
        host.files = FaultyFiles(OsFiles(), fail_at=number, fail_errno=errno.ENOSPC)
        async with life(host):
            if host.recalled().fault:
                continue
            answer = (await host.prepare("a"))["a"]
        host.files = OsFiles()
        async with life(host):
            known = [one.title for one in host.recalled().claims]
            assert answer.error or known == ["shop/claim-a"], number
            await host.call(UNPREPARE, request("a"))


@told_in(beginning)
async def test_health_goes_out_at_once_when_it_changes(host: Host) -> None:
    shown = [(Health(POOL, "tdx", True),)]
    async with life(host, lambda: shown[-1]):
        client = GrpcClient(str(host.folder / "kubelet/plugins" / DRIVER / "dra.sock"))
        stream = client.stream("/v1.DRAResourceHealth/NodeWatchResources", b"")
        first = drahealth_pb2.NodeWatchResourcesResponse.FromString(await anext(stream)).devices[0]
        shown.append((Health(POOL, "tdx", False, "no quotes"),))
        second = drahealth_pb2.NodeWatchResourcesResponse.FromString(await anext(stream)).devices[0]
        assert (first.health, second.health, second.message) == (1, 2, "no quotes")
        await stream.aclose()
        await client.close()


@told_in(beginning)
async def test_a_socket_that_is_gone_is_made_again_and_a_living_rivals_is_left(host: Host) -> None:
    door = host.folder / f"kubelet/plugins_registry/{DRIVER}-reg.sock"
    async with life(host):
        before = door.stat().st_ctime_ns
        door.unlink()
        await until(lambda: door.exists() and door.stat().st_ctime_ns != before)
        other = Host(host.folder, run="another")
        async with life(other):
            await until(lambda: any("somebody else serves the driver" in why for _, why in other.notes))
            assert (await host.prepare("a"))["a"].error == ""


@pytest.mark.parametrize(
    "bad",
    [
        b"\xff",
        request(*map(str, range(300))),
        dra_pb2.NodePrepareResourcesRequest(
            claims=[dra_pb2.Claim(namespace="..", name="../../secrets", uid="u")]
        ).SerializeToString(),
    ],
    ids=["no message", "too many claims", "a path"],
)
@told_in(beginning)
async def test_a_request_that_is_none_is_told_so(host: Host, bad: bytes) -> None:
    async with life(host):
        for method in (PREPARE, UNPREPARE):
            with pytest.raises(GrpcError) as refused:
                await host.call(method, bad)
            assert refused.value.code is Code.INVALID_ARGUMENT
        assert host.asked == 0
