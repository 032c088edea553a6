"""`nodeward sim` as a process: its exit codes, its summary, its record, and that it leaves nothing behind."""

import contextlib
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nodeward.cli import main
from nodeward_sim.verb import command
from tests.patience import scaled, until

NODEWARD = Path(sys.executable).parent / "nodeward"
DEADLINE_S = scaled(60.0)


def sim(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line, environ = [str(NODEWARD), "sim", *words], environment(folder)
    return subprocess.run(line, env=environ, cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S)


def environment(folder: Path) -> dict[str, str]:
    """Temporary files go to `folder`/t: a short path, since sockets are among them."""
    (folder / "t").mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(folder / "t")}


def but_for_stalls(error: str) -> str:
    """What was said on standard error beside the daemon's word that its loop stood, which on a busy machine it may."""
    return re.sub(r"^\S+ \S+ WARNING nodeward\.host\.watchdog loop=stands .*\n", "", error, flags=re.MULTILINE)


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s")


def test_a_sound_node_ends_with_0_a_summary_no_word_beside_it_and_a_record_that_replays(folder: Path) -> None:
    done = sim(folder, "--scenario", "quiet-day", "--for", "4s", "--seed", "7", "--record", "./rec.jsonl")

    assert (done.returncode, but_for_stalls(done.stderr)) == (0, "")
    assert re.match(
        r"beside it: (?:nodeward|/\S+/nodeward) status --socket \S+/run/nodeward.sock\nQuiet day \(seed 7\): ",
        done.stdout,
    )
    assert re.search(r"^charges: \d+ tried, \d+ refused( \(.*\))?; creates refused: 0$", done.stdout, re.MULTILINE)
    assert re.search(r"^states at the end: .*\d+ enforced", done.stdout, re.MULTILINE)
    assert re.search(r"^invariants: [1-9]\d* checks, 0 violations$", done.stdout, re.MULTILINE)
    assert [line.split(":")[0] for line in done.stdout.splitlines()][-2:] == ["invariants", "record"]
    assert list((folder / "t").iterdir()) == []
    replayed = beside("replay", str(folder / "rec.jsonl"))
    assert replayed.exit_code == 0, replayed.output
    assert re.search(r" [1-9]\d* event\(s\), 0 torn", replayed.stdout)


def test_a_broken_invariant_ends_with_1_and_is_named(folder: Path) -> None:
    (folder / "hurried.yaml").write_text("{title: Hurried, pods: 8, grace_s: 1, life_s: [1, 2]}\n")
    done = sim(folder, "--scenario", "hurried.yaml", "--for", "6s", "--mutant", "limits-not-written")

    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"^invariants: \d+ checks, [1-9]\d* violations$", done.stdout, re.MULTILINE)
    assert "\n  limit-missing: /kubepods/pod" in done.stdout


def test_what_cannot_be_is_refused_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rec").write_text("mine")
    (tmp_path / "mine.yaml").write_text("{title: T, pods: many}\n")
    with socket.create_server(("127.0.0.1", 0)) as holder:
        listen = f"127.0.0.1:{holder.getsockname()[1]}"
        wrong = {
            "--for 60s --record nowhere/rec.jsonl": "/nowhere is no folder",
            "--for 60s --record rec": "rec exists already; name a new file",
            "--for 60s --scenario mine.yaml": "nodeward: mine.yaml: pods: 'many' must be a whole number ",
            f"--for 2s --metrics {listen}": f"nodeward: --metrics {listen}: Address already in use; choose another",
            "--for soon": "soon",
            "nowhere": "nowhere",
            "keys --scenario gate": "",
            "--frobnicate": "--frobnicate",
        }
        for line, said in wrong.items():
            done = CliRunner().invoke(command, line.split())
            assert (done.exit_code, done.stdout, said in done.stderr) == (2, "", True), done.output
    assert (tmp_path / "rec").read_text() == "mine"


def test_sigterm_ends_it_with_a_summary_and_leaves_neither_daemon_nor_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    process = started(folder, "quiet-day")
    child = daemon_of(process.pid)
    process.send_signal(signal.SIGTERM)
    out, error = process.communicate(timeout=DEADLINE_S)

    assert (process.returncode, but_for_stalls(error)) == (0, "")
    first, second, *_ = out.splitlines()
    assert first.startswith(f"beside it: {NODEWARD} status --socket "), "as a shell finds it"
    assert second.startswith("Quiet day (seed 1): ")
    assert not alive(child)
    assert list((folder / "t").iterdir()) == []


def test_the_daemon_ends_when_the_simulation_is_killed(folder: Path) -> None:
    process = started(folder, "quiet-day")
    child = daemon_of(process.pid)
    until(lambda: any((folder / "t").glob("*/run/nodeward.sock")), "the daemon listens")
    process.kill()
    process.communicate(timeout=DEADLINE_S)

    try:
        until(lambda: not alive(child), "the daemon ends")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


