"""`nodeward replay` as a person runs it: exit codes, JSON, and what it says of files that cannot be used."""

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner, Result

from nodeward.cli.replay import command
from nodeward.core import record
from nodeward.features.root import State
from tests.pages import of_page
from tests.patience import scaled
from tests.unit.programs.test_what_if import lived

MEMORY_KIB = 1 << 20
NO_RECORD = "is no record of nodeward (line "


def run(*words: str | Path) -> Result:
    before = signal.getsignal(signal.SIGPIPE)
    try:
        return CliRunner().invoke(command, [str(word) for word in words])
    finally:
        signal.signal(signal.SIGPIPE, before)  # the command lets a closed pipe end its process


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "record").write_bytes(b"".join(lived().lines))
    (tmp_path / "same.yaml").write_text("{}\n")
    (tmp_path / "strict.yaml").write_text("limits: {strict: true}\n")
    (tmp_path / "faulty.yaml").write_text("limits: {stritc: true, mode: maybe}\n")
    return tmp_path


def test_the_same_settings_end_with_0_whatever_the_environment_says(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODEWARD_LIMITS__STRICT", "true")
    page = of_page("troubleshooting.md", "nodeward replay /var/lib/nodeward/node.record --settings new.yaml")
    record, option, settings = shlex.split(page)[2:]
    assert (record, settings) == ("/var/lib/nodeward/node.record", "new.yaml")
    done = run(files / "record", option, files / "same.yaml")

    assert done.exit_code == 0
    assert "decides the same everywhere" in done.stdout


def test_of_a_record_that_was_cut_no_more_is_said_than_was_read(files: Path) -> None:
    whole = (files / "record").read_bytes()
    (files / "cut").write_bytes(whole[: len(whole) * 2 // 3])
    done = run(files / "cut")

    assert done.exit_code == 0
    assert ", 1 torn place(s)" in done.stdout
    events = done.stdout.partition(" segment(s), ")[2].split()[0]
    assert done.stdout.endswith(f"every decision is the same, byte for byte, of the {events} that could be read\n")
    assert run(files / "record").stdout.endswith("every decision is the same, byte for byte\n")


def test_other_settings_end_with_1_and_mark_all_but_the_first(files: Path) -> None:
    done = run(files / "record", "--settings", files / "strict.yaml")

    assert done.exit_code == 1
    marks = [line.rpartition("[")[2] for line in done.stdout.splitlines() if line.startswith("seq ")]
    assert marks[0] == "first]"
    assert set(marks[1:]) == {"hypothetical]"}
    assert "  other:    sets misc.max to 'sgx_epc 0' (strict web)" in done.stdout
    found = json.loads(run(files / "record", "--settings", files / "strict.yaml", "-o", "json").stdout)
    assert found["count"] == len(found["differences"]) == 3
    assert [one["hypothetical"] for one in found["differences"]] == [False, True, True]
    plain = json.loads(run(files / "record", "-o", "json").stdout)
    assert plain == {"segments": 1, "events": 10, "torn": 0, "difference": ""}


def test_settings_with_faults_and_files_that_are_missing_are_refused(files: Path) -> None:
    done = run(files / "record", "--settings", files / "faulty.yaml")

    assert done.exit_code == 2
    assert "did you mean strict?" in done.stderr
    assert "limits.mode: 'maybe' is not allowed" in done.stderr
    for words in ((files / "missing",), (files / "record", "--settings", files / "missing")):
        missing = run(*words)
        assert (missing.exit_code, "does not exist" in missing.stderr) == (2, True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"", "holds no event", id="empty"),
        pytest.param(b"hello\n", "holds no event", id="no-record"),
        pytest.param(b"".join(record.segment_pieces("x", State()))[:-9], "holds no event", id="cut-in-the-head"),
        pytest.param(b'["segment",99,"x",{}]\n', "'x' wrote this record in format 99, ", id="of-a-newer-format"),
        pytest.param(
            b'["segment",1,"0.1.0",{}]\n', "replay it with the Nodeward that wrote it", id="of-an-older-format"
        ),
        pytest.param(
            b'["segment",%d,"x",{"seq":"one"}]\n' % record.FORMAT, "state cannot be read", id="state-of-another-shape"
        ),
        pytest.param(b'["event","Nonsense",{}]\n', "'Nonsense' is not known", id="event-of-another-version"),
        pytest.param(b'{"kind":"Pod"}\n', NO_RECORD, id="JSON-object"),
        pytest.param(b"\n[]\n", NO_RECORD, id="empty-list"),
        pytest.param(b"hello\n7\n", NO_RECORD, id="text-and-a-number"),
        pytest.param(Random(3).randbytes(4096) + b"\n", "`nodeward node --record` write it?", id="random-bytes"),
    ],
)
@pytest.mark.parametrize("settings", [(), ("--settings", "strict.yaml")], ids=["plain", "what-if"])
def test_what_is_no_record_ends_with_2_and_one_sentence(
    files: Path, content: bytes, said: str, settings: tuple[str, ...]
) -> None:
    (files / "bad").write_bytes(content)
    words = [files / word if word.endswith(".yaml") else word for word in settings]

    done = run(files / "bad", *words)

    assert done.exit_code == 2, done.output
    assert done.stderr.startswith(f"nodeward: {files / 'bad'}: ")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_record_is_not_taken_for_something_else_after_its_first_line(files: Path) -> None:
    (files / "bad").write_bytes((files / "record").read_bytes() + b'{"kind":"Pod"}\n')

    done = run(files / "bad")

    lines = len(lived().lines) + 1
    assert done.stderr.startswith(f"nodeward: {files / 'bad'}: line {lines}: Expected `array`")


def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    limited = ["sh", "-c", f'ulimit -v {MEMORY_KIB}; exec "$@"', "sh"]
    command = [*limited, sys.executable, "-m", "nodeward", "replay", "/dev/zero"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=scaled(120), check=False)

    assert done.returncode == 2, done.stderr
    assert f"line 1: more than {record.MAX_LINE} bytes" in done.stderr
    assert len(done.stderr.splitlines()) == 1
