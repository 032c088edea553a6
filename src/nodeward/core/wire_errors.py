"""The errors of formats.

    NodewardError
    └── WireError    bytes that are not the format they should be

Whatever bytes a codec is fed, it returns values or raises WireError; no other exception of its own making.
"""

from nodeward.core.errors import NodewardError


class WireError(NodewardError):
    """Bytes that are not the format they should be. `format` names the codec, the text says what was wrong."""

    def __init__(self, format: str, fault: str) -> None:  # noqa: A002 - the house word for what a codec reads
        super().__init__(f"{format}: {fault}")
        self.format = format
        self.fault = fault
