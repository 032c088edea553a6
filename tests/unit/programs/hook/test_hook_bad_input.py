"""The OCI hook with a state, bundle, files, options or daemon that make no sense, and how long it listens to one."""

import dataclasses
import errno
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from nodeward.core.modes import OnError
from nodeward.core.workload import PodUid
from nodeward.features.limits.settings import LimitsSettings
from nodeward.neighbours.hook import line as hook_line
from nodeward.neighbours.hook import oci
from nodeward.programs.hook.run import Options, Outcome, ask_socket, parse, run
from tests.faults import FaultyFiles
from tests.unit.programs.hook.rig import CGROUP, CRI, FOLDER, ID, POD, SPEC, UID, HookRig, no_daemon

MEND = "See who else changes the bundle"


@pytest.mark.parametrize(
    ("stdin", "says"),
    [
        (b"", "nothing on stdin"),
        (b"{", "is no JSON"),
        (b"[" * 100_000, "is no JSON (RecursionError"),
        (b'{"id":"\xff"}', "OCI state: is no UTF-8 text: byte 0xff at position 7. "),
        (b"[]", "no JSON object but list"),
        (b"{" + b" " * oci.MAX_STATE, "more than 1048576 bytes"),
        (b'{"bundle":"/b","pid":1}', "id is missing"),
        (b'{"a":[0' + b",0" * (oci.MOST_COMMAS + 1) + b"]}", "more than 262144 commas, thus values"),
        (b'{"id":"a","pid":1}', "bundle is missing"),
        (b'{"id":"a","bundle":"b","pid":1}', "bundle 'b' is not a plain absolute path"),
        (b'{"id":"a","bundle":"/b/../c","pid":1}', "is not a plain absolute path"),
        (b'{"id":"a","bundle":"/b\\u0000c","pid":1}', "bundle '/b\\x00c' is not a plain absolute path"),
        (b'{"id":"a","bundle":"/b","pid":true}', "pid 'True' is no process id"),
        (b'{"id":"a","bundle":"/b","pid":-1}', "is no process id"),
        (b'{"id":"a","bundle":"/nowhere","pid":1}', "no config.json that can be read: No such file"),
    ],
    ids=lambda value: str(value[:30]),
)
def test_a_bad_state_is_refused_with_a_clear_error(stdin: bytes, says: str) -> None:
    outcome = HookRig().run(stdin=stdin)
    assert (outcome.code, says in outcome.said, "docs/relay.md" in outcome.said) == (1, True, True), outcome.said


def nobody_is_limited(rig: HookRig, *says: str) -> None:
    """Neither the container nor a cgroup above it; each of these is said."""
    outcome = rig.run()
    limits = {rig.limit(path) for path in ("/kubepods", "/kubepods/burstable", POD, CGROUP)}
    assert (outcome.code, limits, rig.asked) == (1, {"max"}, [])
    assert [words for words in says if words not in outcome.said] == []


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/kubepods/../../etc", "not a plain absolute path"),
        ("../../x:a:b", "not a plain absolute path"),
        ("a--b.slice:p:c", "no slice name"),
        ("/kubepods/podother/x", "one of them lies"),
        ("/kubepods\n/x", "not a plain absolute path"),
        ("/" + "x" * 5000, "more than 4096"),
        (POD, "one of them lies"),
        ("kubepods.slice:cri-containerd:" + ID, "one of them lies"),
    ],
)
def test_a_bundle_whose_cgroup_escapes_or_is_another_gets_nothing(path: str, says: str) -> None:
    nobody_is_limited(HookRig(left=[SPEC], named=path), says, MEND)


@pytest.mark.parametrize("shared", ["/kubepods", "/kubepods/burstable", POD])
@pytest.mark.parametrize("named", [True, False], ids=["named", "not named"])
def test_a_process_in_a_cgroup_that_is_there_for_others_too_limits_nobody(shared: str, named: bool) -> None:
    remedy = "linux.cgroupsPath in the bundle is to end with the container's id"
    rig = HookRig(left=[SPEC], named=shared if named else "", process=shared)
    nobody_is_limited(rig, f"cgroup {shared} is there for other containers too", remedy)


@pytest.mark.parametrize("named", [CGROUP, ""], ids=["named", "not named"])
@pytest.mark.parametrize("below", ["", "/container"], ids=["there", "one below"])
def test_a_bundle_of_another_pods_container_limits_nobody(named: str, below: str) -> None:
    other = "aaaaaaaa-1111-2222-3333-444455556666"
    left = [SPEC, dataclasses.replace(SPEC, uid=PodUid(other))]
    nobody_is_limited(
        HookRig(left=left, notes={f"{CRI}sandbox-uid": other}, named=named, process=f"{CGROUP}{below}"),
        f"the bundle says that pod {other} is its own, but cgroup {CGROUP}",
        f"is in pod {UID}: one of them lies, and neither gets a limit. {MEND}",
    )


