"""Given damaged bytes, a codec gives values or its own error, and keeps no more memory than its input is worth.

`make nightly` plays a million inputs for each codec, `make test` 2,000; the same inputs each time.
"""

import functools
import json
import os
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from nodeward.contracts import nri_pb2
from nodeward.neighbours.formats import protobuf
from tests.unit.formats import mutator, taken
from tests.unit.formats.codecs import codecs
from tests.unit.formats.sample import Codec

ROOT = Path(__file__).resolve().parents[3]
CORPUS = ROOT / "tests" / "corpus"
HOUSE = ROOT / "src" / "nodeward"
CODECS = codecs()
PADDING_BYTES = 1 << 20
LARGE_INPUTS = int(os.environ.get("NODEWARD_LARGE_INPUTS", "4"))
BASE_BYTES = 64 << 10
"""What a reader needs however small its input is."""
SMALL_BY_NATURE = ("misc-files", "cgroup-paths", "qgs", "direct-volume", "dan", "cni-result")
"""They refuse what is longer than a few kilobytes, those of volumes and networks what is longer than 256."""
NEVER_LARGE = ("kubelet-endpoints", "kata-config")
"""Of such a file at most 1 MiB is read, by a command that a person calls; YAML's tree and the changed text take up to
16 times that, and half a second. Of Kata's, as much is read once a minute, where VM sandboxes are looked after."""
TIMES = 4
PLAYED_BY = {
    "core.errors": "the error itself",
    "cli.cri_resmgr.webhook": "a program's own settings",
    "admission.door.mapping": "what features.admission.door.review read",
    "cri.flow": "the relay's session",
    "cri.held": "the relay's session",
    "cri.holds": "the relay's session",
    "cri.mapping": "messages of neighbours.formats.protobuf",
    "cri.pulls": "messages of neighbours.formats.protobuf",
    "cri.session": "the relay's session",
    "cri_resmgr.yaml": "a file that its own program names",
}
"""Modules that refuse what others wrote and are not played themselves, and by what they are reached."""
OWN_IO = re.compile(
    r"^(from|import) (asyncio|socket|aiohttp|nodeward\.host|nodeward\.neighbours\.sockets)", re.MULTILINE
)


@functools.cache
def large() -> Mapping[str, Codec]:
    return codecs(PADDING_BYTES)


def play(codec: Codec, pieces: Sequence[bytes]) -> bool:
    """Whether the decoder of payloads was reached. Any other error than the codec's own goes through."""
    times = 0

    def reached() -> None:
        nonlocal times
        times += 1

    with suppress(codec.error):
        codec.read(pieces, reached)
    return times > 0


@pytest.mark.fuzz
@pytest.mark.parametrize("name", CODECS)
def test_damaged_inputs_are_values_or_errors_and_half_of_them_get_to_the_payload(name: str) -> None:
    codec = CODECS[name]
    inputs = arrived = 0
    for data, cuts in mutator.inputs(codec.samples, seed=1):
        inputs += 1
        arrived += play(codec, mutator.chunks(data, cuts))
    assert inputs == mutator.INPUTS
    assert arrived >= inputs / 2


@pytest.mark.parametrize("name", [name for name in CODECS if name not in (*SMALL_BY_NATURE, *NEVER_LARGE)])
def test_a_large_damaged_input_takes_four_times_its_size_at_most(name: str) -> None:
    """Of Python's memory, beside the input itself, where one value is long. What many short ones take, in C too, is
    measured below."""
    codec = large()[name]
    for data, cuts in mutator.inputs(codec.samples, seed=2, count=LARGE_INPUTS):
        pieces = mutator.chunks(data, cuts)
        tracemalloc.start()
        try:
            play(codec, pieces)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak <= TIMES * len(data) + BASE_BYTES, f"{len(data)} bytes, cut at {cuts}"


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.nightly] * (kind not in taken.SHORT)) for kind in taken.KINDS]
)
def test_an_input_of_the_shortest_elements_takes_no_more_than_is_said(kind: str) -> None:
    """Of a process's resident memory, beside the input itself."""
    command = [sys.executable, "-m", "tests.unit.formats.taken", kind]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert printed.returncode == 0, printed.stderr
    inputs = [json.loads(line) for line in printed.stdout.splitlines()]
    assert inputs
    assert [one for _, *one in inputs if one[2] > TIMES * one[1] + taken.BESIDE.get(kind, taken.MOST_BESIDE)] == []


def test_ordinary_messages_are_far_from_what_is_refused() -> None:
    """A thousand pods with a container each, in the shape that containerd gives them, in one Synchronize."""
    message = taken.full_node(1000)
    assert len(message) > 3_000_000
    assert not protobuf.is_too_much(nri_pb2.SynchronizeRequest, message)
    assert protobuf.is_too_much(nri_pb2.SynchronizeRequest, message + b"\x12\x00" * (150 << 10))


def named(path: Path) -> str:
    """As codecs name modules: of a neighbour, a feature or a program without the room's own name."""
    room, *rest = path.relative_to(HOUSE).with_suffix("").parts
    return ".".join(rest if room in ("neighbours", "features", "programs") and len(rest) > 1 else (room, *rest))


def test_every_module_that_refuses_bytes_of_others_is_played() -> None:
    played = {module for codec in CODECS.values() for module in codec.modules}
    texts = {named(path): path.read_text("utf-8") for path in HOUSE.rglob("*.py")}
    refusing = {name for name, text in texts.items() if "WireError(" in text and not OWN_IO.search(text)}

    assert refusing - played == set(PLAYED_BY)
    assert [name for name in played if name not in texts] == []


def kept() -> Iterator[tuple[str, Path]]:
    for folder in sorted(path for path in CORPUS.iterdir() if path.is_dir()):
        for file in sorted(folder.iterdir()):
            yield folder.name, file


@pytest.mark.parametrize(("name", "file"), [pytest.param(*one, id=f"{one[0]}/{one[1].name}") for one in kept()])
def test_a_kept_input_is_a_value_or_an_error_whole_and_byte_by_byte(name: str, file: Path) -> None:
    data = file.read_bytes()
    play(CODECS[name], [data])
    play(CODECS[name], [data[at : at + 1] for at in range(len(data))])
