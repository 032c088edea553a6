"""The front that a person has chosen, kept in `state_dir`: it holds in the daemon's next life, too.

It is on disk before it is told, so that a daemon that dies in between goes on with what was asked of it.
"""

import asyncio
import logging
from functools import partial

import msgspec

from nodeward.core.claims import Front
from nodeward.core.events import FrontChosen
from nodeward.core.modes import Mode
from nodeward.features.keys.sums import is_tracked
from nodeward.features.root import State
from nodeward.features.settings import Settings
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import GivenUpError, Lane, done_on
from nodeward.host.runner import Core
from nodeward.host.state_file import StateFile

log = logging.getLogger(__name__)
FILE = StateFile("keys.front", Front, "keys-front", 4096)
WITHIN_S = 3.0


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /v1/keys/move`."""

    to: Front


class FrontKeeper:
    """Keeps it. Belongs to the loop's thread, but for file calls."""

    def __init__(self, settings: Settings, files: HostFiles, lane: Lane, core: Core[State]) -> None:
        self._files, self._folder, self._lane, self._core = files, settings.state_dir, lane, core
        self._writer = FILE.writer(files, settings.state_dir)
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Tells what was chosen before the daemon started, and stays."""
        async with self._turn:
            known = await done_on(self._lane, "front", partial(FILE.known, self._files, self._folder))
            if known is not None:
                self._core.tell(FrontChosen(known))
        await asyncio.Event().wait()

    async def choose(self, body: bytes) -> bytes:
        """Moves to the front that the body names. ValueError says why that cannot be."""
        try:
            to = msgspec.json.decode(body, type=Asked).to
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f'a move is {{"to": "dra"}}, or plugin, or settings: {error}') from error
        _check(self._core.state, to)
        try:
            async with asyncio.timeout(WITHIN_S), self._turn:
                await done_on(self._lane, "front", partial(self._writer.replace, to))
        except (TimeoutError, OSError, GivenUpError) as error:
            why = str(error) or f"no answer of the disk within {WITHIN_S:g} s"
            raise ValueError(
                f"it is not known whether the choice is in {self._writer.path}, and it is not followed yet: {why}; ask "
                "again"
            ) from error
        log.info("keys=moved to=%s", to.value)
        self._core.tell(FrontChosen(to))
        return msgspec.json.encode({"front": to})


def _check(state: State, to: Front) -> None:
    """ValueError where the settings have not both fronts."""
    keys = state.settings.keys
    if to is Front.SETTINGS:
        return
    if keys.mode is not Mode.ENFORCE or keys.dra.mode is not Mode.ENFORCE:
        raise ValueError(
            "a node moves between two fronts, and keys go by claim only with keys.mode and keys.dra.mode set to "
            "enforce: set them and restart the daemon; with keys.dra.share: none nothing changes by that"
        )
    if to is Front.IDS and not any(map(is_tracked, keys.kinds.values())):
        raise ValueError(
            "no row of keys.kinds has publisher: device-plugin, so no key can go by id: set it, and restart the daemon"
        )
