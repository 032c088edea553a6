"""The OCI hook with a state, a bundle, files, options or a daemon that make no sense: none is believed."""

import dataclasses
import errno

import pytest

from nodeward.model.settings import LimitsSettings, OnError
from nodeward.model.workload import PodUid
from nodeward.shims.oci_hook import Options, Outcome, parse, run
from nodeward.wire import hook_line, oci
from tests.faults import FaultyFiles
from tests.unit.shims.rig import (
    BUNDLE,
    CGROUP,
    EPC,
    FOLDER,
    ID,
    POD,
    SPEC,
    UID,
    HookRig,
    no_daemon,
    said,
)

MEND = "See who else changes the bundle"


@pytest.mark.parametrize(
    ("stdin", "says"),
    [
        (b"", "nothing on stdin"),
        (b" \n", "nothing on stdin"),
        (b"{", "is no JSON"),
        (b"[" * 100_000, "is no JSON (RecursionError"),
        (b'{"id":"\xff"}', "OCI state: is no UTF-8 text: byte 0xff at position 7. "),
        (b"\xff\xfe{", "OCI state: is no UTF-8 text: byte 0xff at position 0. "),
        (b"[]", "no JSON object but list"),
        (b"{" + b" " * oci.MAX_STATE, "more than 1048576 bytes"),
        (b'{"bundle":"/b","pid":1}', "id is missing"),
        (b'{"a":[0' + b",0" * (oci.MOST_COMMAS + 1) + b"]}", "more than 262144 commas, thus values"),
        (b'{"id":"a","pid":1}', "bundle is missing"),
        (b'{"id":"a","bundle":"b","pid":1}', "bundle 'b' is not a plain absolute path"),
        (b'{"id":"a","bundle":"/b/../c","pid":1}', "is not a plain absolute path"),
        (b'{"id":"a","bundle":"/b\\u0000c","pid":1}', "bundle '/b\\x00c' is not a plain absolute path"),
        (b'{"id":"a","bundle":"/b","pid":"1"}', "is no process id"),
        (b'{"id":"a","bundle":"/b","pid":true}', "pid 'True' is no process id"),
        (b'{"id":"a","bundle":"/b","pid":-1}', "is no process id"),
        (b'{"id":"a","bundle":"/nowhere","pid":1}', "no config.json that can be read: No such file"),
    ],
    ids=lambda value: str(value[:30]),
)
def test_a_bad_state_is_refused_with_a_clear_error(stdin: bytes, says: str) -> None:
    outcome = HookRig().run(stdin)

    assert outcome.code == 1
    assert says in outcome.said
    assert "docs/hook.md" in outcome.said, "the remedy"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/kubepods/../../etc", "not a plain absolute path"),
        ("/kubepods/podx/..", "not a plain absolute path"),
        ("../../x:a:b", "not a plain absolute path"),
        ("a--b.slice:p:c", "no slice name"),
        ("/kubepods/podother/x", "one of them lies"),
        ("/kubepods\n/x", "not a plain absolute path"),
        ("/" + "x" * 5000, "more than 4096"),
        ("/kubepods", "one of them lies"),
        ("/kubepods/burstable", "one of them lies"),
        (POD, "one of them lies"),
        ("kubepods.slice:cri-containerd:" + ID, "one of them lies"),
    ],
)
def test_a_bundle_whose_cgroup_escapes_or_is_another_gets_nothing(path: str, says: str) -> None:
    rig = HookRig()
    rig.leave()
    rig.cgroups_path = path
    rig.config()
    outcome = rig.run()

    assert (outcome.code, limits(rig)) == (1, {"max"})
    assert says in outcome.said
    assert MEND in outcome.said


def limits(rig: HookRig) -> set[str]:
    """What the kernel double has for the container and for each cgroup above it."""
    above = ("/kubepods", "/kubepods/burstable", POD, CGROUP)
    return {rig.limit(path).removeprefix(f"{EPC} ") for path in above}


@pytest.mark.parametrize("shared", ["/kubepods", "/kubepods/burstable", POD])
@pytest.mark.parametrize("named", [True, False], ids=["named", "not named"])
def test_a_process_in_a_cgroup_that_is_there_for_others_too_limits_nobody(shared: str, named: bool) -> None:
    rig = HookRig()
    rig.leave()
    rig.cgroups_path = shared if named else ""
    rig.config()
    rig.process_in(shared)
    outcome = rig.run()

    assert (outcome.code, limits(rig), rig.asked) == (1, {"max"}, [])
    assert f"cgroup {shared} is there for other containers too" in outcome.said
    assert "linux.cgroupsPath in the bundle is to end with the container's id" in outcome.said


