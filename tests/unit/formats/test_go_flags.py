"""Command lines as Go's flag package reads them, and the files that CRI Resource Manager's first version had."""

import pytest

from nodeward.core.errors import WireError
from nodeward.programs.cri_resmgr import go_flags

KNOWN = dict.fromkeys(("policy", "dump", "dump-file", "config", "logger-level"), False) | {"print-config": True}


def given(*words: str, files: dict[str, str] | None = None) -> list[tuple[str, str]]:
    found, rest = go_flags.parse(words, KNOWN, None if files is None else files.__getitem__)
    assert rest == []
    return [(one.name, one.value) for one in found]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("-policy null -dump reset,full:.* -dump-file /tmp/cri.dump", ["null", "reset,full:.*", "/tmp/cri.dump"]),
        ("--policy=null --dump-file=a=b", ["null", "a=b"]),
        ("-policy=", [""]),
        ("-print-config -policy null", ["true", "null"]),
        ("-print-config=F", ["false"]),
        ("-policy -", ["-"]),
        ("-policy -dump", ["-dump"]),  # as Go does: the next word is the value, whatever it is
    ],
)
def test_one_dash_and_two_with_values_as_go_takes_them(words: str, found: list[str]) -> None:
    assert [value for _, value in given(*words.split())] == found


@pytest.mark.parametrize("words", ["-policy null help", "-policy null -- help"])
def test_options_end_at_a_word_or_at_two_dashes(words: str) -> None:
    found, rest = go_flags.parse(words.split(), KNOWN)
    assert ([one.name for one in found], rest) == (["policy"], ["help"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-dumpfile /x", "option --dumpfile: is not known; did you mean --dump-file? (command line)"),
        ("-zzz", "option --zzz: is not known (command line)"),
        ("-policy", "option --policy: needs a value (command line)"),
        ("-print-config=maybe", "option --print-config: 'maybe' is neither true nor false (command line)"),
    ],
)
def test_what_cannot_be_is_said_with_the_nearest_name(words: str, said: str) -> None:
    with pytest.raises(WireError) as raised:
        given(*words.split())
    assert str(raised.value) == said


def test_a_file_stands_where_it_was_named_and_what_comes_after_it_wins() -> None:
    text = "# a comment\n\npolicy = none\ndump = full:.*\n  file =  /var/log/cri dump \nlogger-level=debug=x\n"
    text += "print-config\n"
    assert given("-policy", "null", "-config", "f", "-policy", "static", files={"f": text}) == [
        *(("policy", "null"), ("policy", "none"), ("dump", "full:.*"), ("dump-file", "/var/log/cri dump")),
        *(("logger-level", "debug=x"), ("print-config", "true"), ("policy", "static")),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("  file = x", "f line 1: 'file' is indented, and there is no option above it"),
        ("policy = a\nconfig = g", "f line 2: a configuration file names no other one"),
        ("polcy = a", "option --polcy: is not known; did you mean --policy? (f line 1)"),
        ("#\n" * (go_flags.MAX_LINES + 1), "f: has more than 10000 lines"),
        ("#\n# " + "x" * go_flags.MAX_LINE, "f line 2: has more than 65536 characters"),
    ],
)
def test_a_files_faults_name_the_line(text: str, said: str) -> None:
    with pytest.raises(WireError) as raised:
        given("-config", "f", files={"f": text})
    assert str(raised.value) == said


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("policy = null\n", True),
        ("# policy:\n\npolicy\n", True),
        ("policy:\n  Active: null\n", False),
        ("dump: {Config: 'full:.*'}\n", False),
        ("---\npolicy:\n  Active: null\n", False),
        ("# ours\n--- # of this node\ndump: {Config: 'full:.*'}\n", False),
        ("%YAML 1.1\n---\ndump: {}\n", False),
        ("dump = full:.*\n", True),
        ("", True),
    ],
)
def test_the_two_generations_of_files_are_told_apart(text: str, lines: bool) -> None:
    assert go_flags.is_lines(text) is lines
