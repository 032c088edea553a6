"""A metric's declaration: its name, type, labels and help."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """One family. `kind` is gauge, counter or histogram."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


def _gauge(name: str, labels: tuple[str, ...], text: str) -> Family:
    return Family(name, "gauge", labels, text)


def _counter(name: str, labels: tuple[str, ...], text: str) -> Family:
    return Family(name, "counter", labels, text)