@pytest.mark.parametrize("named", ["", "/"])
@pytest.mark.parametrize("path", ["/", "/../../init.scope", "/a/../b"])
def test_a_process_without_a_cgroup_of_its_own_gets_nothing(path: str, named: str) -> None:
    rig = HookRig(left=[SPEC], named=named, process=path)
    nobody_is_limited(rig)
    remedies = {"Have the runtime make one", "Run the hook in the host's cgroup namespace", MEND}
    assert any(remedy in rig.run().said for remedy in remedies)


@pytest.mark.parametrize(
    ("content", "says", "remedy"),
    [
        pytest.param(b"", "is no JSON", MEND, id="empty"),
        pytest.param(b'{"ociVersion":"1","linux":{"cgroupsPath":7}}', "cgroupsPath is no text", MEND, id="a number"),
        pytest.param(b'{"ociVersion":"1","linux":[]}', "cgroupsPath is no text", MEND, id="list as linux"),
        pytest.param(b'{"ociVersion":"1","annotations":{"a":1}}', "annotations is no table of texts", MEND, id="notes"),
        pytest.param(b'{"some":"file"}', "no ociVersion", MEND, id="another file"),
        pytest.param(b" " * (oci.MAX_CONFIG + 1), "File too large", "docs/relay.md", id="huge"),
    ],
)
def test_a_bad_bundle_is_refused_with_a_clear_error(content: bytes, says: str, remedy: str) -> None:
    nobody_is_limited(HookRig(bundle=content), says, remedy)


@pytest.mark.parametrize(
    ("value", "length"),
    [("x" * 1025, 1025), ("app\nother", 9), ("app\0other", 9)],
    ids=["over-long", "two lines", "NUL"],
)
def test_a_container_whose_name_is_none_is_neither_asked_about_nor_limited(value: str, length: int) -> None:
    says = f"annotation {CRI}container-name has {length} characters or more than one line. {MEND}"
    nobody_is_limited(HookRig(left=[SPEC], notes={f"{CRI}container-name": value}), says)


@pytest.mark.parametrize(("on_error", "code"), [("pass", 0), ("refuse", 1)])
def test_a_fault_of_our_own_means_what_on_error_says_and_is_one_line(on_error: str, code: int) -> None:
    """An error that no code here expects, in the midst of asking."""
    broken = mock.Mock(side_effect=ZeroDivisionError("by zero"))
    rig = HookRig(left=[SPEC])
    outcome = run(rig.state(), rig.kernel, Options(on_error), broken)
    assert (outcome.code, outcome.said.count("\n"), rig.limit()) == (code, 0, "max")
    assert outcome.said.startswith(
        "nodeward: default/web, container app: fault in the hook: ZeroDivisionError: by zero"
    )


def test_a_state_without_or_with_a_dead_process_says_which_stage_is_meant() -> None:
    rig = HookRig()
    assert "createRuntime" in rig.run(stdin=rig.state(pid=0)).said
    gone = rig.run(stdin=rig.state(pid=77)).said
    assert "process 77 is not there" in gone
    assert "the hook is to be run in the PID namespace of the runtime" in gone


GARBAGE = [
    b"",
    b"garbage\n",
    b'{"v":2,"limits":{},"refusal":"","on_error":"pass","why":""}\n',
    b'{"v":1,"limits":{"sgx_epc":-1},"refusal":"","on_error":"pass","why":""}\n',
    b'{"v":1,"limits":{},"refusal":"","on_error":"maybe","why":""}\n',
]


@pytest.mark.parametrize("answer", [*GARBAGE, TimeoutError(110, "late"), ConnectionRefusedError(111, "refused")])
def test_a_daemon_that_makes_no_sense_is_not_believed_and_the_file_counts(answer: bytes | OSError) -> None:
    rig = HookRig(left=[SPEC])
    outcome = rig.run(answer)
    assert (outcome.code, rig.limit()) == (0, "4096")
    assert f"the daemon at {FOLDER}/hook.sock gave no answer" in outcome.said


@pytest.mark.parametrize(("name", "limit"), [(f"pods/{UID}.json", "777"), ("hook.json", "4096")])
@pytest.mark.parametrize("content", [b"", b'{"v":1,"pod":{"uid"', b'{"v":9}', b'{"v":1}', b"[1]"])
def test_a_torn_or_foreign_file_is_not_believed(name: str, limit: str, content: bytes) -> None:
    rig = HookRig(left=[SPEC], notes={"epc-limit.nri.io/pod": "777"})
    rig.kernel.replace(f"{FOLDER}/{name}", content)
    outcome = rig.run()
    assert (outcome.code, rig.limit()) == (0, limit)
    assert f"{FOLDER}/{name} is not used" in outcome.said


def test_another_pods_file_is_not_believed() -> None:
    rig = HookRig(left=[SPEC])
    other = rig.kernel.read(f"{FOLDER}/pods/{UID}.json", 4096).replace(UID.encode(), b"another")
    rig.kernel.replace(f"{FOLDER}/pods/{UID}.json", other)
    assert "it is of pod another" in rig.run().said
    assert rig.limit() == "max"


def test_a_uid_that_is_a_path_reads_no_file() -> None:
    path = f"/alone/{ID}"
    rig = HookRig(notes={f"{CRI}sandbox-uid": "../../other"}, named=path, process=path)
    rig.kernel.replace("/run/other.json", rig.state())
    outcome = rig.run()
    assert (outcome.code, rig.limit()) == (0, "max")
    assert outcome.said.startswith("nodeward: default/web, container app: nobody knows this pod")


