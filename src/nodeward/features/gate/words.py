"""Sentences about gates."""

from nodeward.features.gate.rows import GatesView


def gate_sentences(view: GatesView | None, what: str) -> list[str]:
    """The sentences on the gate of NAMESPACE/POD."""
    found = [row for row in view.rows if what == f"{row.namespace}/{row.pod}"] if view is not None else []
    return [f"gate of {what}: {f'shut: {row.why}' if row.why else 'open'}." for row in found]
