"""Words that the readers of policies share: spellings, what was probably meant, and values in messages."""

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import chain

from nodeward.core.text import parse_bool

MAX_ITEMS = 256
"""Of a list, and keys of a section."""
MAX_TEXT = 256
"""Characters of a text."""
_SPELLED = {"prefer_isol_cpus": "preferIsolCpus"}


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


def camel(name: str) -> str:
    """As nri-plugins writes it."""
    first, *rest = name.split("_")
    words = {"cpus": "CPUs", "cpu": "CPU", "qos": "QoS"}
    return _SPELLED.get(name) or first + "".join(words.get(word, word.capitalize()) for word in rest)


def plain(name: object) -> str:
    return str(name).replace("_", "").lower()