def test_every_file_call_may_fail_and_says_so() -> None:
    rig, options = HookRig(left=[SPEC], rule=LimitsSettings(on_error=OnError.REFUSE)), Options("refuse")
    counted = FaultyFiles(rig.kernel)
    assert run(rig.state(), counted, options, no_daemon) == Outcome(0)
    assert counted.total == 8

    for number in range(1, counted.total + 1):
        outcome = run(rig.state(), FaultyFiles(rig.kernel, number, errno.EIO), options, no_daemon)
        assert "Input/output error" in outcome.said, number
        assert outcome.code == (number not in (3, 4)), "without what the daemon left it goes on, and says so"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--help"], "usage:"),
        (["--fail"], "is no option"),
        (["--on-error=maybe"], "not pass or refuse"),
        (["--folder", "run"], "not a plain absolute path"),
        (["--folder", "/a/../b"], "not a plain absolute path"),
    ],
)
def test_options_that_make_no_sense_are_refused(words: list[str], says: str) -> None:
    outcome = parse(words)

    assert isinstance(outcome, Outcome)
    assert says in outcome.said
    assert outcome.code == (0 if words == ["--help"] else 2)


LINE = b"line\n"
ANSWER = b'{"v":1}\n'
LONG_S = 20.0
SHORT_S = 0.05


@contextmanager
def daemon(path: str, says: Callable[[socket.socket], None]) -> Iterator[threading.Event]:
    """A daemon that reads the line and then does what `says` does; the event is set when the hook has hung up."""
    gone = threading.Event()

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            assert peer.recv(len(LINE), socket.MSG_WAITALL) == LINE
            try:
                says(peer)
                if peer.recv(1) == b"":
                    gone.set()
            except OSError:  # the hook hung up while it was written to
                gone.set()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield gone
        thread.join(LONG_S)
        assert not thread.is_alive()


def clock(*readings: float) -> Callable[[], float]:
    """A clock that shows one reading after the other, and stays at the last."""
    coming = iter(readings)
    return lambda: next(coming, readings[-1])


def in_pieces(peer: socket.socket) -> None:
    for number in range(len(ANSWER)):
        peer.sendall(ANSWER[number : number + 1])


def far_too_late(peer: socket.socket) -> None:
    """The rest would still be heard if each piece began the patience anew."""
    peer.sendall(ANSWER[:1])
    hung_up, _, _ = select.select([peer], [], [], LONG_S)
    if not hung_up:
        peer.sendall(ANSWER[1:])


def half(peer: socket.socket) -> None:
    peer.sendall(ANSWER[:-1])
    peer.shutdown(socket.SHUT_WR)


def without_end(peer: socket.socket) -> None:
    for _ in range(64):  # an end all the same, for a hook that reads on
        peer.sendall(b"x" * hook_line.MAX_ANSWER)
    raise AssertionError("the hook has read it all")


def first_piece(peer: socket.socket) -> None:
    peer.sendall(ANSWER[:1])


HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("says", "answer_s", "readings", "kind", "why"),
    [
        pytest.param(lambda _: None, SHORT_S, [0.0], TimeoutError, "timed out", id="silent"),
        pytest.param(far_too_late, HOUR_S, [0.0, 0.0, HOUR_S - SHORT_S], TimeoutError, "timed out", id="late piece"),
        pytest.param(first_piece, LONG_S, [0.0, 0.0, LONG_S], TimeoutError, "no whole answer within 20 s", id="drips"),
        pytest.param(without_end, LONG_S, [0.0], OSError, "grows without a line's end", id="without end"),
        pytest.param(half, LONG_S, [0.0], OSError, "after 7 bytes", id="hangs up before the line's end"),
    ],
)
def test_a_daemon_that_gives_no_whole_answer_in_time_and_bounds_is_left(
    tmp_path: Path,
    says: Callable[[socket.socket], None],
    answer_s: float,
    readings: list[float],
    kind: type[OSError],
    why: str,
) -> None:
    path = str(tmp_path / "hook.sock")
    with daemon(path, says) as gone:
        with pytest.raises(OSError, match=why) as raised:
            ask_socket(path, LINE, True, answer_s, clock(*readings))
        assert gone.wait(LONG_S)
    assert raised.type is kind


def test_an_answer_in_pieces_is_put_together(tmp_path: Path) -> None:
    path = str(tmp_path / "hook.sock")
    with daemon(path, in_pieces) as gone:
        assert ask_socket(path, LINE, True, LONG_S, clock(0.0)) == ANSWER
        assert gone.wait(LONG_S)


def test_a_daemon_that_takes_no_request_is_left_when_the_patience_ends(tmp_path: Path) -> None:
    path = str(tmp_path / "hook.sock")

    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(path)
        deaf.listen()
        with pytest.raises(TimeoutError):
            ask_socket(path, b"x" * hook_line.MAX_REQUEST, True, SHORT_S, clock(0.0))
