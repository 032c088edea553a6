"""`nodeward replay`: decides the events of a record again, also under other settings."""

import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import click

from nodeward.cli import exits
from nodeward.cli.flags import output_option, print_data

if TYPE_CHECKING:
    from nodeward.features.cpus.settings import PolicySettings
    from nodeward.features.settings import EngineSettings
    from nodeward.programs.once.what_if import Difference, WhatIf

SHOWN = 20
"""Differences that the text names; JSON has more."""


@click.command("replay")
@click.argument("path", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--settings",
    "settings_path",
    metavar="OTHER",
    type=click.Path(exists=True, dir_okay=False),
    help="Which decisions would differ under this settings file.",
)
@output_option()
def command(path: str, settings_path: str | None, output: str) -> None:
    """Decide a record's events again, and say where the decisions differ.

    Without --settings every decision is compared with the recorded one, byte for byte, up to the first that differs.
    With it, what the recorded settings decide is compared with what the file OTHER would have decided (the file alone:
    neither environment nor flags). The events stay those that happened, so all that follows the first difference is
    marked hypothetical.

    Exit code: 0 nothing differs, 1 something does, 2 the record or the settings cannot be used.

    \b
    Examples:
      nodeward node --record /tmp/node.record ...
      nodeward replay /tmp/node.record
      nodeward replay /tmp/node.record --settings strict.yaml
      nodeward replay /tmp/node.record --settings strict.yaml -o json | jq '.differences[0]'
    """
    read(path, lambda: _by_settings(path, settings_path, output) if settings_path else _again(path, output))


def read(path: str, compared: Callable[[], bool]) -> NoReturn:
    """Ends with the exit code of what a record was found to say."""
    from nodeward.core.errors import NodewardError
    from nodeward.core.record import RecordError

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe is no fault of the record: it ends, as dump does
    try:
        differs = compared()
    except RecordError as error:
        _unusable(f"{path}: {error}")
    except NodewardError as error:
        _unusable(str(error))
    except OSError as error:
        _unusable(f"{path}: cannot be read: {error.strerror}")
    sys.exit(exits.FAILED if differs else exits.GOOD)


def _unusable(why: str) -> NoReturn:
    print(f"nodeward: {why}", file=sys.stderr)
    sys.exit(exits.UNUSABLE)


def _again(path: str, output: str) -> bool:
    from nodeward.core.record import lines_of
    from nodeward.host.hostfs import opened
    from nodeward.programs.once.replay import replay

    with opened(path) as file:
        found = replay(lines_of(file))
    _refuse_nothing(found.events)
    if print_data(found, output):
        return bool(found.difference)
    print(_head(path, found.segments, found.events, found.torn))
    if found.difference:
        print(f"first difference: {found.difference}", file=sys.stderr)
    else:
        of_how_many = f", of the {found.events} that could be read" if found.torn else ""
        print(f"every decision is the same, byte for byte{of_how_many}")
    return bool(found.difference)


def _by_settings(path: str, settings_path: str, output: str) -> bool:
    from nodeward.settings import load as settings

    return compare(path, settings.load(settings_path, {}).engine, settings_path, output)


def compare(path: str, other: "EngineSettings | PolicySettings", of: str, output: str) -> bool:
    """Shows what other settings, or another CPU policy, decide otherwise than the record has it; `of` is their file."""
    from nodeward.core.record import lines_of
    from nodeward.host.hostfs import opened
    from nodeward.programs.once.what_if import what_if

    with opened(path) as file:
        found = what_if(lines_of(file), other)
    _refuse_nothing(found.events)
    if not print_data(found, output):
        print(_head(path, found.segments, found.events, found.torn))
        _print(found, of)
    return found.count > 0


def _refuse_nothing(events: int) -> None:
    from nodeward.core.record import RecordError

    if not events:
        raise RecordError("holds no event that can be decided again; did `nodeward node --record` write it?")


def _head(path: str, segments: int, events: int, torn: int) -> str:
    return f"{path}: {segments} segment(s), {events} event(s), {torn} torn place(s)"


def _print(found: "WhatIf", settings_path: str) -> None:
    for note in found.notes:
        print(f"note: {note}")
    if not found.count:
        print(f"{settings_path} decides the same everywhere")
        return
    print(f"{found.count} decision(s) would differ under {settings_path}:")
    for difference in found.differences[:SHOWN]:
        for line in _lines(difference):
            print(line)
    if found.count > SHOWN:
        print(f"... and {found.count - SHOWN} more; -o json has the first {len(found.differences)}")
    if found.cpus:
        print(f"{len(found.cpus)} container(s) would have other CPUs, each as it first differs:")
    for one in found.cpus[:SHOWN]:
        print(f"  seq {one.seq} {one.container}: {one.recorded or 'no grant'} -> {one.other or 'no grant'}")
    if len(found.cpus) > SHOWN:
        print(f"  ... and {len(found.cpus) - SHOWN} more in -o json")


def _lines(difference: "Difference") -> list[str]:
    about = f" of {difference.about}" if difference.about else ""
    mark = " [hypothetical]" if difference.hypothetical else " [first]"
    lines = [f"seq {difference.seq} {difference.event}{about}{mark}"]
    lines += [f"  recorded: {text}" for text in difference.recorded or ("nothing of this",)]
    lines += [f"  other:    {text}" for text in difference.other or ("nothing of this",)]
    return lines
