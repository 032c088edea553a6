"""Reads each second what the relay on this node says of itself, for people and `/metrics`.

Nothing of it enters the core or a record. A relay that is absent, hangs or answers nonsense is said once in the log,
and costs nobody anything.
"""

import logging

from nodeward.core.errors import WireError
from nodeward.host.clock import Clock
from nodeward.neighbours.cri import relay_line
from nodeward.neighbours.cri import relay_socket as line
from nodeward.people.relay_view import RelayView

EVERY_S = 1.0
WITHIN_S = 2.0
log = logging.getLogger(__name__)


class RelayReader:
    """Asks, and keeps the last answer while there is one."""

    def __init__(self, run_dir: str, clock: Clock, *, wanted: bool = False) -> None:
        """`wanted`: the settings say that a relay is to be there."""
        self._path, self._clock, self._wanted = f"{run_dir}/{relay_line.SOCKET}", clock, wanted
        self._used = self._left = False
        self.view: RelayView | None = None
        """What it last said; None where it did not answer the last time."""
        self.fault = ""
        """Why not, though its socket is there."""

    @property
    def missing(self) -> bool:
        """Whether no relay answers though one should: the settings want it, its socket is there still (it hangs, or was
        killed), or clients were connected when it last answered. One that nobody used may end."""
        return self.view is None and (self._wanted or self._used or self._left)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            before = self.view is not None, self.fault
            await self.look()
            if before != (self.view is not None, self.fault):
                log.info("relay=%s", "answers" if self.view is not None else self.fault or "absent")
            await self._clock.sleep(EVERY_S)

    async def look(self) -> None:
        """Asks once."""
        self.fault, self._left = "", False
        try:
            self.view = await line.ask(self._path, relay_line.STATUS, RelayView, WITHIN_S)
            self._used = any(door.clients for door in self.view.doors)
            return
        except FileNotFoundError:
            pass
        except ConnectionRefusedError:
            self._left = True
        except TimeoutError:
            self.fault = f"no answer of the relay at {self._path} within {WITHIN_S:g} s"
        except (OSError, WireError) as error:
            self.fault = f"no answer of the relay at {self._path}: {error}"
        self._left = self._left or bool(self.fault)
        self.view = None
