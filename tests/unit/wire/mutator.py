"""Damaged inputs for the codecs, the same ones for the same seed.

Half of the inputs are damaged inside a payload only, so that they get past the framing and reach what decodes payloads;
the other half anywhere. `NODEWARD_FUZZ_INPUTS` says how many inputs each codec gets (2000 unless set).
"""

import os
import random
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tests.unit.wire.sample import Sample

INPUTS = int(os.environ.get("NODEWARD_FUZZ_INPUTS", "2000"))
_INTERESTING = (0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF)


def mutate(source: random.Random, data: bytes) -> bytes:
    """`data` with one to eight changes: a bit, a byte, a run removed, doubled or inserted, the end cut off."""
    out = bytearray(data)
    for _ in range(source.randint(1, 8)):
        at = source.randrange(len(out) + 1)
        match source.randrange(6):
            case 0 if out:
                out[at % len(out)] ^= 1 << source.randrange(8)
            case 1 if out:
                out[at % len(out)] = source.choice(_INTERESTING)
            case 2:
                del out[at : at + source.randint(1, 16)]
            case 3:
                out[at:at] = out[at : at + source.randint(1, 64)]
            case 4:
                out[at:at] = source.randbytes(source.randint(1, 16))
            case _:
                del out[at:]
    return bytes(out)


def inputs(samples: Sequence[Sample], seed: int, count: int = INPUTS) -> Iterator[tuple[bytes, list[int]]]:
    """`count` byte strings, each with the places to cut it at. Every other one is a well framed, damaged payload."""
    source = random.Random(seed)
    for number in range(count):
        sample = source.choice(samples)
        if number % 2 == 0:
            data = sample.frame(mutate(source, sample.payload))
        else:
            data = mutate(source, sample.frame(sample.payload))
        yield data, sorted(source.randrange(len(data) + 1) for _ in range(source.randrange(4)))


def chunks(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """`data` cut at `cuts`, which rise."""
    edges = [0, *cuts, len(data)]
    return [data[start:end] for start, end in pairwise(edges)]
