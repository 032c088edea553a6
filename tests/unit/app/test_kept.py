"""What a daemon keeps on disks that are full, slow or read-only: pods as last known, the hook's files, the record."""

import asyncio
import errno
from dataclasses import replace

import msgspec
import pytest

from nodeward.app.host.record import RecordWriter, size
from nodeward.app.node import assemble, last_known
from nodeward.app.node.hook_files import Keeper
from nodeward.app.node.last_known import keep, path_in, read
from nodeward.app.tools.replay import replay
from nodeward.doubles.kernel import SimKernel
from nodeward.engine.apply import apply
from nodeward.engine.state.pods import KnownSpec, Pods
from nodeward.engine.state.root import State
from nodeward.model import events as ev
from nodeward.model.events import ApiLost, Event
from nodeward.model.settings import LimitsSettings
from nodeward.model.workload import ContainerSpec, PodSpec, PodUid, Qos, Source
from nodeward.wire import pod_file, record
from tests.faults import FaultyFiles
from tests.lanes import InlineLane
from tests.rigs.daemon import FOLDER, folders
from tests.unit.engine.build import EPC, container_spec, node, pod_spec, started


class TurnedClock:
    """Each sleep runs what waits on the lane, and the last one ends the story."""

    def __init__(self, lane: InlineLane, turns: int) -> None:
        self._lane, self._turns = lane, turns

    def now_ns(self) -> int:
        return 0

    def wall_ns(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        self._turns -= 1
        if self._turns < 0:
            raise asyncio.CancelledError
        self._lane.drain()


def test_nothing_is_written_while_the_api_server_has_never_answered() -> None:
    kernel, lane = folders(), InlineLane()

    async def life() -> None:
        await keep(Pods, kernel, lane, FOLDER, TurnedClock(lane, 2))

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(life())
    with pytest.raises(FileNotFoundError):
        kernel.stat(path_in(FOLDER))


def test_a_damaged_file_is_ignored_and_said(caplog: pytest.LogCaptureFixture) -> None:
    kernel = folders()
    for data in (b"", b"{", b"[99, 1, []]", b"[2, 1, [{}]]", b"\xff" * 10):
        kernel.replace(last_known.path_in(FOLDER), data)
        caplog.clear()
        assert read(kernel, FOLDER).pods == ()
        assert "last-known=ignored" in caplog.text


def test_a_folder_that_cannot_be_made_is_said_and_no_end(caplog: pytest.LogCaptureFixture) -> None:
    assemble.ensure_folder(FaultyFiles(SimKernel({}), fail_at=2, fail_errno=errno.ENOSPC), "/data/nodeward")

    assert "folder=missing path=/data error=" in caplog.text


def test_what_pods_request_of_the_cpus_comes_back_and_an_older_release_has_not_said_it() -> None:
    kernel = folders()
    asking = replace(container_spec("app", 5), cpu_m=1500, cpu_limit_m=2000)
    spec = replace(pod_spec("u", asking), qos=Qos.BURSTABLE, pod_level=True, source=Source.DISK)
    data = last_known.encode((spec,), 1)
    kernel.replace(path_in(FOLDER), data)
    assert read(kernel, FOLDER).pods == (spec,)
    for new in (b',"cpu_m":1500', b',"cpu_limit_m":2000', b',"qos":"Burstable"', b',"pod_level":true'):
        assert new in data
        data = data.replace(new, b"")
    kernel.replace(path_in(FOLDER), data)
    (old,) = read(kernel, FOLDER).pods
    assert (old.qos, old.pod_level, old.containers[0].cpu_m, old.containers[0].declared) == (
        None,
        False,
        None,
        {EPC: 5},
    )


RUN_FOLDER = "/run/nodeward"
RULE = LimitsSettings()


def specs(*uids: str, amount: int = 1) -> dict[PodUid, KnownSpec]:
    containers = (ContainerSpec("app", declared={"sgx_epc": amount}),)
    return {PodUid(uid): KnownSpec(PodSpec(PodUid(uid), "ns", uid, containers), 1) for uid in uids}


def left(kernel: SimKernel) -> list[str]:
    return kernel.listdir(f"{RUN_FOLDER}/pods")


def test_a_pods_file_goes_with_the_pod_but_not_while_the_api_server_is_away() -> None:
    kernel = folders("/run")
    Keeper(kernel, RUN_FOLDER).bring(RULE, specs("a", "b"), complete=True)
    later = Keeper(kernel, RUN_FOLDER)
    later.bring(RULE, specs("b"), complete=False)
    assert left(kernel) == ["a.json", "b.json"], "left by an earlier daemon"
    later.bring(RULE, specs("b"), complete=True)

    assert left(kernel) == ["b.json"]


def test_a_static_pods_file_has_the_uid_that_the_runtime_uses() -> None:
    kernel = folders("/run")
    known = specs("mirror")[PodUid("mirror")]
    Keeper(kernel, RUN_FOLDER).bring(RULE, {PodUid("hash"): known}, complete=True)

    assert pod_file.decode_pod(kernel.read(f"{RUN_FOLDER}/pods/hash.json", 9999)).uid == "hash"


@pytest.mark.parametrize("uid", ["../../etc/x", "a/b", "", ".", "a\n", "x" * 200])
def test_a_uid_that_is_no_plain_name_gets_no_file(uid: str) -> None:
    kernel = folders("/run")
    Keeper(kernel, RUN_FOLDER).bring(RULE, specs(uid, "a"), complete=True)

    assert left(kernel) == ["a.json"]


def test_a_full_disk_is_made_up_for_by_the_next_one() -> None:
    kernel = folders("/run")
    for number in range(1, 5):
        with pytest.raises(OSError, match="No space left"):
            Keeper(FaultyFiles(kernel, number, errno.ENOSPC), RUN_FOLDER).bring(RULE, specs("a"), complete=True)
        Keeper(kernel, RUN_FOLDER).bring(RULE, specs("a"), complete=True)
        assert left(kernel) == ["a.json"]
        kernel.unlink(f"{RUN_FOLDER}/pods/a.json")


PATH = "/var/lib/nodeward/record"


class Life:
    """One daemon's life: events decided and recorded."""

    def __init__(self, files: SimKernel | FaultyFiles, max_bytes: int = 1 << 20) -> None:
        self.lane = InlineLane()
        self.writer = RecordWriter(files, self.lane, PATH, max_bytes, size(files, PATH))
        self._state, self._seq = State(), 0

    def decides(self, count: int) -> None:
        for _ in range(count):
            self._seq += 1
            event: Event = ApiLost("away", seq=self._seq, at_ns=self._seq)
            before = self._state
            self._state, decision = apply(before, event)
            self.writer(event, decision, before)
        self.writer.flush()
        self.lane.drain()


def lines(kernel: SimKernel) -> list[bytes]:
    return kernel.read(PATH, 1 << 24).splitlines(keepends=True)


def test_a_record_does_not_outgrow_its_bound_by_more_than_a_batch() -> None:
    kernel = folders()
    life = Life(kernel, max_bytes=65_536)
    for _ in range(400):
        life.decides(20)

    assert kernel.stat(PATH).size < 2 * 65_536
    assert replay(lines(kernel)).difference == ""


def test_a_full_nodes_head_is_encoded_bit_by_bit() -> None:
    told = node()
    for number in range(300):
        told(ev.PodSeen(pod_spec(f"{number}", container_spec("app", 4096))))
        told(started(f"{number}", "app"))
    at_once = msgspec.json.encode(["segment", record.FORMAT, "x", told.state]) + b"\n"
    pieces = list(record.segment_pieces("x", told.state))

    assert b"".join(pieces) == at_once
    assert max(map(len, pieces)) < len(at_once) / 5
