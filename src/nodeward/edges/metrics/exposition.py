"""Prometheus' text format 0.0.4, written from prometheus_client's families.

Its own writer checks every label's name with a regular expression, which is most of a scrape's cost. Here names are our
own and known to be good, and series that share their labels share the text of them. A test compares the two.
"""

from collections.abc import Iterable

from prometheus_client.metrics_core import Metric

TYPES = {"unknown": "untyped"}


def text(families: Iterable[Metric]) -> bytes:
    """The families in which there is something to show."""
    lines: list[str] = []
    known: dict[int, str] = {}
    held: list[dict[str, str]] = []
    """What `known` is about stays alive, or another one could come in its place."""
    for family in families:
        if not family.samples:
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        lines.append(
            f"# HELP {name} {_escaped(family.documentation)}\n# TYPE {name} {TYPES.get(family.type, family.type)}\n"
        )
        for sample in family.samples:
            labels = known.get(id(sample.labels))
            if labels is None:
                labels = known[id(sample.labels)] = _labels(sample.labels)
                held.append(sample.labels)
            lines.append(f"{sample.name}{labels} {sample.value}\n")
    return "".join(lines).encode()


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join([f'{name}="{_quoted(value)}"' for name, value in labels.items()]) + "}"


def _quoted(value: str) -> str:
    return _escaped(value).replace('"', '\\"')


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")
