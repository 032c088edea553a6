"""The option `--set PATH=VALUE` that several commands share."""

from collections.abc import Callable
from typing import TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])


def set_option(example: str) -> Callable[[F], F]:
    """`--set`, given to the command as `flags`: dotted paths to texts; of a path that is given twice the last."""
    return click.option(
        "--set", "flags", multiple=True, metavar="PATH=VALUE", callback=_pairs, help=f"One setting, e.g. {example}."
    )


def _pairs(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for flag in given:
        path, equals, text = flag.partition("=")
        if not equals or not path:
            raise click.BadParameter(
                f"{flag!r} is no PATH=VALUE; write for example --set {path or 'limits.mode'}=VALUE"
            )
        pairs[path] = text
    return pairs