@pytest.mark.parametrize("named", [CGROUP, ""], ids=["named", "not named"])
@pytest.mark.parametrize("below", ["", "/container"], ids=["there", "one below"])
def test_a_bundle_of_another_pods_container_limits_nobody(named: str, below: str) -> None:
    other = "aaaaaaaa-1111-2222-3333-444455556666"
    rig = HookRig()
    rig.leave()
    rig.leave(spec=dataclasses.replace(SPEC, uid=PodUid(other)))
    rig.annotations["io.kubernetes.cri.sandbox-uid"] = other
    rig.cgroups_path = named
    rig.config()
    rig.process_in(f"{CGROUP}{below}")
    outcome = rig.run()

    assert (outcome.code, limits(rig), rig.asked) == (1, {"max"}, [])
    assert f"the bundle says that pod {other} is its own, but cgroup {CGROUP}" in outcome.said
    assert f"is in pod {UID}: one of them lies, and neither gets a limit. {MEND}" in outcome.said


@pytest.mark.parametrize("named", ["", "/"])
@pytest.mark.parametrize("path", ["/", "/../../init.scope", "/a/../b"])
def test_a_process_without_a_cgroup_of_its_own_gets_nothing(path: str, named: str) -> None:
    rig = HookRig()
    rig.leave()
    rig.cgroups_path = named
    rig.config()
    rig.process_in(path)
    outcome = rig.run()

    assert (outcome.code, limits(rig)) == (1, {"max"})
    remedies = {"Have the runtime make one", "Run the hook in the host's cgroup namespace", MEND}
    assert any(remedy in outcome.said for remedy in remedies), outcome.said


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is no JSON"),
        (b'{"ociVersion":"1.0.2","linux":{"cgroupsPath":7}}', "cgroupsPath is no text"),
        (b'{"ociVersion":"1.0.2","linux":[]}', "cgroupsPath is no text"),
        (b'{"ociVersion":"1.0.2","annotations":{"a":1}}', "annotations is no table of texts"),
        (b'{"some":"file"}', "no ociVersion"),
        (b" " * (oci.MAX_CONFIG + 1), "File too large"),
    ],
    ids=["empty", "number as path", "list as linux", "number as annotation", "another file", "huge"],
)
def test_a_bad_bundle_is_refused_with_a_clear_error(content: bytes, says: str) -> None:
    rig = HookRig()
    rig.kernel.replace(f"{BUNDLE}/config.json", content)
    outcome = rig.run()

    assert outcome.code == 1
    assert says in outcome.said
    assert ("docs/hook.md" if says == "File too large" else MEND) in outcome.said


WORD = "io.kubernetes.cri.container-name"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("x" * 1025, f"annotation {WORD} has 1025 characters or more than one line"),
        ("app\nother", f"annotation {WORD} has 9 characters or more than one line"),
        ("app\0other", f"annotation {WORD} has 9 characters or more than one line"),
    ],
    ids=["over-long", "two lines", "NUL"],
)
def test_a_container_whose_name_is_none_is_neither_asked_about_nor_limited(value: str, says: str) -> None:
    rig = HookRig()
    rig.leave()
    rig.annotations[WORD] = value
    rig.config()
    outcome = rig.run()

    assert (outcome.code, rig.limit(), rig.asked) == (1, f"{EPC} max", [])
    assert f"{says}. {MEND}" in outcome.said


def test_the_longest_name_that_counts_is_asked_about() -> None:
    rig = HookRig()
    rig.annotations[WORD] = "x" * 1024
    rig.config()
    rig.run(answer=said({}))

    assert hook_line.decode_request(rig.asked[0]).container == "x" * 1024


@pytest.mark.parametrize(("on_error", "code"), [("pass", 0), ("refuse", 1)])
def test_a_fault_of_our_own_means_what_on_error_says_and_is_one_line(on_error: str, code: int) -> None:
    """An error that no code here expects, in the midst of asking."""

    def broken(path: str, line: bytes, wait: bool) -> bytes:
        raise ZeroDivisionError("by zero")

    rig = HookRig()
    rig.leave()
    rig.config()
    outcome = run(rig.state(), rig.kernel, Options(on_error), broken)

    assert outcome.code == code
    assert outcome.said.startswith(
        "nodeward: default/web, container app: fault in the hook: ZeroDivisionError: by zero"
    )
    assert "\n" not in outcome.said
    assert rig.limit() == f"{EPC} max"


