"""What a setting is to people, said at its field: `wait_ms: int = setting(50, "How long it waits.", 0, 1000, "ms")`.

The checks of the settings file, `nodeward config schema` and docs/settings.md are made of it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

_KEY = "setting"


@dataclass(frozen=True, slots=True)
class Meaning:
    """`text`: what it means, for a person who edits the file. A number is from `least` to `most`, in this `unit`.
    `path`: an absolute path, or empty where the default is."""

    text: str
    least: float | None = None
    most: float | None = None
    unit: str = ""
    path: bool = False

    @property
    def whole(self) -> str:
        """The text, and the numbers that are allowed."""
        if self.least is None or (self.least == 0 and self.most is None):
            return self.text
        unit = f" {self.unit}" if self.unit else ""
        least = f"At least {self.least}" if self.most is None else f"{self.least:.12g} to {self.most:.12g}"
        return f"{self.text} {least}{unit}."

    def fault(self, value: object, default: object) -> str:
        """Why the setting cannot be this; empty where it can."""
        unit = f" {self.unit}" if self.unit else ""
        if isinstance(value, (int, float)) and self.least is not None:
            if self.most is None and value < self.least:
                return f"{value} is less than {self.least}{unit}"
            if self.most is not None and not self.least <= value <= self.most:
                return f"{value} is not between {self.least} and {self.most}{unit}"
        if self.path and isinstance(value, str) and (value or default) and not is_absolute(value):
            return f"{value!r} is not an absolute path without '..'"
        return ""


def is_absolute(path: str) -> bool:
    """Whether it is an absolute path that stays where it says."""
    return path.startswith("/") and ".." not in path.split("/")


def setting(
    default: Any,
    text: str,
    least: float | None = None,
    most: float | None = None,
    unit: str = "",
    path: bool = False,
) -> Any:
    """A field with this default and this meaning."""
    return field(default=default, metadata={_KEY: Meaning(text, least, most, unit, path)})


def table(factory: Callable[[], Any], text: str) -> Any:
    """A field whose default is made by `factory`: a table by name, or values of their own."""
    return field(default_factory=factory, metadata={_KEY: Meaning(text)})


def meanings(kind: type) -> Iterator[tuple[str, Meaning]]:
    """The fields of a section that have one, by name."""
    for one in fields(kind):
        if (meaning := one.metadata.get(_KEY)) is not None:
            yield one.name, meaning
