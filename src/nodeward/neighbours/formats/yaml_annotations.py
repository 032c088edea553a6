"""Turns the annotations that are YAML into JSON, so that what decides needs no reader of YAML.

Promises: a value that is no YAML, is too long or refers to itself stays as it is, which is then no JSON.
"""

import json
from collections.abc import Mapping

MAX_VALUE = 8 * 1024
"""Characters of one value; PyYAML's own reader takes some 20 ms for as many."""


def as_json(found: Mapping[str, str], are_yaml: tuple[str, ...]) -> dict[str, str]:
    """The annotations, with the values of these keys, also with a scope behind a slash, as JSON."""
    return {key: _json(text) if key.startswith(are_yaml) else text for key, text in found.items()}


def _json(text: str) -> str:
    import yaml  # few pods have one

    from nodeward.neighbours.formats.yaml_faults import YAML_FAULTS

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if len(text) > MAX_VALUE:
        return text
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, loader)):
            return text
        return json.dumps(yaml.load(text, loader), separators=(",", ":"), allow_nan=False)
    except YAML_FAULTS:
        return text
