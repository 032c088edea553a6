"""Text that others chose, for a line that people read: a log's, or a terminal's.

Must not: be used where a machine reads on; what was escaped cannot be told from what was written so.
"""


def printable(text: str, most: int | None = None) -> str:
    """The text in one line without control characters; of more than `most` characters, that many and three dots."""
    if most is not None and len(text) > most:
        text = f"{text[:most]}..."
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)
