"""Every field of a v1.Pod by the API server's own OpenAPI, and a canary in each, so that a test finds what leaks.

`pod_fields.txt` has a line for each type: its name, and its fields with their kinds. It is our own table of facts; the
OpenAPI is not kept. `tests/real/test_podapi_apiserver.py` compares it with a real API server's. A new one is written by
`python -m tests.pod_fields < OPENAPI > tests/pod_fields.txt`, of what the server has at `/openapi/v3/api/v1`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("pod_fields.txt")
OPENAPI = "/openapi/v3/api/v1"
TEXT, NUMBER, YES_NO, QUANTITY, EITHER, TIME, ANY = "s", "i", "b", "q", "x", "t", "o"
"""The kinds of values: EITHER is a number or a text, ANY an object of any shape. `[T]` is a list of T, `{T}` a map."""
_POD = "io.k8s.api.core.v1.Pod"
_SCALARS = {"string": TEXT, "integer": NUMBER, "boolean": YES_NO, "object": ANY}
_FORMATS = {"date-time": TIME, "int-or-string": EITHER}
_CANARY = re.compile(r"c4n4ry(\d{4})x|7331(\d{4})(?!\d)")
WORD, NUMBERS = "c4n4ry{:04}x", "7331{:04}"
"""Forms of canaries, by the number of their path. Where a field takes a number only, it has the second."""


class Planted:
    """A pod with every field once (one item in each list, one key in each map), and a canary in each."""

    def __init__(self, form: str = WORD) -> None:
        self._form = form
        self.paths: list[str] = []
        """Such as `spec.containers[].env[].value` and `metadata.labels{}`; a canary's number is its place here."""
        self.pod = self._filled("Pod", "")

    def found_in(self, text: str | bytes) -> set[str]:
        """The paths of the canaries that are in it."""
        shown = text if isinstance(text, str) else text.decode("utf-8", "replace")
        return {self.paths[int(word or number)] for word, number in _CANARY.findall(shown)}

    def _filled(self, name: str, path: str) -> dict[str, object]:
        return {field: self._value(of, f"{path}.{field}".lstrip(".")) for field, of in types()[name].items()}

    def _value(self, of: str, path: str) -> object:
        if of[0] in "[{":
            inner = self._value(of[1:-1], path + of[0] + of[-1])
            return [inner] if of[0] == "[" else {"key": inner}
        if of in types():
            return self._filled(of, path)
        number = len(self.paths)
        self.paths.append(path)
        return self._leaf(of, number)

    def _leaf(self, of: str, number: int) -> object:
        text, digits = self._form.format(number), NUMBERS.format(number)
        if of == ANY:
            return {f"f:{text}": {f'v:"{text}"': text}}
        return True if of == YES_NO else int(digits) if of == NUMBER else text


@cache
def types() -> Mapping[str, Mapping[str, str]]:
    """The table: of each type the kind or type of each field."""
    rows = (line.split() for line in TABLE.read_text().splitlines())
    return {name: dict(field.split(":", 1) for field in fields) for name, *fields in rows}


def table(openapi: Mapping[str, object]) -> str:
    """The table's text by an OpenAPI document of version 3."""
    schemas, found = _at(openapi, "components", "schemas"), dict[str, str]()

    def shape(given: Mapping[str, object]) -> str:
        whole = given.get("allOf")
        one = whole[0] if isinstance(whole, list) else given
        if "$ref" in one:
            return named(str(one["$ref"]).rpartition("/")[2])
        if one.get("type") == "array":
            return f"[{shape(_at(one, 'items'))}]"
        if "additionalProperties" in one:
            return f"{{{shape(_at(one, 'additionalProperties'))}}}"
        if "oneOf" in one and "format" not in one:
            return QUANTITY
        return _FORMATS.get(str(one.get("format"))) or _SCALARS[str(one["type"])]

    def named(full: str) -> str:
        schema = _at(schemas, full)
        if "properties" not in schema:
            return shape(schema)
        name = full.rpartition(".")[2]
        if name not in found:
            found[name] = ""  # a type within itself ends here
            fields = sorted(_at(schema, "properties"))
            found[name] = " ".join(f"{one}:{shape(_at(schema, 'properties', one))}" for one in fields)
        return name

    named(_POD)
    return "".join(f"{name} {fields}\n" for name, fields in sorted(found.items()))


def _at(value: object, *names: str) -> Mapping[str, object]:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, dict):
        raise ValueError(f"the OpenAPI has no {'.'.join(names)}")
    return value


if __name__ == "__main__":
    sys.stdout.write(table(json.load(sys.stdin)))
