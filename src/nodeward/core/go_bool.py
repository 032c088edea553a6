"""Truth values as Go's strconv.ParseBool reads them: kubelet, CRI Resource Manager and its annotations are Go."""

from collections.abc import Mapping
from typing import Final

_WORDS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def parse_bool(text: str) -> bool | None:
    """The value; None for any other word."""
    return _WORDS.get(text)
