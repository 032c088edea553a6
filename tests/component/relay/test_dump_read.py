"""`nodeward dump` on what the real writer has written: whole calls, chosen, followed, and whatever the file holds.
And the dump of a real relay under load and on a disk that is full: what is lost is told."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count, islice
from pathlib import Path
from typing import BinaryIO

import grpc
import pytest

from nodeward.cli import dump as dump_command
from nodeward.contracts import cri_pb2 as cri
from nodeward.features.settings import SECRETS
from nodeward.neighbours.cri.calls import Call, Ended
from nodeward.neighbours.cri.rows import DumpRow
from nodeward.programs.dump import text
from nodeward.programs.dump.feed import Feed, Writer
from tests.component.relay import kubelet_mix, rig
from tests.component.relay import test_limits as limits
from tests.component.relay.dump_rig import drained, dump, dumped, message, run_pod
from tests.patience import patience, scaled
from tests.peers.ports import free_port


def test_what_passes_stands_in_the_file_and_is_read_back_by_pod(tmp_path: Path) -> None:
    path = tmp_path / "cri.dump"

    async def tale(to: Feed, _: list[Writer]) -> None:
        run_pod(to, 1, "web", "1111aaaa")
        run_pod(to, 2, "db", "bbbb2222")
        stop = Call(3, 1, "/runtime.v1.RuntimeService/StopPodSandbox", 1_000_000)
        to.request(stop, message(cri.StopPodSandboxRequest(pod_sandbox_id="1111aaaa").SerializeToString()))
        to.ended(stop, Ended(5, "no such sandbox", 2_000_000_000))
        await drained(to)

    dumped(path, tale)
    told = dump(path, "--pod", "default/web", "-o", "json")
    assert told.exit_code == 0, told.stderr
    calls = [json.loads(line) for line in told.stdout.splitlines()]
    assert [(one["method"], one["failed"], one["pod"]) for one in calls] == [
        ("RunPodSandbox", False, "default/web"),
        ("StopPodSandbox", True, "default/web"),
    ]
    assert calls[0]["request"]["config"]["metadata"]["uid"] == "u-web"
    assert [line.split()[3] for line in dump(path, "--failed").stdout.splitlines() if "ms" in line] == [
        "StopPodSandbox"
    ]
    assert "StopPodSandbox" in dump(path, "--slower-than", "1000").stdout
    assert dump(path).stdout.startswith(
        "# hidden here: credentials, environment, commands, annotations. Setting dump.show"
    )
    assert dump(path, "--pod", "nobody").exit_code == 1
    missing = dump(tmp_path / "none")
    assert (missing.exit_code, missing.stderr) == (
        2,
        f"nodeward: {tmp_path}/none: cannot be read: No such file or directory\n",
    )


def event(container: str, sandbox: str = "", pod: str = "", *names: tuple[str, str]) -> bytes:
    made = cri.ContainerEventResponse(container_id=container, container_event_type=cri.CONTAINER_STARTED_EVENT)
    if sandbox:
        metadata = cri.PodSandboxMetadata(name=pod, namespace="default", uid=f"u-{pod}")
        made.pod_sandbox_status.CopyFrom(cri.PodSandboxStatus(id=sandbox, metadata=metadata))
    for own_id, name in names:
        made.containers_statuses.add(id=own_id, metadata=cri.ContainerMetadata(name=name))
    return made.SerializeToString()


EVENTS = (
    event("dddd4444", "dddd4444", "old"),
    event("eeee5555", "dddd4444", "old", ("ffff6666", "side"), ("eeee5555", "app")),
    event("eeee5555"),
    event("1111aaaa"),
    event("abab0000"),
)
"""Of a sandbox from before the dump; of a container in it; of that when the sandbox is gone; of a sandbox that the dump
knows; of nobody that is known."""
NAMING: tuple[tuple[tuple[str, str], list[int]], ...] = (
    (("--pod", "default/old"), [0, 1, 2]),
    (("--pod", "old"), [0, 1, 2]),
    (("--pod", "u-old"), [0, 1, 2]),
    (("--pod", "dddd4444"), [0, 1, 2]),
    (("--pod", "default/web"), [3]),
    (("--container", "app"), [1, 2]),
    (("--container", "eeee"), [1, 2]),
    (("--container", "side"), []),
    (("--container", "dddd4444"), []),
    (("--container", "abab0000"), [4]),
)
"""Options, and which of EVENTS are shown."""


def test_events_are_found_by_the_pod_and_the_container_that_they_name(tmp_path: Path) -> None:
    path = tmp_path / "cri.dump"

    async def tale(to: Feed, _: list[Writer]) -> None:
        run_pod(to, 1, "web", "1111aaaa")
        stream = Call(2, 1, "/runtime.v1.RuntimeService/GetContainerEvents", 1_000_000)
        to.request(stream, message(b""))
        for one in EVENTS:
            to.response(stream, message(one))
        to.ended(stream, Ended(14, "the relay ends", 9_000_000))
        await drained(to)

    dumped(path, tale)
    of_events = ("--method", "GetContainerEvents", "-o", "json")
    whole = dump(path, *of_events).stdout.splitlines()
    assert len(whole) == len(EVENTS) + 1
    for options, found in NAMING:
        replies = [one["replies"] for one in map(json.loads, dump(path, *of_events, *options).stdout.splitlines())]
        assert replies == [json.loads(whole[place])["replies"] for place in found], options


WEB, APP, SIDE = "aaaa1111", "bbbb2222", "cccc3333"
"""Ids of a pod and its containers."""
CHOSEN: dict[str, tuple[tuple[str, ...], str]] = {
    "a container by its name": (("--container", "app"), "236"),
    "a container by how its id begins": (("--container", APP[:4]), "236"),
    "a method": (("--method", "Container$"), "234"),
    "slower": (("--slower-than", "1000"), "3"),
    "not slower but as slow": (("--slower-than", "1500"), ""),
    "a container and failed": (("--container", "side", "--failed"), "5"),
    "a pod and a method": (("--pod", "default/web", "--method", "^Start"), "3"),
}
"""Options, and the numbers of the calls that are shown."""


def pods_life() -> list[str]:
    made: list[str] = []
    of_pod = ["config:", "  metadata:", "    name: web", "    namespace: default", "    uid: u"]
    about = [f"pod_sandbox_id: {WEB}", "sandbox_config:", *(f"  {line}" for line in of_pod[1:])]
    of_app, of_side = (["config:", "  metadata:", f"    name: {name}", *about] for name in ("app", "side"))
    words = ["cmd:", *(f"- word{number}" for number in range(12)), f"container_id: {APP}"]
    story: tuple[tuple[str, list[str], list[str], float], ...] = (
        ("RunPodSandbox", of_pod, [f"pod_sandbox_id: {WEB}"], 20),
        ("CreateContainer", of_app, [f"container_id: {APP}"], 1.5),
        ("StartContainer", [f"container_id: {APP}"], ["{}"], 1500),
        ("CreateContainer", of_side, [f"container_id: {SIDE}"], 1),
        ("ContainerStatus", [f"container_id: {SIDE}"], [], 2),
        ("ExecSync", words, ["{}"], 2),
    )
    for number, (method, asked, answered, took_ms) in enumerate(story, 1):
        call, took_ns = text.Call(number, method, "passthrough"), int(took_ms * 1e6)
        end = text.reply(call, took_ns, answered) if answered else text.failed(call, took_ns, "NOT_FOUND: no")
        made.append(text.request(call, 1_763_762_571_123_456_789, asked) + end)
    return made


def test_calls_are_chosen_by_container_method_and_time_and_told_to_people_by_their_pod(tmp_path: Path) -> None:
    path = tmp_path / "cri.dump"
    path.write_text("".join(pods_life()))
    for what, (options, numbers) in CHOSEN.items():
        told = dump(path, *options, "-o", "json")
        assert "".join(json.loads(line)["number"] for line in told.stdout.splitlines()) == numbers, what
        assert (told.exit_code, told.stderr) == (0 if numbers else 1, ""), what
    told = dump(path, "--container", "app", "--method", "Container$")
    assert [line.split(maxsplit=2)[2] for line in told.stdout.splitlines() if line[0] != " "] == [
        "#2 CreateContainer default/web/app 1.500 ms",
        "#3 StartContainer default/web/app 1500.000 ms",
    ]
    assert told.stdout.endswith(f"\n  > container_id: {APP}\n  < {{}}\n")
    told = dump(path, "--method", "(")
    assert (told.exit_code, "'(' is no expression" in told.stderr) == (2, True)


def test_what_a_stranger_wrote_commands_no_terminal(tmp_path: Path) -> None:
    path, hostile = tmp_path / "cri.dump", "\x1b]0;yours\x07\x9b2J"
    remark = f"[2026-Nov-23 10:00:00.000] # {hostile}\n"
    path.write_text(pods_life()[0].replace("uid: u", f"uid: u{hostile}") + remark)
    for options, escaped in (((), 2), (("-o", "json"), 0)):
        told = dump(path, *options)
        assert (told.exit_code, told.stdout.count(r"\u001b]0;yours\u0007\u009b2J") >= escaped) == (0, True)
        assert not {"\x1b", "\x07", "\x9b"} & set(told.stdout)


def test_a_line_that_is_too_long_is_left_out_or_cut_where_it_is_a_calls_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cri.dump"
    line = "[               +0.001000] #{} Version <= (passthrough) REQUEST\n"
    long = line.format(2).replace("REQUEST", "REPLY version: " + "y" * (5 << 20))
    path.write_text(line.format(1) + "[x" + "y" * (5 << 20) + "\n" + long + line.format(3) + "[" * (3 << 20))
    told = dump(path, "-o", "json")
    first, cut, last = map(json.loads, told.stdout.splitlines())
    assert (first["number"], cut["number"], last["number"]) == ("1", "2", "3")
    kept, mark, rest = cut["replies"][0]["version"].partition(" *** cut, the line is longer than 1 MiB ***")
    assert (set(kept), len(kept) > 1_000_000, bool(mark), rest) == ({"y"}, True, True, "")
    assert told.stderr == f"nodeward: {path}: 2 line(s) are no dump's and were left out\n"


def test_who_follows_a_dump_is_told_what_is_written_also_in_the_file_after_it(tmp_path: Path) -> None:
    path = tmp_path / "cri.dump"
    line = "[               +0.001000] #{} Version <= (passthrough) REQUEST\n"
    path.write_text(line.format(1))
    with rig.following(path, "-o", "json") as reading:
        assert reading.stdout is not None
        assert json.loads(reading.stdout.readline())["number"] == "1"
        with path.open("a") as file:
            file.write(line.format(2)[:30])
            file.flush()
            file.write(line.format(2)[30:] + "[2026-Nov-22 05:00:00.000] # 4 messages are missing here: why\n")
        assert json.loads(reading.stdout.readline())["number"] == "2"
        assert json.loads(reading.stdout.readline())["missing"] == 4
        path.rename(tmp_path / "cri.dump.1")
        path.write_text(line.format(3))
        assert json.loads(reading.stdout.readline())["number"] == "3"
        reading.send_signal(signal.SIGINT)
        assert reading.wait(scaled(60)) == 0


def test_who_follows_is_told_too_what_came_between_his_last_look_and_a_rotation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, looked = tmp_path / "cri.dump", dump_command._was_rotated
    path.write_text("first\n")

    def just_then(file: BinaryIO, name: str) -> bool:
        if not (tmp_path / "cri.dump.1").exists():
            with path.open("a") as same:
                same.write("last\n")
            path.rename(tmp_path / "cri.dump.1")
            path.write_text("next\n")
        return looked(file, name)

    monkeypatch.setattr(dump_command, "_was_rotated", just_then)
    looks = [None] * 9
    lines = (line for line in dump_command._followed(str(path), lambda seconds: looks.pop()) if line)
    assert list(islice(lines, 3)) == [b"first\n", b"last\n", b"next\n"]


SECONDS = 5


def by_method(file: Path) -> tuple[Counter[str], Counter[str], int]:
    lines = file.read_text().splitlines()
    found = [re.fullmatch(r"\[.{24}?\] #\d+ (\w+) (=>|<=) \(passthrough\) (?:REQUEST|REPLY).*", line) for line in lines]
    asked, answered = (
        Counter(one[1] for one in found if one is not None and one[2] == arrow) for arrow in ("=>", "<=")
    )
    return asked, answered, sum(int(one) for one in re.findall(r"# (\d+) messages are missing here", "\n".join(lines)))


def told_of(file: Path) -> int:
    asked, answered, marked = by_method(file)
    return asked.total() + answered.total() + marked


def said_of_dump(listen: Path) -> DumpRow:
    row = rig.status(listen).dump
    assert row is not None
    return row


def lost(listen: Path) -> int:
    return said_of_dump(listen).lost


@contextmanager
def busy_processors() -> Iterator[None]:
    """Each is wanted all the time by a process of normal priority."""
    spin = [sys.executable, "-c", "while True: pass"]
    with ExitStack() as stack:
        for _ in os.sched_getaffinity(0):
            spinning = subprocess.Popen(spin)
            stack.callback(spinning.wait)
            stack.callback(spinning.kill)
        yield


@pytest.mark.nightly
def test_nothing_is_lost_at_kubelets_own_mix_on_a_busy_machine(tmp_path: Path) -> None:
    listen, runtime, file = tmp_path / "cri.sock", tmp_path / "runtime.sock", tmp_path / "dump"
    numbers, within_s, sent, answers = count(), rig.WAIT_S * patience(), Counter[str](), list[grpc.Future]()

    def behave(name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        if name == "ListContainers":
            return kubelet_mix.changed_list(next(numbers))
        return kubelet_mix.REPLIES.get(name, b"")

    with (
        rig.runtime_at(runtime, behave),
        rig.relay_process(listen, runtime, "--dump", "reset,full:.*", "--dump-file", str(file)),
        rig.client_of(listen) as channel,
        busy_processors(),
    ):
        calls = {name: channel.unary_unary(f"{rig.SERVICE}/{name}") for name in set(kubelet_mix.second())}
        began = time.monotonic()
        for place, name in enumerate(name for _ in range(SECONDS) for name in kubelet_mix.second()):
            time.sleep(max(0.0, began + place / kubelet_mix.CALLS - time.monotonic()))
            answers.append(calls[name].future(kubelet_mix.REQUESTS.get(name, b""), timeout=within_s))
            sent[name] += 1
        for answer in answers:
            answer.result(within_s)
        rig.wait_for(lambda: said_of_dump(listen).waiting_bytes == 0, "dump for which nothing waits", within_s)
        assert lost(listen) == 0

    assert by_method(file) == (sent, sent, 0)
    made = Counter(re.findall(r'created_at: "?(\d+)', file.read_text()))
    assert made == Counter({str(kubelet_mix.created_ns(nth)): kubelet_mix.CONTAINERS for nth in range(SECONDS)})


KIB = 1024
DISK = 'mount -t tmpfs -o size=512k tmpfs "$0" && exec "$@"'
FULL = "full:.*"


def ask(channel: grpc.Channel, size: int) -> None:
    asked = cri.VersionRequest(version="x" * size).SerializeToString()
    assert rig.call(channel, "Version", asked) == asked


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a disk of 512 KiB")
def test_on_a_disk_that_is_full_every_call_passes_and_what_is_lost_is_counted_and_marked_once_there_is_room(
    tmp_path: Path,
) -> None:
    listen, behind, disk, port = tmp_path / "cri.sock", tmp_path / "runtime.sock", tmp_path / "disk", free_port()
    disk.mkdir()
    limits.kernel(tmp_path)
    shown = f"dump.show=[{', '.join(SECRETS)}]"  # without a first line the file's last page has no room for a mark
    flags = ("--dump-file", str(disk / "dump"), "--dump", FULL, "--set", shown)
    within = ("unshare", "--mount", "sh", "-c", DISK, str(disk))
    with (
        rig.runtime_at(behind),
        rig.relay_process(listen, behind, *flags, within=within) as relay,
        rig.client_of(listen) as channel,
        rig.node_process(tmp_path, *rig.metered(port)),
    ):
        rig.wait_for(rig.status_socket(listen).is_socket, "relay.sock")
        place = Path(f"/proc/{relay.pid}/root{disk}")
        ballast, file = place / "ballast", place / "dump"
        ask(channel, 8 * KIB)
        rig.wait_for(lambda: file.exists() and "Version <=" in file.read_text(), "a dump")
        room = os.statvfs(place)
        ballast.write_bytes(bytes(room.f_bavail * room.f_frsize))  # no room for a message, nor for a mark

        for _ in range(20):
            ask(channel, 8 * KIB)
        rig.wait_for(lambda: lost(listen) > 0, "a loss")
        for _ in range(20):
            ask(channel, 8 * KIB)
        rig.wait_for(lambda: lost(listen) >= 40, "the loss of calls that came while the disk was full")
        ballast.unlink()
        ask(channel, 8 * KIB)
        rig.wait_for(lambda: told_of(file) == 2 * 42, "every message or its mark")
        marked = by_method(file)[2]
        told = rig.people(listen, "status").stdout
        rig.wait_for(lambda: rig.scraped(port).get("nodeward_relay_dump_lost_total") == marked, "the loss in /metrics")
        assert 40 <= lost(listen) == marked < 2 * 41
    assert f"{marked} lost" in told
    assert "No space left on device" in rig.log_of(listen)
    assert rig.log_of(listen).count("dump=not-written") == 1
