"""What a codec is to the damaged inputs: good inputs, how they are read, and what may come of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from nodeward.core.errors import NodewardError, WireError

Reached = Callable[[], None]
"""To be called when the decoder of payloads is about to get something of this input."""


@dataclass(frozen=True)
class Sample:
    payload: bytes
    frame: Callable[[bytes], bytes] = field(default=lambda payload: payload)


@dataclass(frozen=True)
class Codec:
    """What reads the pieces of one input, and the only errors that may come of it."""

    samples: Sequence[Sample]
    read: Callable[[Sequence[bytes], Reached], None]
    modules: Sequence[str]
    """Those that it reads by: `nri.mux` is `nodeward.neighbours.nri.mux`."""
    error: type[NodewardError] = WireError


def whole(read: Callable[[bytes], object]) -> Callable[[Sequence[bytes], Reached], None]:
    def read_pieces(pieces: Sequence[bytes], reached: Reached) -> None:
        reached()
        read(b"".join(pieces))

    return read_pieces


TEXTS: Mapping[str, Sequence[str]] = yaml.safe_load(Path(__file__).with_name("samples.yaml").read_text("utf-8"))


def texts(name: str, padding: int) -> list[Sample]:
    rows = (text.replace("@@", "x" * padding).replace("@_", " " * padding) for text in TEXTS[name])
    return [Sample(row.encode()) for row in rows]
