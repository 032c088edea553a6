"""Sentences about TEE keys."""

from collections.abc import Iterable

from nodeward.features.keys.rows import KeyRow


def key_sentences(rows: Iterable[KeyRow], namespace: str, pod: str) -> list[str]:
    """The TEE keys of one pod."""
    return [
        f"keys {row.key}: {one.entitled} promised by {' or '.join(row.resources)}, "
        f"{'nothing that is known' if one.charged is None else one.charged} held"
        f"{', given by kubelet: ' if one.ids else ''}{', '.join(one.ids)}."
        for row in rows
        for one in row.holders
        if (one.namespace, one.pod) == (namespace, pod)
    ]
