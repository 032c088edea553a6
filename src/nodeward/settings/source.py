"""Where new settings come from, and what differs between two."""

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from nodeward.features.cpus.settings import Amount
from nodeward.features.settings import Settings
from nodeward.settings.pushed import Pushed


@dataclass(slots=True)
class SettingsSource:
    """The source of new settings. `asked` is set when they are to be read again; `read` raises SettingsError."""

    read: Callable[[], Settings]
    about: str
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    faults: tuple[str, ...] = ()
    """Why the settings of this start are not the source's own but the last good ones."""
    pushed: Pushed | None = None
    """What an agent pushed, over them; None where nobody may."""


def leaves(settings: object, above: str = "") -> Iterator[tuple[str, object]]:
    """Every setting by its dotted path."""
    assert dataclasses.is_dataclass(settings)
    for one in dataclasses.fields(settings):
        value: object = getattr(settings, one.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, Amount):
            yield from leaves(value, f"{above}{one.name}.")
        else:
            yield f"{above}{one.name}", value
