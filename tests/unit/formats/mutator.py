"""Damaged inputs for the codecs, the same ones for the same seed.

Half of the inputs are damaged inside a payload only, so that they get past the framing and reach what decodes payloads;
the other half anywhere. `NODEWARD_FUZZ_INPUTS` says how many inputs each codec gets (2000 unless set).
"""

import os
import random
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tests.unit.formats.sample import Sample

INPUTS = int(os.environ.get("NODEWARD_FUZZ_INPUTS", "2000"))
_INTERESTING = (0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF)


def mutate(source: random.Random, data: bytes) -> bytes:
    """`data` with one to eight changes: a bit, a byte, a run removed, doubled or inserted, the end cut off.

    What a change is made of is drawn at once: there are millions of them."""
    out = bytearray(data)
    for _ in range(1 + source.getrandbits(3)):
        drawn = source.getrandbits(64)
        at = (drawn >> 16) % (len(out) + 1)
        match drawn % 6:
            case 0 if at < len(out):
                out[at] ^= 1 << (drawn >> 8 & 7)
            case 1 if at < len(out):
                out[at] = _INTERESTING[(drawn >> 8) % len(_INTERESTING)]
            case 2:
                del out[at : at + 1 + (drawn >> 8 & 15)]
            case 3:
                out[at:at] = out[at : at + 1 + (drawn >> 8 & 63)]
            case 4:
                out[at:at] = source.randbytes(1 + (drawn >> 8 & 15))
            case 5:
                del out[at:]
    return bytes(out)


def inputs(samples: Sequence[Sample], seed: int, count: int = INPUTS) -> Iterator[tuple[bytes, list[int]]]:
    """`count` byte strings, each with the places to cut it at. Every other one is a well framed, damaged payload."""
    source = random.Random(seed)
    whole = [sample.frame(sample.payload) for sample in samples]
    for number in range(count):
        drawn = source.getrandbits(64)
        chosen = (drawn >> 8) % len(samples)
        if number % 2 == 0:
            data = samples[chosen].frame(mutate(source, samples[chosen].payload))
        else:
            data = mutate(source, whole[chosen])
        yield data, sorted(source.getrandbits(48) % (len(data) + 1) for _ in range(drawn & 3))


def chunks(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """`data` cut at `cuts`, which rise."""
    edges = [0, *cuts, len(data)]
    return [data[start:end] for start, end in pairwise(edges)]
