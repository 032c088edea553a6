"""Turns the annotations that are YAML into JSON, so that what decides needs no reader of YAML.

Promises: a value that is no YAML, refers to itself, or is more than a pod may have of them together, stays as it is,
which is then no JSON.
"""

import json
from functools import lru_cache

MAX_BYTES = 8 * 1024
"""Characters of all of a pod's values, each counted with EACH more: a runtime waits while they are read, 30 ms at
most."""
EACH = 256


def as_json(found: dict[str, str], are_yaml: tuple[str, ...]) -> dict[str, str]:
    """The annotations, with the values of these keys, also with a scope behind a slash, as JSON."""
    names = [key for key in found if key.startswith(are_yaml)]
    if not names:
        return found
    left, made = MAX_BYTES, dict(found)
    for key in names:
        left -= len(found[key]) + EACH
        if left >= 0:
            made[key] = _json(found[key])
    return made


@lru_cache(maxsize=256)
def _json(text: str) -> str:
    import yaml  # few pods have one

    from nodeward.neighbours.formats.yaml_faults import YAML_FAULTS

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, loader)):
            return text
        return json.dumps(yaml.load(text, loader), separators=(",", ":"), allow_nan=False)
    except YAML_FAULTS:
        return text
