"""What readers of settings share: values as faults show them, the key that was meant, and switches."""

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import chain

from nodeward.core.go_bool import parse_bool


def near(name: str, *known: Iterable[str]) -> str:
    """The known name that was probably meant; empty where none is near."""
    names = list(chain(*known))
    is_long = len(name) > 2 * max(map(len, names), default=0)
    return "" if is_long else next(iter(get_close_matches(name, names, n=1, cutoff=0.6)), "")


def switch(value: object, where: str, faults: list[str]) -> bool:
    """A boolean, or a text as Go's ParseBool takes it."""
    word = str(value) if isinstance(value, bool | str | int) else ""
    is_on = parse_bool(word)
    if is_on is None:
        faults.append(f"{where}: {shown(value)} is not allowed; true or false")
    return bool(is_on)


def shown(value: object) -> str:
    """A value for a message: bounded."""
    if isinstance(value, int) and value.bit_length() > 128:  # Python writes out no number of any length
        return f"a number of {value.bit_length()} bits"
    text = repr(str(value) if isinstance(value, str) else value)
    return text if len(text) <= 128 else f"{text[:128]}..."
