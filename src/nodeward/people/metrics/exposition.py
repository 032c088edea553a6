"""Prometheus' text format 0.0.4, written from prometheus_client's families.

Its own writer checks every label's name with a regular expression, which is most of a scrape's cost. Here names are our
own and known to be good, and series that share their labels share the text of them. A test compares the two.

The text is made in pieces and never put together, and what was needed for it is let go of bit by bit: whoever joins
megabytes in one step, or frees thousands of objects in one, keeps all other threads waiting.
"""

from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import Metric

from nodeward.host.pace import paced

PIECE_CHARACTERS = 64 * 1024


def pieces(families: Iterable[Metric]) -> Iterator[bytes]:
    """The families in which there is something to show; each piece is whole lines, a line more than PIECE_CHARACTERS at
    most."""
    lines: list[str] = []
    size = 0
    known: dict[int, str] = {}
    held: list[dict[str, str]] = []
    """What `known` is about stays alive, or another one could come in its place."""
    for family in families:
        if not family.samples:
            continue
        name = family.samples[0].name if family.type == "counter" else family.name  # with or without _total
        lines.append(f"# HELP {name} {_escaped(family.documentation)}\n# TYPE {name} {family.type}\n")
        samples = family.samples[::-1]
        family.samples = []
        for _ in paced(range(len(samples)), 128):
            sample = samples.pop()
            labels = known.get(id(sample.labels))
            if labels is None:
                labels = known[id(sample.labels)] = _labels(sample.labels)
                held.append(sample.labels)
            line = f"{sample.name}{labels} {sample.value}\n"
            size += len(line)
            lines.append(line)
            if size >= PIECE_CHARACTERS:
                yield "".join(lines).encode()
                lines, size = [], 0
    if lines:
        yield "".join(lines).encode()
    while held:
        known.pop(id(held.pop()))


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join([f'{name}="{_quoted(value)}"' for name, value in labels.items()]) + "}"


def _quoted(value: str) -> str:
    return _escaped(value).replace('"', '\\"')


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")