@pytest.mark.nightly
def test_status_says_that_a_vm_was_killed_when_and_by_which_limit(folder: Path) -> None:
    process = started(folder, "sandboxes-too-big")
    try:
        assert process.stdout is not None
        words = process.stdout.readline().partition(": ")[2].split()
        said = re.compile(r"killed .* \S+Z.*: the limit of its pod is \d+Mi")
        until(
            lambda: said.search(beside("status", "--socket", words[3]).stdout.partition("\n")[0]) is not None, "it says"
        )
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE_S)


def beside(*words: str) -> Result:
    before = signal.getsignal(signal.SIGPIPE)
    try:
        return CliRunner().invoke(main.cli, words)
    finally:
        signal.signal(signal.SIGPIPE, before)  # a command may let a closed pipe end its process


def test_a_simulation_that_cannot_go_on_ends_with_3(folder: Path) -> None:
    (folder / "rec").mkdir()
    done = sim(folder, "--for", "2s", "--record", str(folder / "rec" / ("x" * 300)))

    assert done.returncode == 3, done.stdout + done.stderr
    said = done.stderr.splitlines()  # those of its daemon too, which may come last
    assert [line.endswith("File name too long") for line in said].count(True) == 1, said
    assert "Traceback" not in done.stderr


def test_the_live_view_shows_each_decision_and_refusal_within_the_terminal_and_no_traceback(folder: Path) -> None:
    (folder / "killed.yaml").write_text(
        "{title: Killed, pods: 3, greedy: 0.5, charge_every_s: 0.02, events: [{at_s: 1.5, do: kill-daemon}]}\n"
    )
    frames = on_a_terminal(folder, 80, "--scenario", "killed.yaml", "--for", "6s")
    whole = "\n".join(frames)

    assert "Traceback" not in whole
    assert "CancelledError" not in whole
    assert max(len(line) for frame in frames[1:-1] for line in frame.splitlines()) <= 80
    assert any("the daemon does not answer" in frame for frame in frames)
    shown = next(frame for frame in reversed(frames) if re.search("^POD +EPC", frame, re.MULTILINE))
    assert re.search(r"^default/pod-\d+.* / .*, [1-9]\d* refused +(enforced|charges-refused)", shown, re.MULTILINE)
    assert re.search(r"^default/pod-\d+\S*( \(pod\))?: .*, from the pod's spec in the API server$", whole, re.MULTILINE)
    assert "\n  The container declares this limit." in whole
    assert re.search(r"^export NODEWARD_SOCKET=/", shown, re.MULTILINE)
    assert "Killed (seed 1): " in frames[-1]


def test_keys_filter_scroll_and_end_the_live_view(folder: Path) -> None:
    typed = {b"q ends": b"/none-such\r", b"filter: none-such": b"\x1b", b"default/pod-": b"jq"}
    frames = on_a_terminal(folder, 80, "quiet-day", typed=typed)

    shown = next(frame for frame in frames if "filter: none-such" in frame)
    assert "default/pod-" not in shown.partition("the latest decisions")[0].partition("STATE")[2]
    assert any("from row 2" in frame for frame in frames)
    assert "Quiet day (seed 1): " in frames[-1]


def on_a_terminal(folder: Path, columns: int, *words: str, typed: Mapping[bytes, bytes] | None = None) -> list[str]:
    """What is drawn, frame by frame; of `typed` each is pressed once what stands before it was drawn, in this order."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (40, columns))
    environ = {name: text for name, text in environment(folder).items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [NODEWARD, "sim", *words], env={**environ, "TERM": "xterm"}, cwd=folder, stdin=its, stdout=its, stderr=its
    )
    os.close(its)
    drawn = bytearray()
    left, seen = list((typed or {}).items()), 0
    with contextlib.suppress(OSError):  # what a terminal whose other end is gone says
        while piece := os.read(ours, 65536):
            drawn += piece
            if left and (at := drawn.find(left[0][0], seen)) >= 0:
                os.write(ours, left.pop(0)[1])
                seen = at
    os.close(ours)
    assert process.wait(DEADLINE_S) == 0, bytes(drawn)
    frames = re.split(r"(?:\x1b\[2K\x1b\[1A)+\x1b\[2K|(?:\x1b\[1A\x1b\[2K)+", drawn.decode().replace("\r", ""))
    return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frame) for frame in frames]


def started(folder: Path, name: str) -> subprocess.Popen[str]:
    line, environ, pipe = [str(NODEWARD), "sim", "--scenario", name], environment(folder), subprocess.PIPE
    return subprocess.Popen(line, env=environ, cwd=folder, stdout=pipe, stderr=pipe, text=True)


def daemon_of(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    until(lambda: bool(children.read_text().split()), "the daemon's process")
    return int(children.read_text().split()[0])


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")
