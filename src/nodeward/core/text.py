"""Text from others, made safe for a line that people read in a log or a terminal.

Must not: be used where a machine reads on; what was escaped cannot be told from what was written so.
"""

from collections.abc import Mapping
from typing import Final

_WORDS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def parse_bool(text: str) -> bool | None:
    """The value; None for any other word."""
    return _WORDS.get(text)


MOST_OF_NAME = 253
"""Characters of a pod's name in Kubernetes, the longest of all."""


def printable_name(text: str) -> str:
    """The name of a pod, a namespace or a container, in printable characters. A client of the runtime that is not
    kubelet may name one in any way; what Kubernetes names stays as it is."""
    return printable(text, MOST_OF_NAME)


def printable(text: str, most: int | None = None) -> str:
    """The text in one line without control characters; of more than `most` characters, that many and three dots."""
    if most is not None and len(text) > most:
        text = f"{text[:most]}..."
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)