def test_a_state_without_or_with_a_dead_process_says_which_stage_is_meant() -> None:
    rig = HookRig()
    rig.config()

    assert "createRuntime" in rig.run(rig.state(pid=0)).said
    gone = rig.run(rig.state(pid=77)).said
    assert "process 77 is not there" in gone
    assert "the hook is to be run in the PID namespace of the runtime" in gone


GARBAGE = [
    b"",
    b"garbage\n",
    b"[]\n",
    b'{"v":2,"limits":{},"refusal":"","on_error":"pass","why":""}\n',
    b'{"v":1,"limits":{"sgx_epc":-1},"refusal":"","on_error":"pass","why":""}\n',
    b'{"v":1,"limits":{"sgx_epc":"4096"},"refusal":"","on_error":"pass","why":""}\n',
    b'{"v":1,"limits":{},"refusal":"","on_error":"maybe","why":""}\n',
    b'{"v":1,"limits":{},"refusal":null,"on_error":"pass","why":""}\n',
]


@pytest.mark.parametrize("answer", [*GARBAGE, TimeoutError(110, "late"), ConnectionRefusedError(111, "refused")])
def test_a_daemon_that_makes_no_sense_is_not_believed_and_the_file_counts(answer: bytes | OSError) -> None:
    rig = HookRig()
    rig.leave()
    rig.config()
    outcome = rig.run(answer=answer)

    assert (outcome.code, rig.limit()) == (0, f"{EPC} 4096")
    assert f"the daemon at {FOLDER}/hook.sock gave no answer" in outcome.said


@pytest.mark.parametrize("name", [f"pods/{UID}.json", "hook.json"])
@pytest.mark.parametrize("content", [b"", b'{"v":1,"pod":{"uid"', b'{"v":9}', b'{"v":1}', b"[1]"])
def test_a_torn_or_foreign_file_is_not_believed(name: str, content: bytes) -> None:
    rig = HookRig()
    rig.leave()
    rig.kernel.replace(f"{FOLDER}/{name}", content)
    rig.annotations["epc-limit.nri.io/pod"] = "777"
    rig.config()
    outcome = rig.run()

    assert outcome.code == 0
    assert f"{FOLDER}/{name} is not used" in outcome.said
    assert rig.limit() == (f"{EPC} 4096" if name == "hook.json" else f"{EPC} 777")


def test_another_pods_file_is_not_believed() -> None:
    rig = HookRig()
    rig.leave()
    other = rig.kernel.read(f"{FOLDER}/pods/{UID}.json", 4096).replace(UID.encode(), b"another")
    rig.kernel.replace(f"{FOLDER}/pods/{UID}.json", other)
    rig.config()

    assert "it is of pod another" in rig.run().said
    assert rig.limit() == f"{EPC} max"


def test_a_uid_that_is_a_path_reads_no_file() -> None:
    rig = HookRig()
    rig.kernel.replace("/run/other.json", rig.state())
    rig.annotations["io.kubernetes.cri.sandbox-uid"] = "../../other"
    rig.cgroups_path = f"/alone/{ID}"
    rig.config()
    rig.process_in(rig.cgroups_path)

    outcome = rig.run()
    assert (outcome.code, rig.limit()) == (0, f"{EPC} max")
    assert outcome.said.startswith("nodeward: default/web, container app: nobody knows this pod")


def test_every_file_call_may_fail_and_says_so() -> None:
    rig = HookRig()
    rig.leave(LimitsSettings(on_error=OnError.REFUSE))
    rig.config()
    counted = FaultyFiles(rig.kernel)
    assert run(rig.state(), counted, rig.options, no_daemon) == Outcome(0)
    assert counted.total == 8

    for number in range(1, counted.total + 1):
        outcome = run(rig.state(), FaultyFiles(rig.kernel, number, errno.EIO), rig.options, no_daemon)
        assert "Input/output error" in outcome.said, number
        assert outcome.code == (number not in (3, 4)), "without what the daemon left it goes on, and says so"


# ---- the program


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--help"], "usage:"),
        (["--fail"], "is no option"),
        (["x"], "is no option"),
        (["--on-error"], "not pass or refuse"),
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
