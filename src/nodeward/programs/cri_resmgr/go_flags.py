"""Parses command lines as Go's flag package does, and CRI Resource Manager's first configuration files.

One dash and two mean the same; `-flag=value`, or `-flag value` for what is no switch; `--` and the first word without a
dash end the options. A file has an option a line, `option = value` or `option value` without dashes; an indented line
belongs to the option above it: `--<above>-<option>`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from nodeward.core.errors import WireError
from nodeward.core.text import parse_bool

MAX_LINES = 10_000
MAX_LINE = 64 * 1024
_LINE = re.compile(r"([^\s=]*)(\s*=\s*|\s+|)(.*)")
"""Of any text: a name, what stands between, and a value; the latter two may be empty."""
MAX_NAME = 64
"""No option has a longer name; of one that is longer, so much is shown."""


@dataclass(frozen=True, slots=True)
class Given:
    """One option as it was given. `where` says by whom: the command line, or a file and its line."""

    name: str
    value: str
    where: str = "command line"


def parse(
    words: Sequence[str], switches: Mapping[str, bool], read: Callable[[str], str] | None = None
) -> tuple[list[Given], list[str]]:
    """The options in their order, and the words after them. `switches` has every option there is, with whether it is a
    switch (needs no value). The option `config` is replaced by what its file holds, by `read`, at its place; later
    options win. Raises WireError."""
    return _parse(list(words), switches, read, "command line")


def _parse(
    words: list[str], switches: Mapping[str, bool], read: Callable[[str], str] | None, where: str
) -> tuple[list[Given], list[str]]:
    found: list[Given] = []
    while words:
        word = words[0]
        if not word.startswith("-") or word == "-":
            return found, words
        words.pop(0)
        if word == "--":
            return found, words
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        if not equals and not switches.get(name, True):
            if not words:
                raise WireError(f"option --{name}", f"needs a value ({where})")
            value = words.pop(0)
        given = _checked(name, value if equals or value else "", bool(equals), switches, where)
        if name == "config" and read is not None:
            found += _from_file(given.value, read(given.value), switches)
        else:
            found.append(given)
    return found, words


def _checked(name: str, value: str, has_value: bool, switches: Mapping[str, bool], where: str) -> Given:
    switch = switches.get(name)
    if switch is None:
        shown = name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}..."
        near = "" if shown != name else next(iter(get_close_matches(name, list(switches), n=1, cutoff=0.6)), "")
        raise WireError(f"option --{shown}", f"is not known{f'; did you mean --{near}?' if near else ''} ({where})")
    if switch:
        value = value if has_value else "true"
        is_on = parse_bool(value)
        if is_on is None:
            raise WireError(f"option --{name}", f"{value[:MAX_NAME]!r} is neither true nor false ({where})")
        value = "true" if is_on else "false"
    return Given(name, value, where)


def _from_file(path: str, text: str, switches: Mapping[str, bool]) -> list[Given]:
    return [_checked(name, value, has, switches, where) for name, value, has, where in _lines(path, text)]


def _lines(path: str, text: str) -> Iterator[tuple[str, str, bool, str]]:
    above = ""
    for number, line in enumerate(_pieces(text), 1):
        where = f"{path} line {number}"
        if number > MAX_LINES:
            raise WireError(path, f"has more than {MAX_LINES} lines")
        if len(line) > MAX_LINE:
            raise WireError(where, f"has more than {MAX_LINE} characters")
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        name, between, value = next(_LINE.finditer(stripped)).groups()
        if line[0] in " \t":
            if not above:
                raise WireError(where, f"{name!r} is indented, and there is no option above it")
            name = f"{above}-{name}"
        else:
            above = name
        if name == "config":
            raise WireError(where, "a configuration file names no other one")
        yield name, value, bool(between), where


def _pieces(text: str) -> Iterator[str]:
    """Line by line; of one that is too long so much that this is seen."""
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        yield text[at : min(end, at + MAX_LINE + 1)]
        at = end + 1


def is_lines(text: str) -> bool:
    """Whether a configuration file is one of these, and not YAML as later versions have it."""
    for line in _pieces(text):
        if line.strip() and not line.lstrip().startswith("#"):
            if line.startswith(("---", "%")):  # how a document of YAML may begin, and no option does
                return False
            name, colon, _ = line.partition(":")
            return not (colon and "=" not in name and len(name.split()) == 1)
    return True
