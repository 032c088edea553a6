"""The option `-o`, the same for every command that shows something."""

import re
from collections.abc import Callable
from typing import TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])
_CONTROL = re.compile("[\x7f-\x9f]")
"""Those that command a terminal and that JSON leaves as they are, within its texts only."""


def output_option(*more: str) -> Callable[[F], F]:
    """`-o text`, `json` or `yaml`, given to the command as `output`; `more` are other forms of text, such as wide."""
    forms = ["text", *more, "json", "yaml"]
    return click.option("-o", "--output", type=click.Choice(forms), default="text", show_default=True)


def print_data(value: object, output: str, *, is_one_of_many: bool = False) -> bool:
    """Prints the value as JSON or YAML, and returns whether that was asked for. Bytes are JSON already. One of many is
    a line of JSON, or a document of YAML that begins with its mark."""
    if output not in ("json", "yaml"):
        return False
    import msgspec

    if output == "json":
        text = (value if isinstance(value, bytes) else msgspec.json.encode(value)).decode()
        print(_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text), flush=is_one_of_many)
        return True
    plain = msgspec.json.decode(value) if isinstance(value, bytes) else value
    text = msgspec.yaml.encode(plain).decode()
    print(("---\n" if is_one_of_many else "") + text, end="", flush=is_one_of_many)
    return True
